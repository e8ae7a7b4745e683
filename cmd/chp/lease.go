package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"clustermap/chp"
	"clustermap/internal/command"
	"clustermap/internal/jsonline"
	"clustermap/internal/kvjson"
	"clustermap/internal/kvmsg"

	"github.com/spf13/cobra"
)

// minLease is the minimum time to live of a lease.
const minLease = 100 * time.Millisecond

func newLease() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lease",
		Short: "Grant, list, renew and revoke leases, with which keys end",
		Long: `A lease is a time after which all keys that are attached to it end at once, unless it is
renewed: chp set --lease ID attaches a key. A renewal publishes nothing, however many keys
there are. An update of a key without --lease takes it from its lease.

After a failover, a restart of a server with --data, or a standstill of the server, each
lease has all of its time again, and none ends before chp serve --expiry-grace is over.

The commands exit with 1 if there is no such lease, or the server knows no leases: then it
is of another implementation, of an earlier version, or of a Clone model below 6.`,
		Example: `  lease=$(chp lease grant --ttl 30s)
  chp set /services/web/1 10.0.0.7:80 --lease $lease
  chp lease renew $lease
  chp lease list
  chp lease revoke $lease`,
		Args: cobra.ArbitraryArgs,
	}
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return fail(exitUsage, "name a command: grant, list, renew, revoke, ttl")
		}
		return fail(exitUsage, "there is no command %q; name one of grant, list, renew, revoke, ttl", args[0])
	}
	cmd.AddCommand(newLeaseGrant(), newLeaseList(), newLeaseRenew(), newLeaseRevoke(), newLeaseTTL())
	return cmd
}

func newLeaseGrant() *cobra.Command {
	var n connection
	var ttl time.Duration
	var keep, asJSON bool
	cmd := &cobra.Command{
		Use:   "grant --ttl DURATION",
		Short: "Grant a lease, and print its ID",
		Long: `Grants a lease for the time of --ttl, and prints its ID: 32 hexadecimal digits. It is not
renewed, except by chp lease renew.

With --keep it prints the ID, and renews the lease until it is interrupted; then it revokes
the lease, which deletes its keys, and exits with 0. If it is killed, the keys end by
themselves. If the lease ends, because the server was away for longer than --ttl or somebody
has revoked it, the exit code is 1.

With --json it prints an object with id, and ttl in seconds.`,
		Example: `  chp lease grant --ttl 30s
  chp lease grant --ttl 30s --keep`,
		Args: command.Args(0, 0),
	}
	cmd.Flags().DurationVar(&ttl, "ttl", 0, "time after which the lease ends unless it is renewed, from 100ms to 87600h (ten years)")
	cmd.Flags().BoolVar(&keep, "keep", false, "renew the lease until the command is interrupted, and revoke it then")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	n.registerLease(cmd, 5*time.Second)
	cmd.RunE = command.Runs(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		switch {
		case !cmd.Flags().Changed("ttl"):
			return fail(exitUsage, "--ttl is missing, such as --ttl 30s")
		case ttl < minLease || ttl > maxTTL:
			return fail(exitUsage, "--ttl %v: must be from %v to ten years, %v", ttl, minLease, maxTTL)
		}
		if keep {
			n.news = newsChannel()
		}
		c, limited, stop, err := n.openLease(ctx, false)
		if err != nil {
			return err
		}
		defer stop()
		l, err := c.Grant(limited, ttl)
		if err != nil {
			return c.ofLease(err)
		}
		if keep {
			defer n.tell(cmd)()
		} else {
			_ = l.Close() // it is not renewed
		}
		line := fmt.Appendln(nil, l.ID())
		if asJSON {
			line = append(kvjson.AppendSeconds(appendLeaseID(nil, l.ID()), "ttl", ttl), '}', '\n')
		}
		if _, err := cmd.OutOrStdout().Write(line); err != nil || !keep {
			return err
		}
		select {
		case <-ctx.Done():
		case <-l.Done():
			return fail(exitRefused, "the lease %s has ended", l.ID())
		}
		leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), n.timeout)
		defer cancel()
		return c.ofLease(l.Revoke(leaving))
	})
	return cmd
}

