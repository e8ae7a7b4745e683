package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"clustermap/chp"
	"clustermap/internal/command"
	"clustermap/internal/visible"

	"github.com/spf13/cobra"
)

func newPromote() *cobra.Command {
	var n connection
	var yes bool
	cmd := &cobra.Command{
		Use:   "promote",
		Short: "Make a server of a pair active although the other one is gone",
		Long: `Makes a server of a pair active whose other server is gone for good. A backup needs
this if it was restarted and does not hear its primary: it waits without end, for the
primary may have newer updates. In all other cases the pair helps itself.

Prints what the server is and has, and asks before it promotes it; without a terminal,
--yes is needed. If the other server comes back after this one has accepted updates, the
updates that only the other one has may be discarded; if this one has accepted none, the
newer map wins.

Of the servers of --server, only one may answer. It refuses if it hears the other one,
if anybody accepts a connection at that one's addresses, also one that refuses its key,
or if it has just started and gives the other one time. Only an administrator may ask, as for chp
failover; the server logs who asked.

Exits with 1 if a server is active already, the server refuses, or nobody agrees, and
with 3 if no server answers.`,
		Example: `  chp promote --server tcp://127.0.0.1:5566
  chp promote --server tcp://127.0.0.1:5566 --yes`,
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	n.register(cmd, 30*time.Second)
	cmd.RunE = command.Runs(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
		servers, err := n.servers()
		if err != nil {
			return err
		}
		server, err := n.candidate(ctx, servers)
		if err != nil {
			return err
		}
		if !yes && !command.Interactive(cmd) {
			return fail(exitUsage, "add --yes to promote %s without a question", server)
		}
		if !yes {
			agreed, err := command.Ask(ctx, cmd, "updates that only the other server has may be lost; promote "+server+"?")
			if err == nil && !agreed {
				err = fail(exitRefused, "%s was not promoted", server)
			}
			if err != nil {
				return err
			}
		}
		if err := n.promote(ctx, server); err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is active\n", visible.String(server))
		return err
	})
	return cmd
}

// candidate returns the only server that answers, after it has said what that one has.
func (n *connection) candidate(ctx context.Context, servers []string) (string, error) {
	all := n.soon().ask(ctx, servers)
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if active := all.active(); active != nil {
		return "", fail(exitRefused, "%s is active already", active.server)
	}
	var answered []reply
	for _, r := range all {
		if r.why == "" {
			answered = append(answered, r)
		}
	}
	switch len(answered) {
	case 0:
		return "", all.outcome()
	case 1:
	default:
		return "", fail(exitRefused, "%s and %s answer; name the one to promote with --server", answered[0].server, answered[1].server)
	}
	st := answered[0].status
	if st.Role == chp.RoleNode {
		return "", fail(exitRefused, "%s is a node of a cluster: a majority elects the leader", answered[0].server)
	}
	fmt.Fprintf(n.stderr, "chp: %s: role %s, state %s, %s, sequence %d; the other server is %s\n", visible.String(answered[0].server), visible.String(string(st.Role)),
		visible.String(string(st.State)), command.Count(st.Keys, "key"), st.Sequence, visible.String(st.Peer))
	if st.TakesOver {
		fmt.Fprintln(n.stderr, "chp: it takes over by itself as soon as a client asks for the map")
	}
	return answered[0].server, nil
}

// soon returns n with a shorter time-out: a missing server must not use up all of it.
func (n *connection) soon() *connection {
	first := *n
	first.timeout = min(n.timeout, reachTimeout)
	return &first
}

// promote promotes a server. --timeout limits the whole call.
func (n *connection) promote(ctx context.Context, server string) error {
	limited, cancel := context.WithTimeout(ctx, n.timeout)
	defer cancel()
	err := chp.Promote(limited, server, n.security)
	var refusal *chp.PromoteError
	switch {
	case errors.As(err, &refusal):
		return fail(exitRefused, "%s is not promoted: %s", server, refusal.Reason)
	case err != nil && ctx.Err() == nil:
		return fail(exitNoServer, "%s did not answer the request within %v (%s); chp status shows whether it is active", server, n.timeout, n.whyUnanswered(server, err))
	}
	return err
}

// waiting returns the servers that are backups which wait for their primaries.
func (all replies) waiting() (list []string) {
	for _, r := range all {
		if r.why == "" && r.status.Role == chp.RoleBackup && r.status.State == chp.ServerWaiting && !r.status.TakesOver {
			list = append(list, r.server)
		}
	}
	return list
}

// hintPromote returns what to do if no server is active because a backup waits for its
// primary, or "".
func (all replies) hintPromote() string {
	waiting := all.waiting()
	if len(waiting) == 0 || all.active() != nil {
		return ""
	}
	why := ""
	for _, r := range all {
		if r.server == waiting[0] && r.status.PeerError != "" {
			why = " (" + visible.String(r.status.PeerError) + ")"
		}
	}
	return fmt.Sprintf("; %s waits for its primary%s: if that is gone for good, run chp promote --server %s", strings.Join(waiting, ", "), why, command.ShellWord(waiting[0]))
}
