package main

import (
	"context"
	"iter"
	"strings"
	"time"

	"clustermap/chp"
	"clustermap/internal/command"
	"clustermap/internal/kvjson"

	"github.com/spf13/cobra"
)

func newDump() *cobra.Command {
	var n connection
	cmd := &cobra.Command{
		Use:   "dump [SUBTREE]",
		Short: "Print the map as JSON lines, sorted by key",
		Long: `Prints a consistent snapshot of SUBTREE, or of the whole map: one JSON object per
line, sorted by key, with key and value; bytes that are not UTF-8 are in key_base64
and value_base64. If the key expires, ttl is its remaining time to live in seconds. Leases are not
in a dump: keys that were attached to one stay when they are loaded.
If its last update had other properties, they are in properties, an object of
strings, or in properties_base64, as lines name=value, if they are not UTF-8 or a name
occurs twice. chp load reads the output.

A SUBTREE begins and ends with a slash, such as /lamp/. Without the final slash it
is a single key, and not a prefix as for chp ls, get --prefix and del --prefix; the
exit code is 1 if there is no such key.`,
		Example: `  chp dump > map.jsonl
  chp dump /lamp/ | jq .value`,
		Args: command.Args(0, 1),
	}
	n.register(cmd, 30*time.Second)
	n.registerModel(cmd)
	n.completeKeys(cmd, 1)
	cmd.RunE = command.Runs(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		c, err := n.read(ctx, chp.ClientOptions{Subtrees: args})
		if err != nil {
			return err
		}
		n.warnOutside(args...)
		defer c.Close()
		bar := newCount(cmd, "printing", int64(c.Len()))
		if command.Terminal(cmd.OutOrStdout()) != nil {
			bar.terminal = nil // one sees what is printed
		}
		lines, err := printEntries(ctx, cmd.OutOrStdout(), "", bar.entries(c.closing(c.Sorted(""))), appendDump)
		bar.finish()
		if err == nil && lines == 0 && len(args) == 1 && !strings.HasSuffix(args[0], "/") && args[0] != "" {
			return noKey(args[0], c.Server())
		}
		return err
	})
	return cmd
}

// noKey returns the error for a missing key, with the name of the subtree that may be
// meant.
func noKey(key, server string) error {
	return fail(exitRefused, "no key %s in the map of %s; for the subtree use %s", command.ShellWord(key), server, command.ShellWord(subtreeBelow(key)))
}

// closing returns entries of the client, which is closed when the first one is there: printing
// may take long, and they stay as they are.
func (c *client) closing(entries iter.Seq[chp.Entry]) iter.Seq[chp.Entry] {
	return func(yield func(chp.Entry) bool) {
		closed := false
		for e := range entries {
			if !closed {
				closed = true
				c.Close()
			}
			if !yield(e) {
				return
			}
		}
	}
}

// appendDump appends an entry as a line that load reads.
func appendDump(dst []byte, e chp.Entry) []byte {
	return append(kvjson.AppendStored(append(dst, '{'), e), '}', '\n')
}
