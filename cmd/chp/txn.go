package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"clustermap/chp"
	"clustermap/internal/command"

	"github.com/spf13/cobra"
)

// The limits of a transaction, which are those of the library: so a file of any size is
// refused before it is in memory.
const (
	maxTransaction      = 1024     // updates, and checks
	maxTransactionBytes = 2 << 20  // of several updates as they are sent
	maxTransactionLines = 64 << 20 // all lines; one alone has a value of any size, and a server's limit may be large
)

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
		var t transaction
		if err := t.read(command.Interruptible(ctx, in), name); err != nil {
			return err
		}
		limited, cancel := context.WithTimeout(ctx, n.timeout)
		defer cancel()
		c, err := n.openKeys(ctx, n.open, t.keys...)
		if err != nil {
			return err
		}
		defer c.Close()
		sequence, err := c.ApplyIf(limited, &t.updates, append(t.checks, chp.WithConflictValue())...)
		if err != nil {
			return c.judged(cmd, err, asJSON)
		}
		line := fmt.Appendln(nil, sequence)
		if asJSON {
			line = appendJSONSequence([]byte{'{'}, "seq", sequence)
			line = append(command.AppendJSONNumber(append(line, ','), "updates", int64(t.updates.Len())), '}', '\n')
		}
		_, err = cmd.OutOrStdout().Write(line)
		return err
	})
	return cmd
}

// transaction is what the lines of a transaction say.
type transaction struct {
	updates chp.Batch
	checks  []chp.IfOption
	keys    []string
}

// read reads all lines.
func (t *transaction) read(in io.Reader, name string) error {
	lines := lineReader{in: bufio.NewReader(in), limit: maxTransactionLines}
	total := 0
	for {
		line, err := lines.filled()
		if errors.Is(err, io.EOF) {
			break
		}
		if total += len(line); err == nil && total > maxTransactionLines {
			err = fmt.Errorf("all lines have more than %d bytes", maxTransactionLines)
		}
		if err == nil {
			err = t.add(line)
		}
		if errors.Is(err, context.Canceled) {
			return err
		}
		if err != nil {
			return fail(exitRefused, "%s, line %d: %s; nothing was sent", name, lines.number, plain(err))
		}
	}
	if len(t.keys) == 0 {
		return fail(exitRefused, "%s has no lines", name)
	}
	return nil
}

// transactionLine is a line for encoding/json.
type transactionLine struct {
	Op string `json:"op"`
	pairFields
	Seq     *string `json:"seq"`
	Absent  bool    `json:"absent"`
	Present bool    `json:"present"`
	Lease   *string `json:"lease"`
}

// add adds a line.
func (t *transaction) add(line []byte) error {
	var l transactionLine
	if err := decodeLine(line, "a transaction", &l); err != nil {
		return err
	}
	bare := l.Value == nil && l.ValueBase64 == nil
	checks := 0 // fields that are a condition
	for _, has := range []bool{l.Seq != nil, l.Absent, l.Present, !bare} {
		if has {
			checks++
		}
	}
	plain := len(l.Properties) == 0 && len(l.PropertiesBase64) == 0 && l.TTL == nil && l.Lease == nil
	switch l.Op {
	case "set":
		if checks > 1 || bare && checks > 0 {
			return errors.New("a set has no condition; write a line with op check before it")
		}
	case "del":
		if checks > 0 || !plain {
			return errors.New("a del has only a key")
		}
	case "check":
		if checks != 1 || !plain {
			return errors.New("a check has one of seq, absent, present and value")
		}
	case "":
		return errors.New("needs op: check, set or del")
	default:
		return fmt.Errorf("op %q is not check, set or del", l.Op)
	}
	key, err := textOf("key", l.Key, l.KeyBase64)
	if err != nil {
		return err
	}
	if _, err := subtreeOf(string(key)); err != nil {
		return err
	}
	t.keys = append(t.keys, string(key))
	if l.Op == "check" {
		return t.check(string(key), &l)
	}
	if l.Op == "del" {
		t.updates.Delete(string(key))
	} else {
		e, err := l.entry()
		switch {
		case err != nil:
			return err
		case e.TTL < 0:
			return errors.New("ttl must be positive")
		}
		options := []chp.SetOption{chp.WithTTL(e.TTL), chp.WithProperties(e.Properties)}
		if l.Lease != nil {
			options = append(options, chp.WithLeaseID(*l.Lease))
		}
		t.updates.Set(string(key), e.Value, options...)
	}
	switch n := t.updates.Len(); {
	case t.updates.Err() != nil:
		return t.updates.Err()
	case n > maxTransaction:
		return fmt.Errorf("a transaction has at most %d updates", maxTransaction)
	case n > 1 && t.updates.Size() > maxTransactionBytes:
		return errors.New("a transaction has at most 1 MiB of keys and values")
	}
	return nil
}

// check adds a check.
func (t *transaction) check(key string, l *transactionLine) error {
	condition := chp.IfAbsent()
	switch {
	case l.Absent:
	case l.Present:
		condition = chp.IfPresent()
	case l.Seq != nil:
		sequence, err := strconv.ParseInt(*l.Seq, 10, 64)
		if err != nil || sequence < 0 {
			return fmt.Errorf("seq %q is not a sequence number", *l.Seq)
		}
		condition = chp.IfSequence(sequence)
	default:
		value, err := textOf("value", l.Value, l.ValueBase64)
		if err != nil {
			return err
		}
		if len(value) == 0 {
			return errors.New("the value is empty, which no key has; absent says that there is none")
		}
		condition = chp.IfValue(value)
	}
	t.checks = append(t.checks, condition.On(key))
	if len(t.checks) > maxTransaction {
		return fmt.Errorf("a transaction has at most %d checks", maxTransaction)
	}
	return nil
}