func newLeaseList() *cobra.Command {
	var n connection
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List leases",
		Long: `Prints the leases of the map, sorted, each on a line with
  ID    the ID of the lease
  TTL   the time to live that each renewal gives it
  LEFT  the time that it has left
  KEYS  the number of keys that are attached to it
It copies the whole map, to count the keys.

With --json each line is an object with id, ttl and left in seconds, and keys, a number.`,
		Example: `  chp lease list
  chp lease list --json | jq -r 'select(.keys == 0).id'`,
		Args: command.Args(0, 0),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON objects, one per line")
	n.registerLease(cmd, 30*time.Second)
	cmd.RunE = command.Runs(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		c, limited, stop, err := n.openLease(ctx, true)
		if err != nil {
			return err
		}
		defer stop()
		if _, err := c.LeaseLeft(limited, noLease); err != nil { // it may know no leases
			return c.ofLease(err)
		}
		left, err := c.leasesLeft(limited)
		if err != nil {
			return c.ofLease(err)
		}
		keys := map[string]int64{}
		for e := range c.All() {
			if id, ok := leaseOf(e); ok {
				keys[id]++
			}
		}
		const columns = "%-32v %10v %10v %10v\n"
		format := func(dst []byte, e chp.Entry) []byte {
			id, ttl := strings.TrimPrefix(string(e.Key), kvmsg.LeasePrefix), kvmsg.LeaseTime(e.Value)
			if left[id] == 0 { // it has ended
				return dst
			}
			if !asJSON {
				return fmt.Appendf(dst, columns, id, ttl, rounded(left[id]), keys[id])
			}
			dst = kvjson.AppendSeconds(kvjson.AppendSeconds(appendLeaseID(dst, id), "ttl", ttl), "left", left[id])
			return append(jsonline.AppendNumber(append(dst, ','), "keys", keys[id]), '}', '\n')
		}
		header := ""
		if !asJSON {
			header = fmt.Sprintf(columns, "ID", "TTL", "LEFT", "KEYS")
		}
		_, err = printEntries(ctx, cmd.OutOrStdout(), header, c.Sorted(kvmsg.LeasePrefix), format)
		return err
	})
	return cmd
}

func newLeaseRenew() *cobra.Command {
	return newLeaseCommand("renew", "Renew leases once", `Gives each lease all of its time again, and prints that time, a line for each ID. It exits
with 1 if there is no such lease, and has renewed the others.`,
		func(ctx context.Context, cmd *cobra.Command, c *client, id string) (known bool, err error) {
			ttl, err := c.RenewLease(ctx, id)
			if err == nil && ttl > 0 {
				_, err = fmt.Fprintln(cmd.OutOrStdout(), ttl)
			}
			return ttl > 0, err
		})
}

func newLeaseRevoke() *cobra.Command {
	return newLeaseCommand("revoke", "End leases, and delete their keys", `Ends each lease, and deletes its keys; it returns when that is done. It exits with 1 if there
is no such lease, and has ended the others.`,
		func(ctx context.Context, _ *cobra.Command, c *client, id string) (known bool, err error) {
			left, err := c.LeaseLeft(ctx, id)
			if err != nil || left == 0 {
				return false, err
			}
			return true, c.RevokeLease(ctx, id)
		})
}

// newLeaseCommand returns a command that does something with each of several leases.
func newLeaseCommand(name, short, long string, do func(context.Context, *cobra.Command, *client, string) (known bool, err error)) *cobra.Command {
	var n connection
	cmd := &cobra.Command{
		Use:     name + " ID...",
		Short:   short,
		Long:    long,
		Example: "  chp lease " + name + " 5f2d0c1b9a8e7f60112233445566778f",
		Args:    command.Args(1, math.MaxInt),
	}
	n.registerLease(cmd, 5*time.Second)
	n.completeLeases(cmd, -1)
	cmd.RunE = command.Runs(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		if err := checkLeases(args...); err != nil {
			return err
		}
		c, limited, stop, err := n.openLease(ctx, false)
		if err != nil {
			return err
		}
		defer stop()
		var unknown []string
		for _, id := range args {
			known, err := do(limited, cmd, c, id)
			if err != nil {
				return c.ofLease(err)
			}
			if !known {
				unknown = append(unknown, id)
			}
		}
		return c.unknownLease(unknown...)
	})
	return cmd
}

func newLeaseTTL() *cobra.Command {
	var n connection
	var withKeys, asJSON bool
	cmd := &cobra.Command{
		Use:   "ttl ID",
		Short: "Print the time that a lease has left",
		Long: `Prints the time that a lease has left; with --keys also the keys that are attached to it,
sorted, each on a line. For those, and for --json, it copies the whole map.

With --json it prints an object with id, ttl, the time to live that each renewal gives, and
left, both in seconds; and with --keys an array of objects, each with key (key_base64 if it
is not UTF-8).`,
		Example: `  chp lease ttl 5f2d0c1b9a8e7f60112233445566778f --keys`,
		Args:    command.Args(1, 1),
	}
	cmd.Flags().BoolVar(&withKeys, "keys", false, "print the keys, too")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	n.registerLease(cmd, 30*time.Second)
	n.completeLeases(cmd, 1)
	cmd.RunE = command.Runs(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		id := args[0]
		if err := checkLeases(id); err != nil {
			return err
		}
		c, limited, stop, err := n.openLease(ctx, withKeys || asJSON)
		if err != nil {
			return err
		}
		defer stop()
		left, err := c.LeaseLeft(limited, id)
		if err != nil {
			return c.ofLease(err)
		}
		if left == 0 {
			return c.unknownLease(id)
		}
		var out []byte
		if asJSON {
			lease, presence := c.Lookup(kvmsg.LeasePrefix + id)
			if presence != chp.PresenceFound {
				return c.unknownLease(id)
			}
			out = kvjson.AppendSeconds(kvjson.AppendSeconds(appendLeaseID(out, id), "ttl", kvmsg.LeaseTime(lease.Value)), "left", left)
		} else {
			out = fmt.Appendln(out, rounded(left))
		}
		separator := `,"keys":[`
		for e := range c.Sorted("") {
			if !withKeys {
				break
			}
			if of, ok := leaseOf(e); !ok || of != id {
				continue
			}
			if !asJSON {
				out = appendKey(out, e)
				continue
			}
			out = append(jsonline.AppendField(append(append(out, separator...), '{'), "key", e.Key), '}')
			separator = ","
		}
		switch {
		case asJSON && withKeys && separator != ",": // it has none
			out = append(out, `,"keys":[]`...)
		case asJSON && withKeys:
			out = append(out, ']')
		}
		if asJSON {
			out = append(out, '}', '\n')
		}
		_, err = cmd.OutOrStdout().Write(out)
		return err
	})
	return cmd
}

