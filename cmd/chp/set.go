package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"clustermap/chp"
	"clustermap/internal/command"

	"github.com/spf13/cobra"
)

// maxTTL is the maximum time to live that servers of package chp accept.
const maxTTL = 10 * 365 * 24 * time.Hour

func newSet() *cobra.Command {
	var n connection
	var ttl time.Duration
	var asJSON bool
	var lease string
	var only conditions
	var properties []string
	cmd := &cobra.Command{
		Use:   "set KEY VALUE",
		Short: "Set a key, and print the sequence number of the update",
		Long: `Sets KEY to VALUE, waits until the server has published the update, and prints its
sequence number. If VALUE is -, the value is read from standard input, up to its
end. An empty value would delete the key (RFC 12): use chp del for that.

Properties go with the value to all clients: chp get --json, ls -l, watch --json and
dump show those of a key's last update. The name has no equals sign, and does not begin
with x-, which is the protocol's; neither name nor value has a newline.

With --if-absent, --if-present, --if-seq or --if-value it sets KEY only if that holds when
the server orders the update; so of two that change the same value none overwrites the
other unseen. Otherwise nothing changes, the exit code is 1, and the sequence number of the
key's last update is on standard error. A server that judges no conditions is sent nothing.

With --lease the key is attached to a lease, and is deleted when that ends; see chp lease.
Another update of the key without --lease takes it from the lease. If the lease has ended,
nothing changes, and the exit code is 1. With --ttl too, the key ends at the first of both.

With --json it prints an object with key (key_base64 if it is not UTF-8) and seq, a
string. In case of a conflict it has conflict, true, and seq is that of the key's last
update, or 0 if the key does not exist; value is the key's, if it has at most 64 KiB.`,
		Example: `  chp set /lamp/1 on
  chp set /session/42 open --ttl 30s
  chp set /flag/dark on --property by=alice --property ticket=OPS-7
  chp set /picture - < picture.png
  chp set /leader node1 --ttl 30s --if-absent
  chp set /services/web/1 10.0.0.7:80 --lease "$(chp lease grant --ttl 30s)"
  chp set /config new --if-seq "$(chp get --json /config | jq -r .seq)"`,
		Args: command.Args(2, 2),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	cmd.Flags().DurationVar(&ttl, "ttl", 0, "time after which the key expires, at most 87600h (ten years); 0 means never")
	cmd.Flags().StringArrayVar(&properties, "property", nil, "a property of the update, as `NAME=VALUE`; repeat it for more")
	cmd.Flags().StringVar(&lease, "lease", "", "the lease, by its `ID`, with which the key ends; see chp lease")
	only.register(cmd, true)
	n.register(cmd, 5*time.Second)
	n.registerModel(cmd)
	n.completeKeys(cmd, 1)
	if err := cmd.RegisterFlagCompletionFunc("lease", func(cmd *cobra.Command, _ []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return n.leasesFor(cmd.Context(), word), cobra.ShellCompDirectiveNoFileComp
	}); err != nil {
		panic(err) // the flag does not exist
	}
	cmd.RunE = command.Runs(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		options := []chp.SetOption{chp.WithTTL(ttl)}
		for _, p := range properties {
			name, value, ok := strings.Cut(p, "=")
			if !ok || name == "" || name == "ttl" || strings.HasPrefix(name, "x-") || strings.Contains(p, "\n") {
				return fail(exitUsage, "--property %q: must be NAME=VALUE, without a newline, and the name neither ttl (use --ttl) nor beginning with x-", p)
			}
			options = append(options, chp.WithProperty(name, value))
		}
		if ttl < 0 {
			return fail(exitUsage, "--ttl %v: must be positive, or 0 for no expiry", ttl)
		}
		if ttl > maxTTL {
			return fail(exitUsage, "--ttl %v: the maximum is ten years, %v", ttl, maxTTL)
		}
		if lease != "" {
			if err := checkLeases(lease); err != nil {
				return err
			}
			options = append(options, chp.WithLeaseID(lease))
		}
		if _, err := n.servers(); err != nil { // before it waits for the input
			return err
		}
		key, value := args[0], []byte(args[1])
		if args[1] == "-" {
			var err error
			value, err = io.ReadAll(command.Interruptible(ctx, cmd.InOrStdin()))
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				return fail(exitRefused, "cannot read the value from standard input: %w", err)
			}
		}
		if len(value) == 0 {
			code := exitUsage
			if args[1] == "-" {
				code = exitRefused // the command line is valid
			}
			return fail(code, "the value is empty, which would delete %q; to delete it use: chp del %s", key, operand(key))
		}
		// --timeout limits both together.
		limited, cancel := context.WithTimeout(ctx, n.timeout)
		defer cancel()
		c, err := n.openKeys(ctx, n.open, key) // after its time-out, which is the same, it asks why
		if err != nil {
			return err
		}
		defer c.Close()
		sequence, conditions := int64(0), only.options()
		if len(conditions) == 0 {
			sequence, err = c.SetSync(limited, key, value, options...)
		} else {
			for _, o := range options {
				conditions = append(conditions, o)
			}
			sequence, err = c.SetIf(limited, key, value, append(conditions, chp.WithConflictValue())...)
		}
		switch {
		case errors.Is(err, chp.ErrLeaseEnded):
			return fail(exitRefused, "%s has no lease %s; nothing was changed", c.Server(), lease)
		case errors.Is(err, chp.ErrNoLeases):
			return c.ofLease(err)
		case err != nil:
			return c.judged(cmd, err, asJSON)
		}
		return printSequence(cmd.OutOrStdout(), key, sequence, asJSON)
	})
	return cmd
}

// operand is command.ShellWord for a key as an argument of a command, which would take it
// for a flag if it began with a hyphen.
func operand(key string) string {
	if strings.HasPrefix(key, "-") {
		return "-- " + command.ShellWord(key)
	}
	return command.ShellWord(key)
}
