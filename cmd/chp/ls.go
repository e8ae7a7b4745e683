package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"

	"clustermap/chp"
	"clustermap/internal/command"
	"clustermap/internal/jsonline"
	"clustermap/internal/kvjson"

	"github.com/spf13/cobra"
)

func newLs() *cobra.Command {
	var n connection
	var long, asJSON bool
	cmd := &cobra.Command{
		Use:   "ls [PREFIX]",
		Short: "List the keys, sorted",
		Long: `Prints the keys that begin with PREFIX, or all keys, one per line, sorted byte by
byte. Keys with spaces or special characters are quoted. Exits with 1 if no key begins
with PREFIX, as get --prefix and del --prefix do; without PREFIX an empty map is no
failure.

PREFIX need not end with a slash: /lamp stands for /lamp, /lamp/1 and /lamps. This is
so for get --prefix and del --prefix too. For chp watch and chp dump /lamp is only the
key of this name, and /lamp/ the keys below it.

With -l each line has
  SIZE      size of the value in bytes
  TTL       remaining time to live, or - if the key does not expire
  SEQUENCE  sequence number of the key's last update
  KEY       the key
and behind it the properties of the key's last update, each as name=value, if there
are any. A server with --stamp adds x-time, when it accepted the update, and x-by, who
sent it.

With --json each line is an object with key (key_base64 if it is not UTF-8), size,
seq (a string), properties, time and by as chp get --json prints them, and ttl in
seconds if the key expires.`,
		Example: `  chp ls
  chp ls /lamp/ -l
  chp ls --json | jq -r .key`,
		Args: command.Args(0, 1),
	}
	cmd.Flags().BoolVarP(&long, "long", "l", false, "print size, time to live and sequence number too")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON objects, one per line")
	n.register(cmd, 30*time.Second)
	n.registerModel(cmd)
	n.completeKeys(cmd, 1)
	cmd.RunE = command.Runs(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		prefix := ""
		if len(args) == 1 {
			prefix = args[0]
		}
		format, header := appendKey, ""
		switch {
		case asJSON:
			format = kvjson.AppendKey
		case long:
			format, header = appendKeyLong, fmt.Sprintf(longLine+"KEY\n", "SIZE", "TTL", "SEQUENCE")
		}
		c, err := n.openPrefix(ctx, prefix)
		if err != nil {
			return err
		}
		defer c.Close()
		lines, err := printEntries(ctx, cmd.OutOrStdout(), header, c.Sorted(prefix), format)
		if err == nil && lines == 0 && prefix != "" {
			return noKeyBegins(c, prefix)
		}
		return err
	})
	return cmd
}

// noKeyBegins returns the failure of a command that finds no key with a prefix.
func noKeyBegins(c *client, prefix string) error {
	return fail(exitRefused, "no key in the map of %s begins with %q", c.Server(), prefix)
}

// longLine is the format of size, time to live and sequence in a line of ls -l.
const longLine = "%10v %10v %19v  "

// openPrefix opens a client that holds the keys with a prefix. It requests the smallest
// subtree that contains them.
func (n *connection) openPrefix(ctx context.Context, prefix string) (*client, error) {
	c, err := n.read(ctx, chp.ClientOptions{Subtrees: treeOf(prefix)})
	if err == nil {
		n.warnOutside(prefix)
	}
	return c, err
}

// treeOf returns the smallest subtree that contains all keys with a prefix, or nil for
// the whole map.
func treeOf(prefix string) []string {
	tree := prefix[:strings.LastIndexByte(prefix, '/')+1]
	if len(tree) < 3 || tree[0] != '/' || strings.HasPrefix(tree, "//") || len(tree) > maxKey || strings.Contains(tree, "\x00") {
		return nil
	}
	return []string{tree}
}

// printEntries writes a line for each entry, and returns their number. If there is an
// entry, the header precedes it.
func printEntries(ctx context.Context, w io.Writer, header string, entries iter.Seq[chp.Entry], format func([]byte, chp.Entry) []byte) (lines int, err error) {
	out := bufio.NewWriterSize(w, 64<<10)
	for e := range entries {
		if ctx.Err() != nil {
			return lines, ctx.Err()
		}
		if lines == 0 {
			_, _ = out.WriteString(header) // the writer keeps an error
		}
		if _, err := out.Write(format(out.AvailableBuffer(), e)); err != nil {
			return lines, err
		}
		lines++
	}
	return lines, out.Flush()
}

func appendKey(dst []byte, e chp.Entry) []byte {
	return append(command.AppendPlain(dst, e.Key, false), '\n')
}

func appendKeyLong(dst []byte, e chp.Entry) []byte {
	ttl := "-"
	if e.TTL > 0 {
		ttl = max(e.TTL, time.Second).Round(time.Second).String()
	}
	dst = fmt.Appendf(dst, longLine, len(e.Value), ttl, e.Sequence)
	dst = command.AppendPlain(dst, e.Key, false)
	for name, value := range e.Properties.User().All() {
		dst = appendProperty(dst, string(name), value)
	}
	if at, by, ok := e.Properties.Stamped(); ok {
		dst = appendProperty(dst, "x-time", at.UTC().AppendFormat(nil, time.RFC3339Nano))
		if by != "" {
			dst = appendProperty(dst, "x-by", []byte(by))
		}
	}
	return append(dst, '\n')
}

func appendProperty(dst []byte, name string, value []byte) []byte {
	return command.AppendPlain(append(dst, "  "...), append([]byte(name+"="), value...), false)
}

// appendEntry appends key and value as a line of text.
func appendEntry(dst []byte, e chp.Entry) []byte {
	dst = append(command.AppendPlain(dst, e.Key, false), ' ')
	return append(command.AppendPlain(dst, e.Value, true), '\n')
}

// printSequence prints the sequence number of an update, as a JSON object with the key if
// asJSON is set.
func printSequence(w io.Writer, key string, sequence int64, asJSON bool) error {
	line := fmt.Appendln(nil, sequence)
	if asJSON {
		line = jsonline.AppendField([]byte{'{'}, "key", []byte(key))
		line = append(kvjson.AppendSequence(append(line, ','), "seq", sequence), '}', '\n')
	}
	_, err := w.Write(line)
	return err
}