// noLease is the identity of a lease that nobody has: such are random.
var noLease = strings.Repeat("0", 32)

// registerLease adds the flags of a command for leases to cmd.
func (n *connection) registerLease(cmd *cobra.Command, timeout time.Duration) {
	n.register(cmd, timeout)
	n.registerModel(cmd)
}

// openLease opens a client that holds the whole map, or nothing. The
// context is for the questions to the server: --timeout limits all together.
func (n *connection) openLease(ctx context.Context, whole bool) (c *client, limited context.Context, stop func(), err error) {
	limited, cancel := context.WithTimeout(ctx, n.timeout)
	if whole { // after its time-out, which is the same, it asks why
		c, err = n.read(ctx, chp.ClientOptions{})
	} else {
		c, err = n.openNothing(ctx, n.read)
	}
	if err != nil {
		cancel()
		return nil, nil, nil, err
	}
	return c, limited, func() { cancel(); c.Close() }, nil
}

// ofLease converts an error about leases to one with an exit code.
func (c *client) ofLease(err error) error {
	switch {
	case errors.Is(err, chp.ErrNoLeases):
		return fail(exitRefused, "nothing was sent: %s knows no leases; it is of another implementation, of an earlier version, or of a Clone model below 6", c.Server())
	case errors.Is(err, context.DeadlineExceeded):
		if idle := (*chp.NotActiveError)(nil); errors.As(err, &idle) {
			if why := firstReason(idle.Servers); why != "" {
				return fail(exitNoServer, "the server did not answer within %v: %s", c.connection.timeout, why)
			}
		}
		return fail(exitNoServer, "the server did not answer within %v", c.connection.timeout)
	}
	return refused(err)
}

// unknownLease returns the failure for leases that do not exist, if there are any.
func (c *client) unknownLease(ids ...string) error {
	if len(ids) == 0 {
		return nil
	}
	return fail(exitRefused, "%s has no lease %s", c.Server(), strings.Join(ids, ", "))
}

// checkLeases returns an error unless all are identities of leases.
func checkLeases(ids ...string) error {
	for _, id := range ids {
		if _, ok := kvmsg.ParseLeaseID([]byte(id)); !ok {
			return fail(exitUsage, "%.40q is not the ID of a lease, which has 32 hexadecimal digits in lower case", id)
		}
	}
	return nil
}

// askers is the number of leases about which a command asks at the same time.
const askers = 64

// leasesLeft returns the time that each lease of the replica has left, as the server knows it: a replica
// does not see renewals, nor for how long the server ends none.
func (c *client) leasesLeft(ctx context.Context) (map[string]time.Duration, error) {
	ids := make(chan string)
	var mu sync.Mutex
	all := map[string]time.Duration{}
	var first error
	var asking sync.WaitGroup
	for range askers {
		asking.Go(func() {
			for id := range ids {
				left, err := c.LeaseLeft(ctx, id)
				mu.Lock()
				all[id] = left
				if first == nil {
					first = err
				}
				mu.Unlock()
			}
		})
	}
	for e := range c.Sorted(kvmsg.LeasePrefix) {
		ids <- strings.TrimPrefix(string(e.Key), kvmsg.LeasePrefix)
	}
	close(ids)
	asking.Wait()
	return all, first
}

// leased returns the options of an update that leaves a key with properties attached to its lease.
func leased(p chp.Properties) []chp.IfOption {
	if id, ok := p.Get(kvmsg.PropertyLease); ok {
		return []chp.IfOption{chp.WithLeaseID(string(id))}
	}
	return nil
}

// leaseOf returns the lease to which a key is attached. ok is false if it is none.
func leaseOf(e chp.Entry) (id string, ok bool) {
	value, ok := e.Properties.Get(kvmsg.PropertyLease)
	return string(value), ok
}

// appendLeaseID begins an object.
func appendLeaseID(dst []byte, id string) []byte {
	return jsonline.AppendField(append(dst, '{'), "id", []byte(id))
}

// rounded returns a time that is left for a line of text: in seconds, as ls -l prints it, unless it is short.
func rounded(left time.Duration) time.Duration {
	if left < 10*time.Second {
		return max(left.Round(time.Millisecond), time.Millisecond)
	}
	return left.Round(time.Second)
}
