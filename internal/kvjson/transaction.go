package kvjson

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"

	"clustermap/chp"
	"clustermap/internal/jsonline"
	"clustermap/internal/kvmsg"
)

// A Transaction is what the lines of a transaction say.
type Transaction struct {
	Updates chp.Batch
	Checks  []chp.IfOption
	Keys    []TransactionKey // in the order of the lines

	// Valid returns an error for a key that no server accepts. If it is nil, that is one of the protocol.
	Valid func(key string) error
}

// A TransactionKey is the key of a line.
type TransactionKey struct {
	Key    string
	Update bool   // it is not only checked
	Lease  string // to which it is attached, or ""
}

// A LineError says which line is wrong.
type LineError struct {
	Line int // from 1
	Err  error
}

func (e *LineError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }

// Unwrap returns Err.
func (e *LineError) Unwrap() error { return e.Err }

// Read reads all lines, of at most so many bytes: one alone has a value of any size. The error is a *LineError.
func (t *Transaction) Read(in io.Reader, most int) error {
	lines := jsonline.Reader{In: bufio.NewReader(in), Limit: most}
	total := 0
	for {
		line, err := lines.Filled()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if total += len(line); err == nil && total > most {
			err = fmt.Errorf("all lines have more than %d bytes", most)
		}
		if err == nil {
			err = t.add(line)
		}
		if err != nil {
			return &LineError{lines.Number, err}
		}
	}
}

// transactionLine is a line for encoding/json.
type transactionLine struct {
	Op string `json:"op"`
	Fields
	Seq     *string `json:"seq"`
	Absent  bool    `json:"absent"`
	Present bool    `json:"present"`
	Lease   *string `json:"lease"`
}

// add adds a line.
func (t *Transaction) add(line []byte) error {
	var l transactionLine
	if err := jsonline.Decode(line, "a transaction", &l); err != nil {
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
	key, err := Text("key", l.Key, l.KeyBase64)
	if err != nil {
		return err
	}
	valid := t.Valid
	if valid == nil {
		valid = func(key string) error { return kvmsg.ValidKey([]byte(key)) }
	}
	if err := valid(string(key)); err != nil {
		return err
	}
	one := TransactionKey{Key: string(key), Update: l.Op != "check"}
	if l.Lease != nil {
		one.Lease = *l.Lease
	}
	t.Keys = append(t.Keys, one)
	if l.Op == "check" {
		return t.check(string(key), &l)
	}
	if l.Op == "del" {
		t.Updates.Delete(string(key))
	} else {
		e, err := l.Entry()
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
		t.Updates.Set(string(key), e.Value, options...)
	}
	switch n := t.Updates.Len(); {
	case t.Updates.Err() != nil:
		return t.Updates.Err()
	case n > MaxTransaction:
		return fmt.Errorf("a transaction has at most %d updates", MaxTransaction)
	case n > 1 && t.Updates.Size() > MaxTransactionBytes:
		return errors.New("a transaction has at most 1 MiB of keys and values")
	}
	return nil
}

// check adds a check.
func (t *Transaction) check(key string, l *transactionLine) error {
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
		value, err := Text("value", l.Value, l.ValueBase64)
		if err != nil {
			return err
		}
		if len(value) == 0 {
			return errors.New("the value is empty, which no key has; absent says that there is none")
		}
		condition = chp.IfValue(value)
	}
	t.Checks = append(t.Checks, condition.On(key))
	if len(t.Checks) > MaxTransaction {
		return fmt.Errorf("a transaction has at most %d checks", MaxTransaction)
	}
	return nil
}
