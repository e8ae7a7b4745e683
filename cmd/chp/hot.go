package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"clustermap/chp"
	"clustermap/internal/command"
	"clustermap/internal/jsonline"
	"clustermap/internal/visible"

	"github.com/spf13/cobra"
)

func newHot() *cobra.Command {
	var n connection
	var asJSON, watch bool
	interval := 2 * time.Second
	most := command.Number(10)
	cmd := &cobra.Command{
		Use:   "hot",
		Short: "Print the keys that are updated most",
		Long: `Asks the active server of --server which keys are updated most, during --interval, and
prints them, the hottest first: updates a second, their share of all updates, bytes a
second, and the key. With --watch it goes on with the next interval.

The server counts only while somebody asks, at a bounded cost: it looks at a sample of
the updates, so the numbers are estimates, and keys with a small share are not found.
Updates and deletions count; reads are of the clients' own replicas.

With --json there is an object for each key, on a line: key (key_base64 if it is not
UTF-8), updates_per_second, share (0 to 1), bytes_per_second, and seconds, the interval.

Only an administrator may ask: see chp failover. Exits with 1 if no server is active or
it refuses, and with 3 if none answers.`,
		Example: `  chp hot
  chp hot --watch --interval 10s --most 20`,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON objects, one per line")
	cmd.Flags().BoolVar(&watch, "watch", false, "go on with the next --interval, until interrupted")
	cmd.Flags().DurationVar(&interval, "interval", interval, "time in which updates are counted, 10s at most")
	cmd.Flags().Var(&most, "most", "print this many keys, 100 at most")
	n.register(cmd, 5*time.Second)
	cmd.RunE = command.Runs(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
		servers, err := n.servers()
		switch {
		case err != nil:
			return err
		case interval <= 0 || interval > 10*time.Second:
			return fail(exitUsage, "--interval %v: must be above 0 and at most 10s", interval)
		case most < 1 || most > 100:
			return fail(exitUsage, "--most %d: must be 1 to 100", most)
		}
		server, err := n.activeServer(ctx, servers)
		if err != nil {
			return err
		}
		before, err := n.lookAtHot(ctx, server)
		for err == nil {
			select {
			case <-time.After(interval):
			case <-ctx.Done():
				return ctx.Err()
			}
			var now chp.HotKeys
			if now, err = n.lookAtHot(ctx, server); err != nil {
				break
			}
			hot := hottest(now.Since(before), int(most))
			before = now
			if asJSON {
				err = printHotJSON(cmd.OutOrStdout(), hot)
			} else {
				if terminal := command.Terminal(cmd.OutOrStdout()); terminal != nil && watch {
					_, _ = io.WriteString(terminal, "\x1b[H\x1b[2J") // to the top, and empty
				}
				err = printHot(cmd.OutOrStdout(), hot)
			}
			if !watch {
				return err
			}
		}
		return err
	})
	return cmd
}

// activeServer returns the active server, or a node of a cluster that serves.
func (n *connection) activeServer(ctx context.Context, servers []string) (string, error) {
	all := n.ask(ctx, servers)
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if r := all.serving(); r != nil {
		return r.server, nil
	}
	if err := all.outcome(); err != nil {
		return "", err
	}
	return "", fail(exitRefused, "no server is active; %s becomes active when a client asks for the map", all.successor().server)
}

// hotAsked is how many keys a server is asked for: more than are printed, because the difference of
// two answers has only those of both.
const hotAsked = 100

func (n *connection) lookAtHot(ctx context.Context, server string) (chp.HotKeys, error) {
	limited, cancel := context.WithTimeout(ctx, n.timeout)
	defer cancel()
	h, err := chp.ServerHot(limited, server, hotAsked, n.security)
	if err != nil {
		return h, n.noAnswer(ctx, server, err)
	}
	return h, nil
}

// hotLine is a hot key as it is printed.
type hotLine struct {
	key                   []byte
	updates, share, bytes float64 // a second; of all updates
	seconds               float64
}

// hottest returns the rates of the hottest keys of an interval.
func hottest(h chp.HotKeys, most int) (all []hotLine) {
	seconds := h.Length.Seconds()
	for _, k := range h.Keys[:min(most, len(h.Keys))] {
		updates := float64(k.Updates - k.Unsure)
		if seconds > 0 && h.Updates > 0 {
			all = append(all, hotLine{k.Key, updates / seconds, min(updates/float64(h.Updates), 1), float64(k.Bytes) / seconds, seconds})
		}
	}
	return all
}

func printHot(w io.Writer, all []hotLine) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = io.WriteString(table, "UPDATES/S\tSHARE\tBYTES/S\tKEY\n") // Flush returns the error
	for _, h := range all {
		fmt.Fprintf(table, "%.1f\t%.1f%%\t%s\t%s\n", h.updates, 100*h.share, memory(int64(h.bytes)), visible.Append(nil, h.key, ""))
	}
	return table.Flush()
}

func printHotJSON(w io.Writer, all []hotLine) error {
	var out []byte
	for _, h := range all {
		out = jsonline.AppendField(append(out, '{'), "key", h.key)
		rest, err := json.Marshal(struct {
			Updates float64 `json:"updates_per_second"`
			Share   float64 `json:"share"`
			Bytes   float64 `json:"bytes_per_second"`
			Seconds float64 `json:"seconds"`
		}{h.updates, h.share, h.bytes, h.seconds})
		if err != nil {
			return err
		}
		out = append(append(append(out, ','), rest[1:]...), '\n')
	}
	_, err := w.Write(out)
	return err
}
