package member

import (
	"encoding/binary"
	"time"

	"clustermap/chp/internal/ledger"
	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
)

// A note between two members is an item or the answer to one. Numbers are in network order.
//
//	item    'I' | kind 1 | term 8 | run 8 | stream 8 | number 8 | client 16 | generation 8 | size of author 2 | author | body
//	answer  'A' | kind 1 | term 8 | run 8 | stream 8 | number 8 | sequence 8 | body
//
// A run is one of the relaying node's process.
const (
	noteItem   = 'I'
	noteAnswer = 'A'
	noteHead   = 2 + 4*8
)

// Kinds of items, and their bodies.
const (
	// kindUpdates: numbered records, one after the other, or none. The body of the answer has one byte, whether some had
	// come before, and 4 bytes for each that the map has no room for: its place.
	kindUpdates = 'U'
	// kindRequests: requests in wire form (package txn), one after the other. The body of the answer has their answers.
	kindRequests = 'R'
	// kindLeases: one byte, the wire.LeaseKind, and the identities. The body of the answer has 8 bytes for each.
	kindLeases = 'L'
)

// place is where an item is in what a node relays.
type place struct {
	kind                      byte
	term, run, stream, number uint64
}

func appendPlace(dst []byte, note byte, p place) []byte {
	dst = append(dst, note, p.kind)
	for _, n := range [...]uint64{p.term, p.run, p.stream, p.number} {
		dst = binary.BigEndian.AppendUint64(dst, n)
	}
	return dst
}

// parsePlace parses the head of a note.
func parsePlace(b []byte) (note byte, p place, rest []byte, ok bool) {
	if len(b) < noteHead {
		return 0, p, nil, false
	}
	p.kind = b[1]
	for i, to := range [...]*uint64{&p.term, &p.run, &p.stream, &p.number} {
		*to = binary.BigEndian.Uint64(b[2+8*i:])
	}
	return b[0], p, b[noteHead:], true
}

// sent is what an item has behind its place.
type sent struct {
	client     ledger.ID
	generation uint64 // of its connection
	by         string // the author, or ""
	body       []byte
}

func appendSent(dst []byte, s *sent) []byte {
	dst = append(dst, s.client[:]...)
	dst = binary.BigEndian.AppendUint64(dst, s.generation)
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(s.by)))
	dst = append(dst, s.by...)
	return append(dst, s.body...)
}

func parseSent(b []byte) (s sent, ok bool) {
	if len(b) < len(s.client)+8+2 {
		return s, false
	}
	s.client = ledger.ID(b)
	b = b[len(s.client):]
	s.generation = binary.BigEndian.Uint64(b)
	b = b[8:]
	n := int(binary.BigEndian.Uint16(b))
	if b = b[2:]; len(b) < n {
		return s, false
	}
	s.by, s.body = string(b[:n]), b[n:]
	return s, true
}

// reasonShift is where the answer to updates has the reason for a refusal: above the place of the update in its batch.
const reasonShift = 24

// parseUpdated parses the answer to updates. It returns those that are refused, in records, with the reasons as tags.
func parseUpdated(b, records []byte) (repeated bool, unfit []buf.Span) {
	if len(b) <= 1 {
		return len(b) > 0 && b[0] != 0, nil
	}
	spans, _ := kvmsg.SpansOf(records, nil)
	repeated = b[0] != 0
	for b = b[1:]; len(b) >= 4; b = b[4:] {
		reason, i := binary.BigEndian.Uint32(b)>>reasonShift, binary.BigEndian.Uint32(b)&(1<<reasonShift-1)
		if int64(i) < int64(len(spans)) {
			unfit = append(unfit, buf.Span{Start: spans[i].Start, End: spans[i].End, Tag: uint64(reason)})
		}
	}
	return repeated, unfit
}

// parseLeft parses the answer to a question about leases.
func parseLeft(b []byte) (all []time.Duration) {
	for ; len(b) >= 8; b = b[8:] {
		all = append(all, time.Duration(binary.BigEndian.Uint64(b)))
	}
	return all
}
