package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"clustermap/chp"
	"clustermap/internal/command"
	"clustermap/internal/visible"

	"github.com/spf13/cobra"
)

func newClients() *cobra.Command {
	var n connection
	var asJSON, watch bool
	var interval time.Duration
	cmd := &cobra.Command{
		Use:   "clients",
		Short: "List the clients that are connected to the servers",
		Long: `Lists the clients of all servers (--server), a line for each, in the order in which
they connected:

  name      user ID or public key with which it was authenticated, or -
  address   from which it is connected
  lag       updates and heartbeats that wait for it in the server
  queue     memory that these take
  in/s      updates that it sends a second
  out/s     updates and heartbeats that it is sent a second
  since     how long it has been connected
  subtrees  keys that it gets, as prefixes; / is all

The rates are those of the time from one look to the next, --interval later; in/s is -
for a client of another implementation, or one that has sent none. With --watch it looks
again and again.

With --json there is an object for each client, on a line: server, name, id, remote,
endpoint, subtrees (eight at most; "" is all), more_subtrees (the number of the others),
lag, queue_bytes, sent and received (since it connected; received is -1 if not known),
sent_per_second and received_per_second (null if not known), and since.

Only an administrator may ask: see chp failover. Exits with 1 if a server refuses, and
with 3 if one does not answer; one of an earlier version than this command does not.`,
		Example: `  chp clients
  chp clients --watch
  chp clients --json --interval 0 | jq 'select(.queue_bytes > 1000000) .remote'`,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON objects, one per line")
	cmd.Flags().BoolVar(&watch, "watch", false, "look again after each --interval, until interrupted")
	cmd.Flags().DurationVar(&interval, "interval", time.Second, "time between two looks; 0 looks once, and knows no rates")
	n.register(cmd, 5*time.Second)
	cmd.RunE = command.Runs(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
		servers, err := n.servers()
		switch {
		case err != nil:
			return err
		case interval < 0 || watch && interval == 0:
			return fail(exitUsage, "--interval %v: must be positive", interval)
		}
		out := cmd.OutOrStdout()
		show := printClients
		if asJSON {
			show = printClientsJSON
		}
		last, err := n.lookAtClients(ctx, servers)
		for err == nil && interval > 0 {
			select {
			case <-time.After(interval):
			case <-ctx.Done():
				return ctx.Err()
			}
			var now clientsLook
			if now, err = n.lookAtClients(ctx, servers); err != nil {
				break
			}
			now.rate(last)
			if !watch {
				return show(out, now)
			}
			if terminal := command.Terminal(out); terminal != nil && !asJSON {
				_, _ = io.WriteString(terminal, "\x1b[H\x1b[2J") // to the top, and empty
			}
			last, err = now, show(out, now)
		}
		if err != nil {
			return err
		}
		return show(out, last)
	})
	return cmd
}

// listedClient is a client of a server. It is printed in JSON as it is.
type listedClient struct {
	Server string `json:"server"`
	chp.ClientInfo
	SentRate     *float64 `json:"sent_per_second"`
	ReceivedRate *float64 `json:"received_per_second"`
}

// clientsLook is the clients of all servers at one time.
type clientsLook struct {
	at  time.Time
	all []listedClient
}

// lookAtClients asks all servers, one after another.
func (n *connection) lookAtClients(ctx context.Context, servers []string) (look clientsLook, err error) {
	look.at = time.Now()
	for _, server := range servers {
		limited, cancel := context.WithTimeout(ctx, n.timeout)
		all, err := chp.ServerClients(limited, server, n.security)
		cancel()
		if err != nil {
			return look, n.noAnswer(ctx, server, err)
		}
		for _, c := range all {
			look.all = append(look.all, listedClient{Server: server, ClientInfo: c})
		}
	}
	return look, nil
}

// noAnswer returns the error of a command for one of a question to a server.
func (n *connection) noAnswer(ctx context.Context, server string, err error) error {
	var refusal *chp.AdminError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &refusal):
		return fail(exitRefused, "%s refuses: %s", server, refusal.Reason)
	case refuses(err):
		return fail(exitRefused, "the server %s %s", server, n.refusal(err))
	case errors.Is(err, context.DeadlineExceeded):
		return fail(exitNoServer, "no answer from %s within %v; a server of an earlier version does not answer this question", server, n.timeout)
	}
	return fail(exitNoServer, "no answer from %s: %s", server, n.whyUnanswered(server, err))
}

