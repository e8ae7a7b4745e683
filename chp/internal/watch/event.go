package watch

import (
	"bytes"
	"encoding/binary"
	"time"

	"clustermap/internal/kvmsg"
	"clustermap/internal/text"
)

// Op is chp.Op.
type Op uint8

// The values of Op.
const (
	OpSet Op = iota + 1
	OpDelete
	OpSynced
	OpBookmark
)

// String returns set, delete, synced or bookmark.
func (o Op) String() string {
	return text.Of(o, "Op", "", "set", "delete", "synced", "bookmark")
}

// MarshalText returns the text of String.
func (o Op) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// Cause is chp.Cause.
type Cause uint8

// The values of Cause.
const (
	CauseSet Cause = iota + 1
	CauseDeleted
	CauseExpired
	CauseResync
)

// String returns none (for 0), set, deleted, expired or resync.
func (c Cause) String() string {
	return text.Of(c, "Cause", "none", "set", "deleted", "expired", "resync")
}

// MarshalText returns the text of String.
func (c Cause) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// KindOf returns what a server's update with these parts does, and why.
func KindOf(value, props []byte) (Op, Cause) {
	if len(value) == 0 {
		return OpDelete, causeOfDeletion(nil, props)
	}
	return OpSet, CauseSet
}

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

// Event is what chp.Event documents. Its slices point into the map's log.
type Event struct {
	Op         Op
	Cause      Cause
	Key, Value []byte
	Sequence   int64
	Previous   []byte
	UUID       []byte
	Properties kvmsg.Properties
	TTL        time.Duration

	Transaction int64
}

// read decodes the record at the start of b into e, in one pass, and returns its size. It
// leaves the TTL at 0.
func (e *Event) read(b []byte) (size int) {
	r := kvmsg.Record(b)
	start, at := kvmsg.FrameBounds(r, 0)
	e.Key = r[start:at:at]
	e.Sequence = int64(binary.BigEndian.Uint64(r[at+2:]))
	start, at = kvmsg.FrameBounds(r, at+2+kvmsg.SequenceSize)
	e.UUID = r[start:at:at]
	start, at = kvmsg.FrameBounds(r, at)
	e.Properties = kvmsg.Properties(r[start:at:at])
	start, at = kvmsg.FrameBounds(r, at)
	e.Value = r[start:at:at]
	e.Op, e.Cause, e.Previous, e.TTL, e.Transaction = OpSet, CauseSet, nil, 0, 0
	if start == at {
		e.Op, e.Cause = OpDelete, causeOfDeletion(e.UUID, e.Properties)
	}
	return at
}
