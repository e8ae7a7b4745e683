package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
  EPOCH     the number of the active server's reign; 0 if alone
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

Exits with 0 if a server is active, 1 if servers answer but none is active, and 3 if
no server answers.`,
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
	why    string // it did not answer, "" if it did
}

type replies []reply

// ask asks servers side by side how they are.
func (n *connection) ask(ctx context.Context, servers []string) replies {
	ctx, cancel := context.WithTimeout(ctx, n.timeout)
	defer cancel()
	all := make(replies, len(servers))
	var asking sync.WaitGroup
	for i, server := range servers {
		asking.Go(func() {
			st, err := chp.ServerStatus(ctx, server, n.security)
			all[i] = reply{server, st, whyUnanswered(server, err)}
		})
	}
	asking.Wait()
	return all
}

// whyUnanswered says in a few words why a server did not answer, "" if it did.
func whyUnanswered(server string, err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, chp.ErrNoStatus):
		return "it is a server of another make, which does not answer"
	case errors.Is(err, zmtp.ErrMechanism):
		return "its security is another one: compare --curve-key and --curve-server-key with how it was started"
	case errors.Is(err, zmtp.ErrRefused):
		return "it does not let us in"
	case noHost(err):
		return "no such host"
	}
	return reason(server, err)
}

// active returns the active server: of several that of the newest reign. It is nil
// if none is.
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

// outcome is the error that the command ends with: nil if a server is active.
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

// print prints a table. Why a server did not answer is said on stderr, if others
// did: otherwise outcome says it.
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

// memory prints bytes for people.
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