// rate sets the rates from an earlier look.
func (l *clientsLook) rate(before clientsLook) {
	type key struct {
		server, remote string
		since          int64
	}
	of := func(c *listedClient) key { return key{c.Server, c.Remote, c.Since.UnixNano()} }
	then := map[key]*listedClient{}
	for i := range before.all {
		then[of(&before.all[i])] = &before.all[i]
	}
	passed := l.at.Sub(before.at).Seconds()
	for i := range l.all {
		c := &l.all[i]
		was := then[of(c)]
		if was == nil {
			continue
		}
		c.SentRate = rateOf(float64(c.Sent)-float64(was.Sent), passed)
		if c.Received >= 0 && was.Received >= 0 {
			c.ReceivedRate = rateOf(float64(c.Received-was.Received), passed)
		}
	}
}

// rateOf returns a rate, or nil if a counter began anew.
func rateOf(n, seconds float64) *float64 {
	if n < 0 || seconds <= 0 {
		return nil
	}
	rate := n / seconds
	return &rate
}

func printClientsJSON(w io.Writer, look clientsLook) error {
	out := json.NewEncoder(w)
	for i := range look.all {
		if err := out.Encode(&look.all[i]); err != nil {
			return err
		}
	}
	return nil
}

func printClients(w io.Writer, look clientsLook) error {
	several := false
	for i := range look.all {
		several = several || look.all[i].Server != look.all[0].Server
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	head := "NAME\tADDRESS\tLAG\tQUEUE\tIN/S\tOUT/S\tSINCE\tSUBTREES\n"
	if several {
		head = "SERVER\t" + head
	}
	_, _ = io.WriteString(table, head) // Flush returns the error
	for i := range look.all {
		c := &look.all[i]
		cells := []string{
			c.Name, c.Remote, strconv.Itoa(c.Lag), memory(int64(c.QueueBytes)), rateText(c.ReceivedRate), rateText(c.SentRate),
			look.at.Sub(c.Since).Round(time.Second).String(), subtreesText(c.Subtrees, c.MoreSubtrees),
		}
		if several {
			cells = append([]string{c.Server}, cells...)
		}
		for i, cell := range cells {
			if cells[i] = strings.ReplaceAll(visible.String(cell), "\t", " "); cell == "" {
				cells[i] = "-"
			}
		}
		_, _ = io.WriteString(table, strings.Join(cells, "\t")+"\n")
	}
	return table.Flush()
}

func rateText(rate *float64) string {
	if rate == nil {
		return "-"
	}
	return strconv.FormatFloat(*rate, 'f', 0, 64)
}

func subtreesText(subtrees []string, more int) string {
	var all []string
	for _, s := range subtrees {
		if s == "" {
			s = "/"
		}
		all = append(all, s)
	}
	if more > 0 {
		all = append(all, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(all, " ")
}

func newKick() *cobra.Command {
	var n connection
	cmd := &cobra.Command{
		Use:   "kick CLIENT",
		Short: "Disconnect clients",
		Long: `Disconnects clients from all servers (--server): CLIENT is the name or the address of
chp clients, or the id of chp clients --json; a name can be that of several clients. They connect again by
themselves, unless the server refuses them then: take the key from its --curve-allow
first to keep one away. Nothing that they have sent is lost.

A client of another implementation does not notice that it has missed updates if only its
connection to the publisher ends: such clients ask for a snapshot only at their start.

Only an administrator may do so: see chp failover; the server logs who did. Prints the
number of clients. Exits with 1 if there is none or a server refuses, and with 3 if one
does not answer.`,
		Example: `  chp kick 10.0.0.7:51234
  chp kick alice`,
		Args: command.Args(1, 1),
	}
	n.register(cmd, 5*time.Second)
	cmd.RunE = command.Runs(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		servers, err := n.servers()
		if err != nil {
			return err
		}
		total := 0
		for _, server := range servers {
			limited, cancel := context.WithTimeout(ctx, n.timeout)
			clients, err := chp.Kick(limited, server, args[0], n.security)
			cancel()
			if err != nil {
				return n.noAnswer(ctx, server, err)
			}
			total += clients
		}
		if total == 0 {
			return fail(exitRefused, "no client %s is connected; chp clients lists them", operand(args[0]))
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s disconnected\n", command.Count(total, "client"))
		return err
	})
	return cmd
}
