package chp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"

	"clustermap/internal/kvmsg"
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

// Cause says why an [Event] happened.
type Cause uint8

// Causes of events. [OpSynced] has none.
const (
	// CauseSet: an update set the key, or the key was there when the watch began.
	CauseSet Cause = iota + 1
	// CauseDeleted: an update deleted the key.
	CauseDeleted
	// CauseExpired: the server deleted the key because its time to live was over.
	// Servers of this package say so. Of others only those of the guide can be
	// recognised, which put an absolute time into the deletion; elsewhere an
	// expiry is reported as CauseDeleted.
	CauseExpired
	// CauseResync: the client took a new snapshot, and it differs in this key from
	// what the watch has reported. When and why it changed is not known.
	CauseResync
)

// String returns set, deleted, expired or resync.
func (c Cause) String() string {
	switch c {
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

// expiredProperties marks the deletion of a key whose time to live is over. The
// UUID is empty too, as no client sent it. Other peers pass over a property that
// they do not know.
var expiredProperties = []byte("cause=expired\n")

// causeOfDeletion returns why a KVPUB deletes its key.
func causeOfDeletion(uuid, props []byte) Cause {
	if len(props) == 0 {
		return CauseDeleted
	}
	if cause, _ := kvmsg.Property(props, "cause"); len(uuid) == 0 && string(cause) == "expired" {
		return CauseExpired
	}
	// The guide's servers repeat the properties of the update, with the time at
	// which it ends in the place of its ttl: milliseconds or seconds since 1970.
	ttl, _ := kvmsg.Property(props, "ttl")
	if _, ok := kvmsg.ParseTTL(ttl); !ok && len(ttl) >= len("1000000000") && len(bytes.Trim(ttl, "0123456789.")) == 0 {
		return CauseExpired
	}
	return CauseDeleted
}

// Event is one change that a [Watch] reports. Its slices are views into the
// client's log, lent until the next call of the watch; they must not be
// changed.
type Event struct {
	Op    Op
	Cause Cause // 0 for OpSynced
	Key   []byte
	Value []byte // OpSet

	// Sequence is the server's number of the change. For OpSynced, and for an
	// OpDelete that a new snapshot brought, it is that of the snapshot.
	Sequence int64

	UUID       []byte // of the update, 16 bytes or none
	Properties []byte // of the update, lines "name=value" or none

	// TTL of an OpSet is how long the key has left to live when the event is
	// fetched, or 0 if it has no limit, as [Client.GetTTL] says. If a later update
	// of the key has been applied by then, it is the time that this one was given.
	// A ttl in Properties is the time at the arrival of the update or snapshot.
	TTL time.Duration
}

// readEvent reads the record at the start of b into e, in one pass, and returns
// its size. The TTL is left at 0.
func readEvent(e *Event, b []byte) (size int) {
	r := kvmsg.Record(b)
	start, at := kvmsg.FrameBounds(r, 0)
	e.Key = r[start:at:at]
	e.Sequence = int64(binary.BigEndian.Uint64(r[at+2:]))
	start, at = kvmsg.FrameBounds(r, at+2+kvmsg.SequenceSize)
	e.UUID = r[start:at:at]
	start, at = kvmsg.FrameBounds(r, at)
	e.Properties = r[start:at:at]
	start, at = kvmsg.FrameBounds(r, at)
	e.Value = r[start:at:at]
	e.Op, e.Cause, e.TTL = OpSet, CauseSet, 0
	if start == at {
		e.Op, e.Cause = OpDelete, causeOfDeletion(e.UUID, e.Properties)
	}
	return at
}
