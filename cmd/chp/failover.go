package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"clustermap/chp"
	"clustermap/internal/command"
	"clustermap/internal/visible"

	"github.com/spf13/cobra"
)

func newFailover() *cobra.Command {
	var n connection
	cmd := &cobra.Command{
		Use:   "failover",
		Short: "Make the active server of a pair hand over to the other one",
		Long: `Finds the active server of a pair among those of --server, and makes it hand over to
the other one, which must be running and up to date. Use it before a restart of the
active server, for example. No update is lost; clients follow the other server.

Only an administrator may ask: a client with a key of the server's --curve-admin or
with its own key; without CURVE one on the server's machine, or any with the server's
--admin-anywhere. After a handover the next one is refused until four times the
server's --bstar-interval has passed. The servers log who asked.

Prints the new active server and how long the handover took. Exits with 1 if the
active server does not hand over, none is active, or all refuse this client, and
with 3 if no server answers.`,
		Example: `  chp failover
  chp failover --server tcp://127.0.0.1:5556 --server tcp://127.0.0.1:5566`,
	}
	n.register(cmd, 30*time.Second)
	cmd.RunE = command.Runs(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
		servers, err := n.servers()
		if err != nil {
			return err
		}
		active, took, err := n.failover(ctx, servers)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is active after %v\n", visible.String(active), took.Round(time.Millisecond))
		return err
	})
	return cmd
}

// failover makes the active server hand over, and returns the new active server.
// --timeout limits the whole call.
func (n *connection) failover(ctx context.Context, servers []string) (active string, took time.Duration, err error) {
	given := n.timeout
	ctx, cancel := context.WithTimeout(ctx, given)
	defer cancel()
	first := n.soon()
	all := first.ask(ctx, servers)
	if err := all.outcome(); err != nil {
		return "", 0, err
	}
	from := all.serving()
	if from != nil && from.status.Role == chp.RoleNode {
		return "", 0, fail(exitRefused, "%s is a node of a cluster: use chp cluster transfer", from.server)
	}
	if from == nil {
		return "", 0, fail(exitRefused, "no server is active; %s takes over when a client asks for the map", all.successor().server)
	}
	if peer := from.status.Peer; peer != "" && checkServer(peer) == nil && !slices.Contains(servers, peer) {
		servers = append(slices.Clip(servers), peer)
	}
	begun := time.Now()
	err = chp.Failover(ctx, from.server, n.security)
	took = time.Since(begun)
	var refusal *chp.HandoverError
	switch {
	case errors.As(err, &refusal):
		return "", 0, fail(exitRefused, "%s is active but does not hand over: %s", from.server, refusal.Reason)
	case err != nil:
		return "", 0, fail(exitNoServer, "%s did not answer the request to hand over within %v (%s); chp status shows which server is active",
			from.server, given, n.whyUnanswered(from.server, err))
	}
	for _, r := range first.ask(ctx, servers) {
		if r.why == "" && r.status.State == chp.ServerActive && r.server != from.server {
			return r.server, took, nil
		}
	}
	if from.status.Peer != "" {
		return from.status.Peer, took, nil // it may not be reachable from here, or under another name
	}
	return "the other server", took, nil
}
