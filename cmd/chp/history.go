package main

import (
	"context"
	"errors"
	"io"
	"strconv"
	"time"

	"clustermap/chp"
	"clustermap/internal/command"
	"clustermap/internal/kvjson"
	"clustermap/internal/kvmsg"

	"github.com/spf13/cobra"
)

func newHistory() *cobra.Command {
	var n connection
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "history KEY",
		Short: "Print the last versions of a key",
		Long: `Prints the versions of KEY that the server keeps, oldest first, one per line: sequence
number, time, who sent it, what it was (set, deleted, expired), and the value. A server
keeps them with chp serve --history N, and who with --stamp; what is not known is -.
The last line is what the key is now. Exits with 1 if there is no version.

With --json each version is an object with key, seq (a string), cause (set, deleted or
expired), time, by, value, properties, and ttl, the time to live that it gave, in
seconds; those that are not known or do not exist are left out. Bytes that are not UTF-8
are as in chp get --json.`,
		Example: `  chp history /flag/dark
  chp history /flag/dark --json | jq -r 'select(.by == "alice").value'
  chp revert /flag/dark --to 1764288000000000042`,
		Args: command.Args(1, 1),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON objects, one per line")
	n.register(cmd, 5*time.Second)
	n.registerModel(cmd)
	n.completeKeys(cmd, 1)
	cmd.RunE = command.Runs(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		c, all, err := n.history(ctx, args[0], n.read)
		if err != nil {
			return err
		}
		defer c.Close()
		var out []byte
		for _, v := range all {
			if asJSON {
				out = kvjson.AppendVersion(out, args[0], v)
			} else {
				out = appendVersion(out, v)
			}
		}
		_, err = cmd.OutOrStdout().Write(out)
		return err
	})
	return cmd
}

func newRevert() *cobra.Command {
	var n connection
	var to sequence
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "revert KEY --to SEQ",
		Short: "Set a key to what it was, and print the sequence number",
		Long: `Sets KEY again to the value and the properties that it had at the sequence number SEQ,
of any version that chp history shows or between two of them, and deletes it if there
was none. A time to live begins anew. It is an update like any other, and the server
keeps the versions in between. SEQ must not be older than the oldest version. If the key
is changed at the same time, nothing is reverted, and the exit code is 1.

With --json it prints an object with key (key_base64 if it is not UTF-8) and seq, a
string.`,
		Example: `  chp revert /flag/dark --to 1764288000000000042`,
		Args:    command.Args(1, 1),
	}
	cmd.Flags().Var(&to, "to", "`sequence` number at which the key was as it is to be")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	n.register(cmd, 5*time.Second)
	n.registerModel(cmd)
	n.completeKeys(cmd, 1)
	cmd.RunE = command.Runs(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		if !cmd.Flags().Changed("to") {
			return fail(exitUsage, "--to is missing: chp history %s shows the sequence numbers", operand(args[0]))
		}
		limited, cancel := context.WithTimeout(ctx, n.timeout)
		defer cancel()
		c, all, err := n.history(ctx, args[0], n.open)
		if err != nil {
			return err
		}
		defer c.Close()
		v, err := versionAt(c, args[0], all, int64(to))
		if err != nil {
			return err
		}
		done, err := revert(limited, c.Client, args[0], all[len(all)-1], v)
		var conflict *chp.ConflictError
		switch {
		case errors.As(err, &conflict):
			return fail(exitRefused, "%q was changed meanwhile, and now has sequence %d: nothing is reverted", args[0], conflict.Sequence)
		case err != nil:
			return c.confirm(err)
		}
		return printSequence(cmd.OutOrStdout(), args[0], done, asJSON)
	})
	return cmd
}

// revert sets a key to a version again, if nobody has changed it since it was another one.
func revert(ctx context.Context, c *chp.Client, key string, now, to chp.Version) (int64, error) {
	if now.Op == chp.OpDelete {
		now.Sequence = 0
	}
	if to.Op == chp.OpDelete {
		return c.DeleteIf(ctx, key, chp.IfSequence(now.Sequence))
	}
	return c.SetIf(ctx, key, to.Value, append(leased(now.Properties), chp.IfSequence(now.Sequence), chp.WithProperties(to.Properties), chp.WithTTL(kvmsg.TTLOf(to.Properties)))...)
}

// history opens a client, and returns the versions of a key, of which there is one.
func (n *connection) history(ctx context.Context, key string, open func(context.Context, chp.ClientOptions) (*client, error)) (*client, []chp.Version, error) {
	limited, cancel := context.WithTimeout(ctx, n.timeout)
	defer cancel()
	c, err := n.openKeys(ctx, open, key)
	if err != nil {
		return nil, nil, err
	}
	all, err := c.History(limited, key)
	switch {
	case errors.Is(err, chp.ErrNoHistory):
		err = fail(exitRefused, "%s keeps no history; chp serve --history N does", c.Server())
	case err != nil:
		err = refused(err)
	case len(all) == 0:
		err = fail(exitRefused, "%q has no version in the history of %s", key, c.Server())
	}
	if err != nil {
		c.Close()
		return nil, nil, err
	}
	return c, all, nil
}

// versionAt returns the version that a key had at a sequence.
func versionAt(c *client, key string, all []chp.Version, sequence int64) (v chp.Version, err error) {
	if sequence < all[0].Sequence {
		return v, fail(exitRefused, "what %q was at %d is not known: the oldest version that %s keeps is of %d", key, sequence, c.Server(), all[0].Sequence)
	}
	for _, next := range all {
		if next.Sequence <= sequence {
			v = next
		}
	}
	return v, nil
}

// appendVersion appends a version as a line of text.
func appendVersion(dst []byte, v chp.Version) []byte {
	dst = append(strconv.AppendInt(dst, v.Sequence, 10), ' ')
	if v.Time.IsZero() {
		dst = append(dst, '-')
	} else {
		dst = v.Time.UTC().AppendFormat(dst, time.RFC3339Nano)
	}
	by := v.By
	if by == "" {
		by = "-"
	}
	dst = command.AppendPlain(append(dst, ' '), []byte(by), false)
	dst = append(append(dst, ' '), v.Cause.String()...)
	if v.Op == chp.OpSet {
		dst = command.AppendPlain(append(dst, ' '), v.Value, true)
	}
	return append(dst, '\n')
}

// sequence is a flag for a sequence number.
type sequence int64

func (s *sequence) String() string { return strconv.FormatInt(int64(*s), 10) }
func (s *sequence) Type() string   { return "sequence" }

// Set parses the number.
func (s *sequence) Set(text string) error {
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return errors.New("must be a sequence number, as chp history prints it")
	}
	*s = sequence(n)
	return nil
}

// getAt prints the value that a key had at a sequence.
func (n *connection) getAt(ctx context.Context, key string, at int64, out io.Writer, format func(chp.Version) []byte) error {
	c, all, err := n.history(ctx, key, n.read)
	if err != nil {
		return err
	}
	defer c.Close()
	v, err := versionAt(c, key, all, at)
	if err != nil {
		return err
	}
	if v.Op != chp.OpSet {
		return fail(exitRefused, "%q was not in the map of %s at %d: it was %v at %d", key, c.Server(), at, v.Cause, v.Sequence)
	}
	_, err = out.Write(format(v))
	return err
}
