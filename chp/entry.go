package chp

import (
	"slices"
	"time"

	"clustermap/internal/kvmsg"
	"clustermap/internal/text"
	"clustermap/internal/timer"
)

// Entry is a key of a map with its value.
type Entry struct {
	Key   []byte
	Value []byte

	// Properties are those of the key's last update. A ttl among them is the time to live
	// when the update or snapshot arrived.
	Properties Properties

	// Sequence is the sequence of the key's last update.
	Sequence int64

	// TTL is the remaining time to live, or 0 if the key does not expire. An expired key
	// has 1ns until its deletion is applied.
	//
	// A client measures from the arrival of the update, or of the snapshot, with its own
	// monotonic clock, so its TTL is too high by the time that the message was in
	// transit. Servers of other implementations do not put the remaining time into
	// snapshots: keys that were set before the client joined have no TTL at the client,
	// and disappear when the server deletes them.
	TTL time.Duration
}

// Properties are the properties of an update: lines of the form name=value, each with a
// newline at its end, or nothing (RFC 12, "properties"). Servers of this package accept
// nothing else from clients; other servers may pass lines on that are not of this form.
// A name may occur several times; the first one counts, which Get returns. All returns an
// iterator over the names and values of lines of that form.
//
// Names that begin with "x-" are the protocol's. User returns the properties that the sender
// has chosen: all but those, and the ttl. It allocates only if there are others. Stamped
// returns when the server accepted the update, by its clock, and who sent it, if that was
// authenticated; ok is false unless the server has ServerOptions.Stamp.
type Properties = kvmsg.Properties

// Presence says whether a key is in the map, as far as a client knows: see
// [Client.Lookup].
type Presence uint8

// Values of [Presence].
const (
	// PresenceFound: the key is in the replica.
	PresenceFound Presence = iota + 1
	// PresenceAbsent: the key is in the client's subtrees, and not in the map.
	PresenceAbsent
	// PresenceOutside: the key is outside of ClientOptions.Subtrees, so the client does
	// not know whether it is in the map.
	PresenceOutside
	// PresenceUnsynced: the client has not yet received its first snapshot, so it does
	// not know whether the key is in the map.
	PresenceUnsynced
)

// String returns found, absent, outside or unsynced.
func (p Presence) String() string {
	return text.Of(p, "Presence", "", "found", "absent", "outside", "unsynced")
}

// MarshalText returns the text of String.
func (p Presence) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// entryOf returns the entry of a record, with the bytes of the record.
func entryOf(r kvmsg.Record, d *timer.Deadlines) Entry {
	return Entry{Key: r.Key(), Value: r.Value(), Properties: r.Props(), Sequence: r.Seq(), TTL: d.Remaining(r)}
}

// copyEntry returns the entry of a record, with a copy of its bytes.
func copyEntry(r kvmsg.Record, d *timer.Deadlines) Entry {
	e := entryOf(r, d)
	all := slices.Concat(e.Key, e.Properties, e.Value) // one allocation
	n, m := len(e.Key), len(e.Key)+len(e.Properties)
	e.Key, e.Properties, e.Value = all[:n:n], all[n:m:m], all[m:]
	return e
}
