package chp

import (
	"encoding/binary"
	"fmt"
)

// Op says what an [Event] tells.
type Op uint8

// Kinds of events.
const (
	// OpSet: the key has the value now.
	OpSet Op = iota + 1
	// OpDelete: the key is gone.
	OpDelete
	// OpSynced: the events so far were the state at one moment, complete.
	// What follows are changes. It comes once in a watch, and has no key.
	OpSynced
)

func (o Op) String() string {
	switch o {
	case OpSet:
		return "set"
	case OpDelete:
		return "delete"
	case OpSynced:
		return "synced"
	}
	return fmt.Sprintf("Op(%d)", uint8(o))
}

// Event is one change that a [Watch] reports. Its slices are views into the
// client's log, lent until the next call of the watch; they must not be
// changed.
type Event struct {
	Op    Op
	Key   []byte
	Value []byte // OpSet

	// Sequence is the server's number of the change. For OpSynced, and for an
	// OpDelete that a new snapshot brought, it is that of the snapshot.
	Sequence int64

	UUID       []byte // of the update, 16 octets or none
	Properties []byte // of the update, lines "name=value" or none
}

// readEvent reads the record at the start of b into e, in one pass, and returns
// its size.
func readEvent(e *Event, b []byte) (size int) {
	r := record(b)
	start, at := frameBounds(r, 0)
	e.Key = r[start:at:at]
	e.Sequence = int64(binary.BigEndian.Uint64(r[at+2:]))
	start, at = frameBounds(r, at+2+sequenceSize)
	e.UUID = r[start:at:at]
	start, at = frameBounds(r, at)
	e.Properties = r[start:at:at]
	start, at = frameBounds(r, at)
	e.Value = r[start:at:at]
	e.Op = OpSet
	if start == at {
		e.Op = OpDelete
	}
	return at
}
