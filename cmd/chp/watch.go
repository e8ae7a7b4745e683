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
		Short: "Print all keys, then every change",
		Long: `Prints each key on a line, then a line "synced", then every change as it happens,
until it is interrupted. No change is lost or printed twice. After a lost connection
or a change of server it prints the differences from the new snapshot as changes;
"synced" is not printed again. Messages on standard error say when the server is lost
and when the client follows one again. --timeout applies only at the beginning; a
server that is lost later is waited for without limit.

A SUBTREE begins and ends with a slash, such as /lamp/; without the final slash it
is a single key. Without a SUBTREE the whole map is watched.

A line has the operation (set, del, synced), sequence number, key and value; special
characters are quoted. With --json each line is an object with op, key, value and
seq; bytes that are not UTF-8 are in key_base64 and value_base64. The object also
has cause, one of
  set       an update set the key, or the key existed at the beginning
  deleted   an update deleted the key
  expired   the key's time to live ended
  resync    the key in a new snapshot differs from what was printed before
and ttl, the remaining time to live in seconds, if the key expires.`,
		Example: `  chp watch
  chp watch /lamp/ /door/ --json`,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON objects, one per line")
	cmd.Flags().BoolVar(&keep, "keep-on-empty", false, "when a server restarts with an empty map, keep the keys and print no deletions")
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
			return fail(exitRefused, "the output was not read fast enough; watch fewer subtrees, or read faster")
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
