package chp

import (
	"encoding/binary"
	"errors"
	"fmt"

	"clustermap/chp/commit"
	"clustermap/chp/internal/ledger"
	"clustermap/chp/internal/state"
	"clustermap/internal/kvmsg"
	"clustermap/sockets"
)

// storedEntry is the content of an entry of the log.
type storedEntry struct {
	sent  state.Head     // of kindSent: id and counter
	wire  []byte         // updates
	spans []sockets.Span // of the updates
}

var errEntry = errors.New("chp: invalid entry")

// parseStored parses an entry. If it is a section of the state, it is added to a state. The
// updates' spans use the memory of the given ones. An entry of a newer version is a [*commit.FormatError], and an invalid one, although its checksum is
// right, a [*commit.CorruptError].
func parseStored(e *commit.Entry, to *state.State, spans []sockets.Span) (l storedEntry, err error) {
	ok := true
	l.wire = e.Records
	switch e.Kind {
	case kindOrigins, kindMapID, kindReigns:
		ok = to.Restore(state.Section{Kind: state.Kind(e.Kind), Body: e.Records}, 0) == nil
	case kindSent:
		if ok = len(l.wire) >= sentHeadSize; ok {
			l.sent.Client, l.sent.Counter = ledger.ID(l.wire), binary.BigEndian.Uint64(l.wire[len(l.sent.Client):])
			l.wire = l.wire[sentHeadSize:]
			l.spans, ok = kvmsg.SpansOf(l.wire, spans[:0])
		}
	case kindRecords:
		l.spans, ok = kvmsg.SpansOf(l.wire, spans[:0])
	default:
		return l, &commit.FormatError{What: fmt.Sprintf("entry %d of the log", e.Index), Unit: "entry kind", Version: e.Kind, Newest: kindNewest}
	}
	if !ok {
		err = &commit.CorruptError{Reason: fmt.Errorf("%w %d of kind %d", errEntry, e.Index, e.Kind)}
	}
	return l, err
}

// EntryCheck returns a function that reports whether a server can replay an entry of its
// log, as it does when it starts: for durable.Check and durable.ReadBackup, which only check
// what is around the content of entries. The error is a [*commit.FormatError] or a
// [*commit.CorruptError].
func EntryCheck() func(commit.Entry) error {
	var spans []sockets.Span
	return func(e commit.Entry) error {
		l, err := parseStored(&e, new(state.State), spans)
		if l.spans != nil {
			spans = l.spans
		}
		return err
	}
}
