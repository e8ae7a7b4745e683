package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"clustermap/chp"
	"clustermap/internal/command"
	"clustermap/sockets"
	"clustermap/zmtp"

	"github.com/spf13/cobra"
)

func newStatus() *cobra.Command {
	var n connection
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Print the status of the servers",
		Long: `Asks all servers (--server) for their status at the same time, and prints a column
for each, in the order of the flags:

  role      primary or backup of a pair, or alone
  state     active, passive (follows the active one), or waiting (not yet either);
            "would take over": it becomes active when a client asks for the map,
            because it no longer hears the active one; of a node of a cluster
            leader, follower, candidate or learner
  epoch     number of the active server's reign, which rises with each
            failover; 0 if alone
  sequence  the sequence number of the last update
  keys      number of keys
  clients   number of connected clients
  peer      the other server of the pair
  in sync   yes if the peer has all published updates, and updates are
            published only when it has them
  lag       updates that the peer does not have yet; -1 while it does not follow
            or is sent the whole map; of a node of a cluster, batches of updates
            that it does not have, as the leader says if it was asked, too
  refused   number of messages that the server has refused since it started, most
            of them invalid updates, and the most frequent reasons
  bad asks  number of snapshot requests that it has refused: malformed ones, or too
            many of one client
  memory    resident memory of the server's process
  uptime    time since the server began to serve
  version   of the server's program, as chp version prints its own

Peer, in sync and lag are - for a server that is alone; in sync and lag also for one
that is not active, because only the active one knows them; and version for a server
of an earlier version, which does not say it.

With --json there is an object for each server, on a line: endpoint, version, role,
state, node and term of a cluster, takes_over, epoch, sequence (a string), keys, clients, peer, peer_error, in_sync, lag,
memory_bytes, map_bytes, snapshot_bytes (sent), encoded_bytes (encoded for them;
clients share snapshots), refused (an object with the number for each reason, such as
value_too_large), bad_asks and uptime_seconds, or endpoint and error for a server that did not
answer. peer_error says why a server does not hear the other one, at whose addresses
somebody answers, or is empty; without --json it is on stderr. What is - above is null.

Servers of other implementations do not answer.

Exits with 0 if a server is active or would take over, 1 if both servers of a pair are
active, servers answer but none does, or all refuse this client, and 3 if no server
answers.`,
		Example: `  chp status
  chp status --server tcp://127.0.0.1:5556 --server tcp://127.0.0.1:5566
  chp status --json | jq .lag`,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON objects, one per line")
	n.register(cmd, 5*time.Second)
	cmd.RunE = command.Runs(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
		servers, err := n.servers()
		if err != nil {
			return err
		}
		replies := n.ask(ctx, servers)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if asJSON {
			err = replies.printJSON(cmd.OutOrStdout())
		} else {
			err = replies.printText(cmd.OutOrStdout(), n.stderr)
		}
		if err != nil {
			return err
		}
		return replies.outcome()
	})
	return cmd
}

// reply is the answer of one server.
type reply struct {
	server string
	status chp.Status
	why    string // why it did not answer, or "" if it did
	denied bool   // it refuses this client
}

type replies []reply

// ask asks all servers for their status at the same time.
func (n *connection) ask(ctx context.Context, servers []string) replies {
	ctx, cancel := context.WithTimeout(ctx, n.timeout)
	defer cancel()
	all := make(replies, len(servers))
	var asking sync.WaitGroup
	for i, server := range servers {
		asking.Go(func() {
			st, err := chp.ServerStatus(ctx, server, n.security)
			all[i] = reply{server, st, n.whyUnanswered(server, err), refuses(err)}
		})
	}
	asking.Wait()
	return all
}

// refuses reports whether an error means that a server refuses this client.
func refuses(err error) bool {
	return asDenied(err) != nil || errors.Is(err, zmtp.ErrMechanism) || errors.Is(err, zmtp.ErrRefused) || errors.Is(err, sockets.ErrServerKey)
}

// whyUnanswered describes why a server did not answer. It returns "" if it did.
func (n *connection) whyUnanswered(server string, err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, chp.ErrNoStatus):
		return "it is a server of another implementation, which does not report its status"
	case asDenied(err) != nil:
		return plain(asDenied(err))
	case refuses(err):
		return "it " + n.refusal(err)
	case noHost(err):
		return "no such host"
	}
	return reason(server, err)
}

// active returns the active server, or nil. If several servers are active, it returns the
// one with the highest epoch.
func (all replies) active() *reply {
	var best *reply
	for i := range all {
		r := &all[i]
		if r.why == "" && r.status.State == chp.ServerActive && (best == nil || r.status.Epoch > best.status.Epoch) {
			best = r
		}
	}
	return best
}

// successor returns the first server that takes over when a client asks, or nil.
func (all replies) successor() *reply {
	for i := range all {
		if r := &all[i]; r.why == "" && r.status.TakesOver {
			return r
		}
	}
	return nil
}

// starting returns the first primary that will take over when a client asks, unless it hears the other
// server of its pair before, or nil.
func (all replies) starting() *reply {
	for i := range all {
		if r := &all[i]; r.why == "" && r.status.Role == chp.RolePrimary && r.status.State == chp.ServerWaiting && r.status.PeerError == "" {
			return r
		}
	}
	return nil
}

// follower returns a node of a cluster that serves and knows the leader, or nil.
func (all replies) follower() *reply {
	for i := range all {
		if r := &all[i]; r.why == "" && r.status.Role == chp.RoleNode && r.status.State == chp.ServerPassive {
			return r
		}
	}
	return nil
}

// serving returns the active server, or a node of a cluster that serves, or nil.
func (all replies) serving() *reply {
	if r := all.active(); r != nil {
		return r
	}
	return all.follower()
}

// both returns the primary and the backup that are active, or nil if one of a pair is at
// most. Two names for one server have one role.
func (all replies) both() (two []string) {
	for _, role := range []chp.ServerRole{chp.RolePrimary, chp.RoleBackup} {
		i := slices.IndexFunc(all, func(r reply) bool { return r.why == "" && r.status.Role == role && r.status.State == chp.ServerActive })
		if i < 0 {
			return nil
		}
		two = append(two, all[i].server)
	}
	return two
}

// outcome returns the error of the command: nil if one server serves clients that ask.
func (all replies) outcome() error {
	if two := all.both(); two != nil {
		return fail(exitRefused, "two servers are active, %s: each accepts updates that the other one does not have; when they hear each other, one discards its own", strings.Join(two, " and "))
	}
	if all.serving() != nil || all.successor() != nil {
		return nil
	}
	var why []string
	if r := all.starting(); r != nil {
		return fail(exitRefused, "no server is active yet: %s waits whether the other one of its pair is there, then the next client makes it active; chp wait waits for that", r.server)
	}
	for _, r := range all {
		if r.why == "" {
			return fail(exitRefused, "no server is active%s", all.hintPromote())
		}
		why = append(why, r.server+" ("+r.why+")")
	}
	if !slices.ContainsFunc(all, func(r reply) bool { return !r.denied }) {
		if len(all) == 1 {
			return fail(exitRefused, "the server %s %s", all[0].server, strings.TrimPrefix(all[0].why, "it "))
		}
		return fail(exitRefused, "no server accepts this client: %s", strings.Join(why, ", "))
	}
	return fail(exitNoServer, "no server answered: %s", strings.Join(why, ", "))
}
