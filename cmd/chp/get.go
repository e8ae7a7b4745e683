package main

import (
	"context"
	"time"

	"clustermap/chp"
	"clustermap/internal/command"
	"clustermap/internal/kvjson"

	"github.com/spf13/cobra"
)

func newGet() *cobra.Command {
	var n connection
	var raw, prefix, asJSON bool
	var at sequence
	cmd := &cobra.Command{
		Use:   "get KEY",
		Short: "Print the value of a key",
		Long: `Prints the value of KEY and a newline; with --raw only the bytes of the value.
Exits with 1 if there is no such key. On a terminal control characters in the value
are shown as \u001b, for example, unless --raw is given.

With --prefix it prints all keys that begin with KEY, sorted, each with its value on
a line; special characters are quoted. Exits with 1 if there are none. As for chp ls,
any prefix will do; chp watch and chp dump take a key, or a subtree, which ends with a
slash.

With --seq it prints what KEY was at a sequence number, of any version that chp history
shows or between two of them, and exits with 1 if it was not in the map then. The server
needs --history.

With --json each key is an object on a line, with key, value, seq (the sequence
number of its last update, a string), properties, an object with those of that update
if there are any, and ttl, the remaining time to live in seconds, if the key expires.
A server with --stamp adds time, when it accepted that update, and by, who sent it;
bytes that are not UTF-8 are in key_base64 and value_base64. Properties that are not
UTF-8, or of which a name occurs twice, are in properties_base64, as lines name=value.`,
		Example: `  chp get /lamp/1
  chp get --prefix /lamp/
  chp get --json /lamp/1 | jq -r .seq
  chp get --raw /picture > picture.png
  chp get /lamp/1 --seq 1764288000000000042`,
		Args: command.Args(1, 1),
	}
	cmd.Flags().BoolVar(&raw, "raw", false, "print no newline after the value")
	cmd.Flags().BoolVar(&prefix, "prefix", false, "print all keys that begin with KEY, and their values")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON objects, one per line")
	cmd.Flags().Var(&at, "seq", "print what KEY was at a `sequence` number")
	command.Exclude(cmd, "raw", "json")
	command.Exclude(cmd, "seq", "prefix")
	command.Exclude(cmd, "raw", "prefix")
	n.register(cmd, 5*time.Second)
	n.registerModel(cmd)
	n.completeKeys(cmd, 1)
	cmd.RunE = command.Runs(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		if prefix {
			return n.getPrefix(ctx, cmd, args[0], asJSON)
		}
		key := args[0]
		if cmd.Flags().Changed("seq") {
			switch {
			case asJSON:
				return n.getAt(ctx, key, int64(at), cmd.OutOrStdout(), func(v chp.Version) []byte { return kvjson.AppendVersion(nil, key, v) })
			case raw:
				return n.getAt(ctx, key, int64(at), command.Values(cmd, raw), func(v chp.Version) []byte { return v.Value })
			}
			return n.getAt(ctx, key, int64(at), command.Values(cmd, raw), func(v chp.Version) []byte { return append(v.Value, '\n') })
		}
		c, err := n.openKeys(ctx, n.read, key)
		if err != nil {
			return err
		}
		defer c.Close()
		e, presence := c.Lookup(key)
		if presence != chp.PresenceFound {
			return fail(exitRefused, "%q is not in the map of %s", key, c.Server())
		}
		line, out := e.Value, command.Values(cmd, raw)
		switch {
		case asJSON:
			line, out = kvjson.AppendEntry(nil, e), cmd.OutOrStdout()
		case !raw:
			line = append(line, '\n')
		}
		_, err = out.Write(line)
		return err
	})
	return cmd
}

// getPrefix prints all keys with a prefix, and their values.
func (n *connection) getPrefix(ctx context.Context, cmd *cobra.Command, prefix string, asJSON bool) error {
	c, err := n.openPrefix(ctx, prefix)
	if err != nil {
		return err
	}
	defer c.Close()
	format := appendEntry
	if asJSON {
		format = kvjson.AppendEntry
	}
	lines, err := printEntries(ctx, cmd.OutOrStdout(), "", c.Sorted(prefix), format)
	if err == nil && lines == 0 {
		return noKeyBegins(c, prefix)
	}
	return err
}
