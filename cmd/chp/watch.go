package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"time"

	"clustermap/chp"
	"clustermap/internal/command"

	"github.com/spf13/cobra"
)

func newWatch() *cobra.Command {
	var n connection
	var asJSON, keep bool
	cmd := &cobra.Command{
		Use:   "watch [SUBTREE...]",
		Short: "Print what is in the map, then every change",
		Long: `Prints each key that is there, one a line, then a line "synced", then every change
as it happens, until it is interrupted. Nothing is missed and nothing comes twice
between the two. After a lost connection or a change of server it prints the
differences to the new content, as changes; "synced" does not come again. Standard
error tells when the server is lost and when one is followed again. --timeout counts
at the beginning only; a server that is lost later is waited for without end.

A SUBTREE begins and ends with a slash, such as /lamp/; without the slash at the
end it is one exact key. Without any SUBTREE the whole map is watched.

A line is: operation (set, del, synced), sequence number, key, value; what would
not be plain on a line is quoted. With --json each line is an object with op, key,
value and seq; bytes that are not UTF-8 are in key_base64 and value_base64. It has
cause as well, one of
  set       an update set the key, or it was there at the beginning
  deleted   an update deleted the key
  expired   its time to live was over
  resync    a new snapshot differs in this key from what was printed before
and ttl, the seconds that a key has left, if it has a limit.`,
		Example: `  chp watch
  chp watch /lamp/ /door/ --json`,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON objects, one a line")
	cmd.Flags().BoolVar(&keep, "keep-on-empty", false, "print no deletions when a server starts anew with an empty map; keep what is there")
	n.register(cmd, 30*time.Second)
	n.registerModel(cmd)
	cmd.RunE = command.Runs(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		servers, err := n.servers()
		if err != nil {
			return err
		}
		n.news = make(chan string, 16)
		c, err := n.start(chp.ClientOptions{Servers: servers, Subtrees: args, KeepOnEmpty: keep})
		if err != nil {
			return err
		}
		defer c.Close()
		// Before the client is in sync, so that the snapshot is printed as it
		// comes in.
		w, err := c.Watch()
		if err != nil {
			return refused(err)
		}
		defer w.Close()

		// The server has --timeout to be there; from then on the watch outlives
		// any time without one.
		reading, done := command.UntilHangup(ctx, cmd.OutOrStdout())
		defer done()
		printing, stop := context.WithCancelCause(reading)
		defer stop(nil)
		go func() {
			if err := c.wait(ctx); err != nil {
				stop(err)
			}
		}()
		go func() {
			for {
				select {
				case line := <-n.news:
					fmt.Fprintln(cmd.ErrOrStderr(), line)
				case <-printing.Done():
					return
				}
			}
		}()

		format := appendEventText
		if asJSON {
			format = appendEventJSON
		}
		err = printEvents(printing, w, bufio.NewWriterSize(cmd.OutOrStdout(), 64<<10), format)
		switch {
		case ctx.Err() != nil:
			return nil // interrupted, the ordinary end of a watch
		case printing.Err() != nil:
			return context.Cause(printing)
		case errors.Is(err, chp.ErrLagged):
			return fail(exitRefused, "changes came faster than the output was read; watch less, or read faster")
		}
		return err
	})
	return cmd
}

// printEvents prints the events of w until an error. It flushes when no event is
// left to print: a lone change is seen at once, and of a flood the writer makes
// writes of its own size.
func printEvents(ctx context.Context, w *chp.Watch, out *bufio.Writer, format func([]byte, chp.Event) []byte) error {
	for {
		var failed error
		err := w.NextBatch(ctx, func(e chp.Event) bool {
			// AvailableBuffer lends the writer's own space: a line is formatted in place.
			_, failed = out.Write(format(out.AvailableBuffer(), e))
			return failed == nil
		})
		// What has been printed before an error is printed for good.
		if err := errors.Join(failed, out.Flush()); err != nil {
			return err
		}
		if err != nil {
			return err
		}
	}
}
