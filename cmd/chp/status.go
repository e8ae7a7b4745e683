package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"clustermap/chp"
	"clustermap/internal/command"
	"clustermap/zmtp"

	"github.com/spf13/cobra"
)

func newStatus() *cobra.Command {
	var n connection
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Print the status of the servers",
		Long: `Asks all servers (--server) for their status at the same time, and prints a line for
each, in the order of the flags:

  ROLE      primary or backup of a pair, or alone
  STATE     active, passive (follows the active one), or waiting (not yet either)
  EPOCH     number of the active server's reign, which rises with each
            failover; 0 if alone
  SEQUENCE  the sequence number of the last update
  KEYS      number of keys
  CLIENTS   number of connected clients
  PEER      the other server of the pair
  LAG       updates that the peer does not have yet; -1 while it does not follow
  MEMORY    resident memory of the server's process
  UPTIME    time since the server began to serve

With --json each line is an object: endpoint, role, state, epoch, sequence, keys,
clients, peer, lag, in_sync, memory_bytes, map_bytes, snapshot_bytes (sent),
encoded_bytes (encoded for them; clients share snapshots) and uptime_seconds, or
endpoint and error for a server that did not answer.

Servers of other implementations do not answer.

Exits with 0 if a server is active, 1 if servers answer but none is active or all
refuse this client, and 3 if no server answers.`,
		Example: `  chp status
  chp status --server tcp://127.0.0.1:5556 --server tcp://127.0.0.1:5566
  chp status --json | jq .lag`,
		Args:              command.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
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
			err = replies.print(cmd.OutOrStdout(), n.stderr)
		}
		if err != nil {
			return err
		}
		return replies.outcome()
	})
	return cmd
}

// reply is what one server answered.
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
	return errors.Is(err, zmtp.ErrMechanism) || errors.Is(err, zmtp.ErrRefused)
}

// whyUnanswered describes why a server did not answer. It returns "" if it did.
func (n *connection) whyUnanswered(server string, err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, chp.ErrNoStatus):
		return "it is a server of another implementation, which does not report its status"
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

// outcome returns the error of the command: nil if a server is active.
func (all replies) outcome() error {
	if all.active() != nil {
		return nil
	}
	var why []string
	for _, r := range all {
		if r.why == "" {
			return fail(exitRefused, "no server is active")
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

func (all replies) printJSON(w io.Writer) error {
	out := json.NewEncoder(w)
	for _, r := range all {
		var line any = r.status
		if r.why != "" {
			line = struct {
				Endpoint string `json:"endpoint"`
				Error    string `json:"error"`
			}{r.server, r.why}
		}
		if err := out.Encode(line); err != nil {
			return err
		}
	}
	return nil
}

// print prints a table. If only some servers did not answer, it prints the reasons on
// stderr. If none did, outcome returns them.
func (all replies) print(w, stderr io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SERVER\tROLE\tSTATE\tEPOCH\tSEQUENCE\tKEYS\tCLIENTS\tPEER\tLAG\tMEMORY\tUPTIME")
	answered := false
	for _, r := range all {
		answered = answered || r.why == ""
	}
	for _, r := range all {
		if r.why != "" {
			fmt.Fprintf(table, "%s\t-\tno answer\t-\t-\t-\t-\t-\t-\t-\t-\n", r.server)
			if answered {
				fmt.Fprintf(stderr, "chp: no answer from %s: %s\n", r.server, r.why)
			}
			continue
		}
		st := r.status
		peer := st.Peer
		if peer == "" {
			peer = "-"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%d\t%d\t%d\t%s\t%d\t%s\t%v\n", r.server, st.Role, st.State, st.Epoch, st.Sequence,
			st.Keys, st.Clients, peer, st.Lag, memory(st.MemoryBytes), time.Duration(st.UptimeSeconds)*time.Second)
	}
	return table.Flush()
}

// memory formats a number of bytes with a unit.
func memory(bytes int64) string {
	for _, unit := range []struct {
		name string
		size int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if bytes >= unit.size {
			return strconv.FormatFloat(float64(bytes)/float64(unit.size), 'f', 1, 64) + unit.name
		}
	}
	return strconv.FormatInt(bytes, 10) + "B"
}
