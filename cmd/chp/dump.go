package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"clustermap/chp"
	"clustermap/internal/command"

	"github.com/spf13/cobra"
)

func newDump() *cobra.Command {
	var n connection
	cmd := &cobra.Command{
		Use:   "dump [SUBTREE]",
		Short: "Print the map as JSON lines, sorted by key",
		Long: `Prints a consistent snapshot of SUBTREE, or of the whole map: one JSON object per
line, sorted by key, with key and value; bytes that are not UTF-8 are in key_base64
and value_base64. If the key expires, ttl is its remaining time to live in seconds.
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
		servers, err := n.servers()
		if err != nil {
			return err
		}
		if err := n.needSnapshots(); err != nil {
			return err
		}
		c, err := n.open(ctx, chp.ClientOptions{Servers: servers, Subtrees: args})
		if err != nil {
			return err
		}
		n.warnOutside(args...)
		var content pairs
		for e := range c.All() {
			content.add(e)
		}
		// Close the client first, because sorting and printing may take long.
		from := c.Server()
		c.Close()
		if len(args) == 1 && len(content.list) == 0 && !strings.HasSuffix(args[0], "/") && args[0] != "" {
			return noKey(args[0], from)
		}
		return content.print(cmd.OutOrStdout())
	})
	return cmd
}

// noKey returns the error for a missing key, with the name of the subtree that may be
// meant.
func noKey(key, server string) error {
	return fail(exitRefused, "no key %s in the map of %s; for the subtree use %s", command.ShellWord(key), server, command.ShellWord(subtreeBelow(key)))
}

// pairs is a copy of a map's contents. Its bytes are in a few large blocks, because a
// million small slices would need far more memory.
type pairs struct {
	block []byte // the current block
	list  []pair
}

type pair struct {
	key, value []byte
	props      chp.Properties
	ttl        time.Duration
}

// add copies an entry.
func (p *pairs) add(e chp.Entry) {
	if need := len(e.Key) + len(e.Value) + len(e.Properties); cap(p.block)-len(p.block) < need {
		p.block = make([]byte, 0, max(need, 1<<20))
	}
	p.list = append(p.list, pair{p.copy(e.Key), p.copy(e.Value), p.copy(e.Properties), e.TTL})
}

// copy copies b to the block, which has room.
func (p *pairs) copy(b []byte) []byte {
	start := len(p.block)
	p.block = append(p.block, b...)
	return slices.Clip(p.block[start:])
}

// print sorts the pairs by key, byte by byte, and writes them as JSON lines.
func (p *pairs) print(w io.Writer) error {
	slices.SortFunc(p.list, func(a, b pair) int { return bytes.Compare(a.key, b.key) })
	out := bufio.NewWriterSize(w, 64<<10)
	for _, e := range p.list {
		line := append(out.AvailableBuffer(), '{')
		line = command.AppendJSONField(line, "key", e.key)
		line = append(line, ',')
		line = command.AppendJSONField(line, "value", e.value)
		line = appendJSONProperties(line, e.props)
		line = appendJSONTTL(line, e.ttl)
		if _, err := out.Write(append(line, '}', '\n')); err != nil {
			return err
		}
	}
	return out.Flush()
}
