//go:build unix

package chaos

import (
	"bytes"
	"cmp"
	"fmt"
	"strconv"
	"sync"
	"time"

	"clustermap/chp"
)

// kind of an operation.
type kind string

const (
	opSet    kind = "set"
	opDelete kind = "delete"
	opRead   kind = "read"  // SetSync of another key, then Get, whose result was in force at some moment meanwhile
	opReset  kind = "reset" // the server lost its map
)

// outcome of an operation.
type outcome string

const (
	acked      outcome = "ok"       // it was done
	failed     outcome = "failed"   // it was not done and never will be
	conflicted outcome = "conflict" // neither, since its condition did not hold
	unknown    outcome = "unknown"  // it was done, or will be, or not
)

// op is one operation of a goroutine on one key.
type op struct {
	ID      uint64        `json:"id"` // in its value
	Proc    int           `json:"proc"`
	Client  string        `json:"client"`
	Kind    kind          `json:"kind"`
	Key     string        `json:"key,omitempty"`
	TTL     time.Duration `json:"ttl,omitempty"`
	Call    time.Duration `json:"call"` // since the beginning
	Return  time.Duration `json:"return"`
	Outcome outcome       `json:"outcome"`
	Seq     int64         `json:"seq,omitempty"` // the sequence that the call returned
	Saw     uint64        `json:"saw,omitempty"` // value that a read, or a Get after the update, returned; 0: no key
	Looked  bool          `json:"looked,omitempty"`
	Synced  bool          `json:"synced,omitempty"` // its client began to follow a server again before the call had returned and looked
	Err     string        `json:"err,omitempty"`

	// With a condition:
	If         condition     `json:"if,omitempty"`
	Expect     uint64        `json:"expect,omitempty"`      // value that the condition demands; 0: no key
	ExpectSeq  int64         `json:"expect_seq,omitempty"`  // and its sequence
	PresentSeq int64         `json:"present_seq,omitempty"` // what a conflict reports; Saw is the value
	Held       bool          `json:"held,omitempty"`        // another condition of the transaction did not
	Shown      int64         `json:"shown,omitempty"`       // sequence that the replica showed after a conflict; 0: no key
	Value      uint64        `json:"value,omitempty"`       // what the update stands for, if not for ID
	Amount     int64         `json:"amount,omitempty"`      // of an account or a counter; never changes
	Group      uint64        `json:"group,omitempty"`       // ID of the first one of its transaction of several
	Size       int           `json:"size,omitempty"`        // of that
	Released   time.Duration `json:"released,omitempty"`    // when the lock was given up; guarded by history.mu
}

// exact reports whether the call returned the sequence of its own update, whatever happened.
func (o *op) exact() bool { return o.If != "" || o.Group != 0 }

// value returns what the value of an update stands for.
func (o *op) value() uint64 { return cmp.Or(o.Value, o.ID) }

// event is an event of a watch.
type event struct {
	seq   int64
	key   string
	value uint64 // ID of the op, 0 for a deletion
	uuid  [16]byte
	cause chp.Cause
	live  bool // an update that came, and not part of a snapshot
	ttl   bool // the key has a time to live
	at    time.Duration

	transaction int64
}

// history collects the operations, events and faults.
type history struct {
	begin time.Time

	mu     sync.Mutex
	ops    []*op
	faults []string
	broken []violation

	programs []*program
}

// violation is a promise that was not kept.
type violation struct {
	Check string `json:"check"`
	Text  string `json:"text"`
}

func (h *history) now() time.Duration { return time.Since(h.begin) }

// call notes that an operation begins, or the operations of a transaction. They belong to
// the caller from then on.
func (h *history) call(ops ...*op) *op {
	h.mu.Lock()
	for i, o := range ops {
		o.Outcome = unknown
		o.ID = uint64(len(h.ops) + 1)
		if len(ops) > 1 {
			o.Group, o.Size = o.ID-uint64(i), len(ops)
		}
		h.ops = append(h.ops, o)
	}
	h.mu.Unlock()
	now := h.now()
	for _, o := range ops {
		o.Call = now
	}
	return ops[0]
}

func (h *history) fault(format string, args ...any) {
	text := fmt.Sprintf("%8.3fs ", h.now().Seconds()) + fmt.Sprintf(format, args...)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults = append(h.faults, text)
}

// maxViolations bounds the violations that one check reports.
const maxViolations = 10

func (h *history) violate(check, format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, v := range h.broken {
		if v.Check == check {
			n++
		}
	}
	if n < maxViolations {
		h.broken = append(h.broken, violation{check, fmt.Sprintf(format, args...)})
	}
}

// appendValue makes the value of an operation: its ID, its size, and a filling
// that depends on both.
func appendValue(dst []byte, id uint64, size int) []byte {
	start := len(dst)
	dst = strconv.AppendUint(dst, id, 10)
	dst = append(dst, ':')
	dst = strconv.AppendInt(dst, int64(size), 10)
	dst = append(dst, ':')
	for len(dst)-start < size {
		dst = append(dst, 'a'+byte((id+uint64(len(dst)-start))%26))
	}
	return dst
}

// readValue returns the ID of the operation that made a value.
func readValue(value []byte) (id uint64, err error) {
	first, rest, _ := bytes.Cut(value, []byte{':'})
	second, _, _ := bytes.Cut(rest, []byte{':'})
	id, err1 := strconv.ParseUint(string(first), 10, 64)
	size, err2 := strconv.Atoi(string(second))
	if err1 != nil || err2 != nil || id == 0 || size > 1<<20 || !bytes.Equal(value, appendValue(nil, id, size)) {
		return 0, fmt.Errorf("a value that nobody wrote: %.80q, %d bytes", value, len(value))
	}
	return id, nil
}
