package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"clustermap/chp"
	"clustermap/internal/command"
	"clustermap/internal/jsonline"
	"clustermap/internal/kvjson"

	"github.com/spf13/cobra"
)

// maxTransactionLines bounds all lines of a transaction: a value may have any size, and a server's
// limit may be large.
const maxTransactionLines = 64 << 20

func newTxn() *cobra.Command {
	var n connection
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "txn [FILE]",
		Short: "Make several updates at once, or none",
		Long: `Reads JSON lines from FILE or from standard input (no FILE, or -), and makes all updates
of them at once: no client sees a part of them. They have consecutive sequence numbers,
of which the first is printed. A line is one of
  {"op":"check","key":K,"seq":"N"}
  {"op":"set","key":K,"value":V,"ttl":S,"lease":ID}
  {"op":"del","key":K}
A check has one of seq, a string as chp get --json prints it, with "0" if the key must not
exist; "absent":true; "present":true; and value. All checks are on the map as it is before
all updates. If one of them does not hold, nothing changes, the exit code is 1, and the
sequence number of that key's last update is on standard error.

The ttl, in seconds, the lease (chp lease) and properties of a set may be left out. Bytes that are not UTF-8 are in
key_base64 and value_base64; key, value, properties and ttl are as in the lines of chp dump. At
an invalid line the command prints its number and ends, and sends nothing. There are at most
1,024 updates and as many checks, and with several updates at most 1 MiB of keys and values.

With --json it prints an object with seq, the first sequence number, a string, and updates,
their number. In case of a conflict it is that of chp set.`,
		Example: `  chp txn move.jsonl
  echo '{"op":"set","key":"/a","value":"1"}' | chp txn`,
		Args: command.Args(0, 1),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	n.register(cmd, 5*time.Second)
	n.registerModel(cmd)
	cmd.RunE = command.Runs(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		if _, err := n.servers(); err != nil { // before it waits for the input
			return err
		}
		source := "-"
		if len(args) > 0 {
			source = args[0]
		}
		in, name, _, err := openDump(cmd, source)
		if err != nil {
			return err
		}
		defer in.Close()
		t := kvjson.Transaction{Valid: validKey}
		if err := readTransaction(&t, command.Interruptible(ctx, in), name); err != nil {
			return err
		}
		keys := make([]string, len(t.Keys))
		for i, k := range t.Keys {
			keys[i] = k.Key
		}
		limited, cancel := context.WithTimeout(ctx, n.timeout)
		defer cancel()
		c, err := n.openKeys(ctx, n.open, keys...)
		if err != nil {
			return err
		}
		defer c.Close()
		sequence, err := c.ApplyIf(limited, &t.Updates, append(t.Checks, chp.WithConflictValue())...)
		if err != nil {
			return c.judged(cmd, err, asJSON)
		}
		line := fmt.Appendln(nil, sequence)
		if asJSON {
			line = kvjson.AppendSequence([]byte{'{'}, "seq", sequence)
			line = append(jsonline.AppendNumber(append(line, ','), "updates", int64(t.Updates.Len())), '}', '\n')
		}
		_, err = cmd.OutOrStdout().Write(line)
		return err
	})
	return cmd
}

// readTransaction reads all lines.
func readTransaction(t *kvjson.Transaction, in io.Reader, name string) error {
	err := t.Read(in, maxTransactionLines)
	line := (*kvjson.LineError)(nil)
	switch {
	case errors.Is(err, context.Canceled):
		return context.Canceled
	case errors.As(err, &line):
		return fail(exitRefused, "%s, line %d: %s; nothing was sent", name, line.Line, plain(line.Err))
	case len(t.Keys) == 0:
		return fail(exitRefused, "%s has no lines", name)
	}
	return nil
}

// validKey returns an error for a key that no server accepts.
func validKey(key string) error {
	_, err := subtreeOf(key)
	return err
}
