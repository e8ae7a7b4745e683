package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"clustermap/chp"
	"clustermap/internal/command"
	"clustermap/internal/visible"

	"github.com/spf13/cobra"
)

func newWait() *cobra.Command {
	var n connection
	var inSync bool
	cmd := &cobra.Command{
		Use:   "wait",
		Short: "Wait until a server serves clients",
		Long: `Waits until one of the servers (--server) serves clients, also one that has not started
yet, and prints which. It is for scripts and for whatever starts what needs the map.

A server of a pair that becomes active when a client asks for the map does so now. With
--in-sync it waits, further, until the other server of the pair has all updates.

Exits with 3 if there is none within --timeout, and with 1 at once if every server
refuses this client, or, with --in-sync, if the server is not one of a pair.`,
		Example: `  chp wait --timeout 1m && myapp
  chp wait --in-sync --server tcp://10.0.0.1:5556 --server tcp://10.0.0.2:5556`,
	}
	cmd.Flags().BoolVar(&inSync, "in-sync", false, "wait until both servers of a pair have all updates")
	n.register(cmd, 30*time.Second)
	n.given = func() bool { return true } // a server need not be there yet
	cmd.RunE = command.Runs(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
		servers, err := n.servers()
		if err != nil {
			return err
		}
		limited, cancel := context.WithTimeout(ctx, n.timeout)
		defer cancel()
		c, err := n.openNothing(ctx, n.open)
		if err != nil {
			return err
		}
		defer c.Close()
		for inSync {
			all := n.soon().ask(limited, servers)
			active := all.serving()
			if active != nil && (active.status.Role == chp.RoleAlone || active.status.Role == chp.RoleNode) {
				return fail(exitRefused, "%s is not part of a pair", active.server)
			}
			if active != nil && active.status.InSync {
				break
			}
			select {
			case <-time.After(waitLook):
			case <-limited.Done():
				if ctx.Err() != nil {
					return ctx.Err()
				}
				return fail(exitNoServer, "the servers are not in sync within %v", n.timeout)
			}
		}
		if err := c.WaitActive(limited); err != nil { // it may have handed over meanwhile
			if errors.Is(err, context.DeadlineExceeded) {
				return c.noServer(ctx, n.timeout)
			}
			return err
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), visible.String(c.Server()))
		return err
	})
	return cmd
}

const waitLook = 100 * time.Millisecond
