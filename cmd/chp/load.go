package main

import (
	"context"
	"io"
	"os"
	"time"

	"clustermap/chp"
	"clustermap/internal/command"

	"github.com/spf13/cobra"
)

// defaultMaxLine is the default maximum size of a line of a dump in bytes.
const defaultMaxLine = 128 << 20

// openDump opens a dump, or standard input for "-". It returns the name for messages and
// the size in bytes, or -1 if it is unknown.
func openDump(cmd *cobra.Command, source string) (in io.ReadCloser, name string, size int64, err error) {
	if source == "-" {
		return io.NopCloser(cmd.InOrStdin()), "standard input", -1, nil
	}
	file, err := os.Open(source)
	if err != nil {
		return nil, "", 0, fail(exitRefused, "%w", err)
	}
	size = -1
	if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
		size = info.Size()
	}
	return file, source, size, nil
}

func newLoad() *cobra.Command {
	var n connection
	maxLine := command.Bytes(defaultMaxLine)
	cmd := &cobra.Command{
		Use:   "load [FILE]",
		Short: "Set every key of a dump",
		Long: `Reads JSON lines as printed by chp dump, from FILE or from standard input (no FILE,
or -), sets each key, and waits until the server has published the last one. Keys
that are in the map and not in the dump do not change.

A line is an object with key or key_base64, and value or value_base64; properties or
properties_base64 are as chp dump prints them. With ttl, a number of seconds, the key
expires after this time; a line with a ttl of 0 or less is skipped. The fields seq,
term, after and discarded, which a line of chp serve --diverged has too, are ignored:
its value is set, though the map may have a newer one. At the first invalid line the
command prints its number and ends; the lines before it have been loaded. --timeout is how long the server may make no progress. If
the connection is lost, the command continues when the server is back, or with the
next --server, such as the other one of a pair, within that time.`,
		Example: `  chp load map.jsonl
  chp dump --server tcp://10.0.0.1:5556 | chp load --server tcp://10.0.0.2:5556`,
		Args: command.Args(0, 1),
	}
	cmd.Flags().Var(&maxLine, "max-line", "longest line accepted")
	n.register(cmd, 30*time.Second)
	n.registerModel(cmd)
	cmd.RunE = command.Runs(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		if maxLine <= 0 {
			return fail(exitUsage, "--max-line %v: must be positive", &maxLine)
		}
		if _, err := n.servers(); err != nil { // before it waits for the input
			return err
		}
		source := "-"
		if len(args) > 0 {
			source = args[0]
		}
		in, name, size, err := openDump(cmd, source)
		if err != nil {
			return err
		}
		defer in.Close()
		// The client holds the whole map, because it must receive its updates to
		// know that none was lost.
		c, err := n.open(ctx, chp.ClientOptions{})
		if err != nil {
			return err
		}
		defer c.Close()

		bar := newProgress(cmd, "loading", size)
		l := loader{client: c, name: name}
		count, err := l.run(ctx, io.TeeReader(in, bar), int(maxLine))
		bar.finish()
		if err != nil {
			return err
		}
		return l.lines.report(cmd, count, "into "+c.Server())
	})
	return cmd
}
