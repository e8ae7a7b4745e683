package chp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"

	"clustermap/internal/kvmsg"
)

// Op is the kind of an [Event].
type Op uint8

// Kinds of events.
const (
	// OpSet: the key now has the value.
	OpSet Op = iota + 1
	// OpDelete: the key is gone. Event.Cause says whether it was deleted or expired.
	OpDelete
	// OpSynced: the events so far are a complete, consistent state; changes follow. It
	// occurs once in a watch and has no key.
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

// MarshalText returns the text of String.
func (o Op) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// Cause is the reason for an [Event].
type Cause uint8

// Causes of events. [OpSynced] has none: its Cause is 0.
const (
	// CauseSet: an update set the key, or the key existed when the watch began.
	CauseSet Cause = iota + 1
	// CauseDeleted: an update deleted the key.
	CauseDeleted
	// CauseExpired: the server deleted the key because its time to live ended. Servers
	// of this package mark such deletions. The guide's servers can be recognized too,
	// because their deletions carry an absolute time. With other servers an expiry is
	// reported as CauseDeleted.
	CauseExpired
	// CauseResync: the client fetched a new snapshot, in which the key differs from
	// the last reported event. The time and the cause of the change are unknown.
	CauseResync
)

// String returns none (for 0), set, deleted, expired or resync.
func (c Cause) String() string {
	switch c {
	case 0:
		return "none"
	case CauseSet:
		return "set"
	case CauseDeleted:
		return "deleted"
	case CauseExpired:
		return "expired"
	case CauseResync:
		return "resync"
	}
	return fmt.Sprintf("Cause(%d)", uint8(c))
}

// MarshalText returns the text of String.
func (c Cause) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// causeOfDeletion returns why a KVPUB deletes its key.
func causeOfDeletion(uuid, props []byte) Cause {
	if len(props) == 0 {
		return CauseDeleted
	}
	if cause, _ := kvmsg.Property(props, kvmsg.PropertyCause); len(uuid) == 0 && string(cause) == "expired" {
		return CauseExpired
	}
	// The guide's servers repeat the properties of the update, but replace its ttl by
	// the absolute time of expiry: milliseconds or seconds since 1970.
	ttl, _ := kvmsg.Property(props, "ttl")
	if _, ok := kvmsg.ParseTTL(ttl); !ok && len(ttl) >= len("1000000000") && len(bytes.Trim(ttl, "0123456789.")) == 0 {
		return CauseExpired
	}
	return CauseDeleted
}

// Event is one change that a [Watch] reports. Its slices point into the client's log
// and are valid until the next call on the watch; the caller must not change them. To keep
// an event, use Clone.
type Event struct {
	Op    Op
	Cause Cause // 0 for OpSynced
	Key   []byte
	Value []byte // OpSet

	// Sequence is the sequence of the update. For OpSynced, and for an OpDelete with
	// CauseResync, it is that of the snapshot.
	Sequence int64

	UUID       []byte     // of the update, 16 bytes or none
	Properties Properties // of the update

	// TTL of an OpSet is the remaining time to live when the event is fetched, or 0 if
	// the key does not expire (see [Entry]). If a later update of the key
	// was applied in the meantime, it is the time to live that this update was given. A
	// ttl in Properties is the time to live when the update or snapshot arrived.
	TTL time.Duration
}

// Clone returns a copy of the event with memory of its own, which stays valid. It costs
// one allocation.
func (e Event) Clone() Event {
	b := make([]byte, 0, len(e.Key)+len(e.Value)+len(e.UUID)+len(e.Properties))
	for _, p := range []*[]byte{&e.Key, &e.Value, &e.UUID, (*[]byte)(&e.Properties)} {
		if *p != nil {
			start := len(b)
			b = append(b, *p...)
			*p = b[start:len(b):len(b)]
		}
	}
	return e
}

// readEvent decodes the record at the start of b into e, in one pass, and returns its
// size. It leaves the TTL at 0.
func readEvent(e *Event, b []byte) (size int) {
	r := kvmsg.Record(b)
	start, at := kvmsg.FrameBounds(r, 0)
	e.Key = r[start:at:at]
	e.Sequence = int64(binary.BigEndian.Uint64(r[at+2:]))
	start, at = kvmsg.FrameBounds(r, at+2+kvmsg.SequenceSize)
	e.UUID = r[start:at:at]
	start, at = kvmsg.FrameBounds(r, at)
	e.Properties = Properties(r[start:at:at])
	start, at = kvmsg.FrameBounds(r, at)
	e.Value = r[start:at:at]
	e.Op, e.Cause, e.TTL = OpSet, CauseSet, 0
	if start == at {
		e.Op, e.Cause = OpDelete, causeOfDeletion(e.UUID, e.Properties)
	}
	return at
}
