package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"slices"
	"time"

	"clustermap/chp"

	"github.com/spf13/cobra"
)

func newDump() *cobra.Command {
	var n connection
	cmd := &cobra.Command{
		Use:   "dump [SUBTREE]",
		Short: "Print the map as JSON lines, sorted by key",
		Long: `Prints every key and value of SUBTREE, or of the whole map, as it is at one moment:
a JSON object a line, sorted by key, with key and value; octets that are not UTF-8
are in key_base64 and value_base64. chp load reads it back.

A SUBTREE begins and ends with a slash, such as /lamp/. Times to live are not part
of a dump: what is loaded from it stays.`,
		Example: `  chp dump > map.jsonl
  chp dump /lamp/ | jq .value`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	n.register(cmd, 30*time.Second)
	cmd.RunE = runs(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		servers, err := n.servers()
		if err != nil {
			return err
		}
		c, err := n.open(ctx, chp.ClientOptions{Servers: servers, Subtrees: args})
		if err != nil {
			return err
		}
		var content pairs
		c.Range(content.add)
		// Sorting and printing may take long: the server need not feed a client
		// that has what it wants.
		c.Close()
		return content.print(cmd.OutOrStdout())
	})
	return cmd
}

// pairs is a copy of a map's content. Its octets lie in a few big blocks: a
// million small slices would cost far more than the octets themselves.
type pairs struct {
	block []byte // the one being filled
	list  []pair
}

type pair struct{ key, value []byte }

// add copies a pair; it has the form that Client.Range asks for.
func (p *pairs) add(key, value []byte) bool {
	if need := len(key) + len(value); cap(p.block)-len(p.block) < need {
		p.block = make([]byte, 0, max(need, 1<<20))
	}
	start := len(p.block)
	p.block = append(append(p.block, key...), value...)
	split, end := start+len(key), len(p.block)
	p.list = append(p.list, pair{p.block[start:split:split], p.block[split:end:end]})
	return true
}

// print sorts the pairs by key, octet by octet, and writes them as JSON lines.
func (p *pairs) print(w io.Writer) error {
	slices.SortFunc(p.list, func(a, b pair) int { return bytes.Compare(a.key, b.key) })
	out := bufio.NewWriterSize(w, 64<<10)
	for _, e := range p.list {
		line := append(out.AvailableBuffer(), '{')
		line = appendJSONField(line, "key", e.key)
		line = append(line, ',')
		line = appendJSONField(line, "value", e.value)
		if _, err := out.Write(append(line, '}', '\n')); err != nil {
			return err
		}
	}
	return out.Flush()
}
