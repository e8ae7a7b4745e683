package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"clustermap/chp"
	"clustermap/internal/command"
	"clustermap/internal/kvjson"

	"github.com/spf13/cobra"
)

func newWatch() *cobra.Command {
	var n connection
	var asJSON, keep bool
	var from watchFrom
	var run watchExec
	cmd := &cobra.Command{
		Use:   "watch [SUBTREE...]",
		Short: "Print all keys, then every change",
		Long: `Prints each key on a line, then a line "synced", then every change as it happens,
until it is interrupted; the exit code is then 0, or 1 if it never had a server. No change is lost or printed twice. After a lost connection
or a change of server it prints the differences from the new snapshot as changes;
"synced" is not printed again. Messages on standard error say when the server is lost
and when the client follows one again. --timeout applies only at the beginning; a
server that is lost later is waited for without limit.

A SUBTREE begins and ends with a slash, such as /lamp/; without the final slash it
is a single key, and not a prefix as for chp ls, get --prefix and del --prefix. If there is no such key at the beginning,
a message on standard error says so, and names the subtree. Without a SUBTREE the whole map is watched.

--since SEQ prints what came after the sequence number SEQ, deletions among it, in place of all
keys, then "synced", then every change. A program that has handled a line goes on there after
a restart. The server remembers only so much (chp serve --retain); if SEQ is older, or
no number that the map has had, as after a failover that has lost updates, the exit code is 1,
and the message says which is the oldest. --no-initial prints only "synced" and the changes.
--prev also prints the value that a key had before, if that is known: with --since it is not
before a key's first change. --bookmarks prints "bookmark" with a sequence number from time to
time, up to which everything was printed although nothing changes.

A line has the operation (set, del, synced), sequence number, key and value; special
characters are quoted. With --json each line is an object with op, key, value and
seq (a string); bytes that are not UTF-8 are in key_base64 and value_base64. The object also
has cause, one of
  set       an update set the key, or the key existed at the beginning
  deleted   an update deleted the key
  expired   the key's time to live ended
  resync    the key in a new snapshot differs from what was printed before
and, for the updates of a transaction, transaction, the sequence number of its last one,
and ttl, the remaining time to live in seconds, if the key expires, and properties, time
and by, those of the update, as chp get --json prints them; with --prev also prev, the value before.
` + execHelp,
		Example: `  chp watch
  chp watch /lamp/ /door/ --json
  chp watch /lamp/ --since 1780336910647296012 --prev
  chp watch /config/ --exec 'test "$CHP_OP" = synced || systemctl reload web'
  chp watch /file --exec 'cat > copy' --on-error stop`,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON objects, one per line")
	cmd.Flags().BoolVar(&keep, "keep-on-empty", false, "when a server restarts with an empty map, keep the keys and print no deletions")
	from.register(cmd)
	run.register(cmd)
	n.register(cmd, 30*time.Second)
	n.registerModel(cmd)
	n.completeKeys(cmd, -1)
	cmd.RunE = command.Runs(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		if err := cmp.Or(run.check(cmd), from.check(cmd)); err != nil {
			return err
		}
		n.news = make(chan string, 16)
		c, err := n.start(chp.ClientOptions{Subtrees: args, KeepOnEmpty: keep})
		if err != nil {
			return err
		}
		defer c.Close()
		// Before the client is in sync, so that the snapshot is printed as it
		// arrives.
		w, err := from.watch(ctx, c)
		if err != nil {
			return err
		}
		defer w.Close()

		// --timeout limits the wait for the first server. After that the watch
		// continues without one.
		reading, done := command.UntilHangup(ctx, cmd.OutOrStdout())
		defer done()
		printing, stop := context.WithCancelCause(reading)
		defer stop(nil)
		go func() {
			if err := c.wait(ctx); err != nil {
				stop(err)
				return
			}
			n.warnOutside(args...)
			n.hintSubtrees(c, args)
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
			format = kvjson.AppendEvent
		}
		format = from.format(format, asJSON)
		if run.line != "" {
			run.environ = outerEnvironment(c.servers, n.curve.Environment())
			err = run.follow(printing, cmd, w)
		} else {
			err = printEvents(printing, w, bufio.NewWriterSize(cmd.OutOrStdout(), 64<<10), format)
		}
		switch {
		case ctx.Err() != nil:
			select {
			case <-c.connected:
				return nil // a signal, the normal end of a watch
			default:
				return ctx.Err() // it has never had a server
			}
		case printing.Err() != nil:
			return context.Cause(printing)
		case errors.Is(err, chp.ErrLagged) && run.line != "":
			return fail(exitRefused, "changes came faster than the command handles them; watch fewer subtrees, or make it faster")
		case errors.Is(err, chp.ErrLagged):
			return fail(exitRefused, "the output was not read fast enough; watch fewer subtrees, or read faster")
		}
		return err
	})
	return cmd
}

// printEvents prints the events of w until an error. It flushes only when no event is
// waiting, so that a single change is written at once and many changes in large writes.
func printEvents(ctx context.Context, w *chp.Watch, out *bufio.Writer, format func([]byte, chp.Event) []byte) error {
	for {
		var failed error
		err := w.NextBatch(ctx, func(e chp.Event) bool {
			// The line is formatted in the writer's own buffer.
			_, failed = out.Write(format(out.AvailableBuffer(), e))
			return failed == nil
		})
		// Flush even after an error.
		if err := errors.Join(failed, out.Flush()); err != nil {
			return err
		}
		if err != nil {
			return err
		}
	}
}
