package disk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"clustermap/chp/commit"
	"clustermap/chp/internal/ledger"
	"clustermap/chp/internal/state"
	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
	"clustermap/internal/timer"
)

// Kinds of entries.
const (
	kindRecords = commit.KindRecords // updates

	// kindSent is updates of one client that numbers them: the client's identity, 16
	// bytes; the order number of the last update, 8 bytes big-endian; and the updates. With
	// the number 0 they are those of the client's requests.
	kindSent = 1

	// kindOrigins is a portion of the origins (see ledger.Clients), kindMapID the
	// identity of the map, 16 bytes, and kindReigns the reigns of the map with the last
	// update of each (see state.AppendReigns). Checkpoints have all of them, before the updates.
	// A new log begins with kindMapID.
	kindOrigins = uint32(state.KindClients)
	kindMapID   = uint32(state.KindMap)
	kindReigns  = uint32(state.KindTerms)

	// kindRequests is a portion of the clients' requests, which follow the clients.
	kindRequests = uint32(state.KindRequests)

	// kindHistory is a portion of the versions of keys (see history.Keeper). Checkpoints have
	// them before the updates, if the server keeps a history.
	kindHistory = uint32(state.KindHistory)

	// kindNewest is the last kind. An entry of a later one makes a server refuse the log,
	// since it may change the map; so later versions write one only where they must.
	kindNewest = kindHistory
)

const sentHeadSize = len(ledger.ID{}) + 8

// content is what an entry of the log has.
type content struct {
	sent  state.Head // of kindSent: id and counter
	wire  []byte     // updates
	spans []buf.Span // of the updates
}

// Compose returns the entry of a batch without its updates, which are its parts. What comes before them is in
// memory for that, which is returned too.
func Compose(h *state.Head, memory []byte) (commit.Entry, []byte) {
	e := commit.Entry{Epoch: h.Reign, First: uint64(h.First), Count: h.Count, Kind: kindRecords, Time: timer.TimeOf(h.At).UnixNano()}
	if h.Client != (ledger.ID{}) {
		e.Kind = kindSent
		memory = binary.BigEndian.AppendUint64(append(memory[:0], h.Client[:]...), h.Counter)
		e.Records = memory
	}
	return e, memory
}

// Named returns the entry with the identity of a map, which is a new one whose first update gets the sequence
// after one. Without an identity the map keeps the one that it has.
func Named(id [ledger.MapIDSize]byte, after int64) commit.Entry {
	return commit.Entry{Kind: kindMapID, First: uint64(after), Time: time.Now().UnixNano(), Records: id[:]}
}

// Parse returns the batch of an entry of a log that is known to be complete, such as one that other servers have
// too: the times to live count from the entry's time. An entry without updates, of which Named has the identity, has
// no spans. They use the memory of the given ones.
func Parse(e *commit.Entry, spans []buf.Span) (b state.Entry, err error) {
	if e.Kind != kindRecords && e.Kind != kindSent {
		_, err = parse(e, new(state.State), spans)
		return b, err
	}
	c, err := parse(e, nil, spans)
	if err != nil || len(c.spans) == 0 {
		return b, err
	}
	b = state.Entry{Head: c.sent, Wire: c.wire, Spans: c.spans, Stamped: true}
	b.Reign, b.First, b.Count, b.At = e.Epoch, kvmsg.Record(c.wire[c.spans[0].Start:]).Seq(), uint32(len(c.spans)), when(e)
	return b, nil
}

// when returns when an entry was made, and not later than now, if the wall clock has been set back since.
func when(e *commit.Entry) time.Duration { return timer.Now() + min(time.Until(e.When()), 0) }

// NameOf returns the identity of the map in an entry that Named has returned, and the sequence.
func NameOf(e *commit.Entry) (id [ledger.MapIDSize]byte, after int64, ok bool) {
	if e.Kind != kindMapID || len(e.Records) != ledger.MapIDSize {
		return id, 0, false
	}
	return [ledger.MapIDSize]byte(e.Records), int64(e.First), true
}

var errEntry = errors.New("chp: invalid entry")

// parse parses an entry. If it is a section of the state, it is added to a state. The
// updates' spans use the memory of the given ones. An entry of a newer version is a
// [*commit.FormatError], and an invalid one, although its checksum is right, a
// [*commit.CorruptError].
func parse(e *commit.Entry, to *state.State, spans []buf.Span) (c content, err error) {
	ok := true
	c.wire = e.Records
	switch e.Kind {
	case kindMapID:
		if bytes.Equal(e.Records, make([]byte, ledger.MapIDSize)) {
			return c, nil // of a node: only its sequences went on elsewhere
		}
		ok = to.Restore(state.Section{Kind: state.Kind(e.Kind), Body: e.Records}, 0) == nil
	case kindOrigins, kindReigns, kindHistory, kindRequests:
		ok = to.Restore(state.Section{Kind: state.Kind(e.Kind), Body: e.Records}, 0) == nil
	case kindSent:
		if ok = len(c.wire) >= sentHeadSize; ok {
			c.sent.Client, c.sent.Counter = ledger.ID(c.wire), binary.BigEndian.Uint64(c.wire[len(c.sent.Client):])
			c.wire = c.wire[sentHeadSize:]
			c.spans, ok = kvmsg.SpansOf(c.wire, spans[:0])
		}
	case kindRecords:
		c.spans, ok = kvmsg.SpansOf(c.wire, spans[:0])
	default:
		return c, &commit.FormatError{What: fmt.Sprintf("entry %d of the log", e.Index), Unit: "entry kind", Version: e.Kind, Newest: kindNewest}
	}
	if !ok {
		err = &commit.CorruptError{Reason: fmt.Errorf("%w %d of kind %d", errEntry, e.Index, e.Kind)}
	}
	return c, err
}

// Check returns a function that reports whether a server can replay an entry, or a node if it is about its
// cluster. The error is a [*commit.FormatError] or a [*commit.CorruptError].
func Check() func(commit.Entry) error {
	var spans []buf.Span
	return func(e commit.Entry) error {
		if e.OfCluster() {
			return nil
		}
		c, err := parse(&e, new(state.State), spans)
		if c.spans != nil {
			spans = c.spans
		}
		return err
	}
}
