package submit

import (
	"encoding/binary"
	"slices"
	"sync"

	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
)

// stage is a pooled chunk with KVSETs in wire form, one after the other. Their numbers are
// consecutive. At a server of this package they are in the sequence fields.
type stage struct {
	next     *stage
	chunk    *buf.Chunk
	bytes    []byte
	messages int
	first    uint64 // number of the first one
	numbered bool   // the sequence fields of unsent updates have their numbers; otherwise 0
	stale    bool   // unsent updates have numbers, and UUIDs, that are too high
	sent     mark   // where sending continues
}

// last returns the number of the last update.
func (s *stage) last() uint64 { return s.first + uint64(s.messages) - 1 }

// seek returns the position of the update with a number, or of the end.
func (s *stage) seek(n uint64) (at mark) {
	for at.bytes < len(s.bytes) && s.first+uint64(at.messages) < n {
		at.bytes += kvmsg.Record(s.bytes[at.bytes:]).Size()
		at.messages++
	}
	return at
}

// mark is a position between two updates of a stage.
type mark struct{ bytes, messages int }

// clear frees all stages. mu must be held.
func (w *Writer) clear() {
	for w.first != nil {
		w.free()
	}
	w.dropped = nil
}

// free frees the first stage. mu must be held.
func (w *Writer) free() {
	s := w.first
	w.first = s.next
	if w.turn == s {
		w.turn = s.next
	}
	if w.stage == s {
		w.stage = nil
	}
	w.bytes -= len(s.bytes)
	s.chunk.Release()
	*s = stage{}
	stages.Put(s)
}

// hasRoom reports whether there is room for size more bytes. mu must be held.
func (w *Writer) hasRoom(size int) bool {
	s := w.stage
	switch {
	case s == nil:
		return true
	case w.account.Keeps() && w.bytes+size > w.opts.SendQueue:
		return false
	case len(s.bytes)+size <= cap(s.bytes):
		return true
	}
	w.advance()
	return w.turn == s // otherwise a full stage waits already
}

// advance moves turn past the stages that were sent. mu must be held.
func (w *Writer) advance() {
	for w.turn != nil && w.turn.next != nil && w.turn.sent.bytes == len(w.turn.bytes) {
		w.turn = w.turn.next
	}
}

// append stages one KVSET, for which there is room. mu must be held.
func (w *Writer) append(size int, number uint64, key, props, value []byte) {
	s := w.stage
	if s == nil || len(s.bytes)+size > cap(s.bytes) {
		s = w.add(size, number)
	}
	sequence := int64(0)
	if s.numbered {
		sequence = int64(number)
	}
	high, low := w.uuids.code(number)
	s.bytes = kvmsg.AppendUpdate(s.bytes, key, sequence, high, low, props, value)
	s.messages++
	w.bytes += size
}

var stages = sync.Pool{New: func() any { return new(stage) }}

// add appends a new stage for at least size bytes, whose first update has a number. mu
// must be held.
func (w *Writer) add(size int, number uint64) *stage {
	s := stages.Get().(*stage)
	s.chunk = buf.Get(max(size, w.size))
	s.bytes = s.chunk.Data()[:0]
	s.first, s.numbered = number, w.server != nil && w.server.Ours
	if w.stage != nil {
		w.stage.next = s
	} else {
		w.first, w.turn = s, s
	}
	w.stage = s
	return s
}

// cut removes dropped updates from a stage, except those that were sent once. Those behind
// them get lower numbers. mu must be held.
func (w *Writer) cut(s *stage) {
	if len(w.dropped) == 0 {
		return
	}
	sent, last := w.account.Sent(), s.last()
	at := s.seek(max(sent+1, s.first+uint64(s.sent.messages)))
	kept := s.bytes[:at.bytes]
	var gone []uint64
	n := s.first + uint64(at.messages)
	for rest := kvmsg.Record(s.bytes[at.bytes:]); len(rest) > 0; n++ {
		r := rest[:rest.Size()]
		rest = rest[len(r):]
		if slices.Contains(w.dropped, n) {
			gone = append(gone, n)
			continue
		}
		kept = append(kept, r...)
	}
	w.bytes -= len(s.bytes) - len(kept)
	s.bytes, s.messages = kept, s.messages-len(gone)
	for _, n := range slices.Backward(gone) {
		w.account.Remove(n)
	}
	w.dropped = slices.DeleteFunc(w.dropped, func(n uint64) bool { return n <= last })
	for i := range w.dropped {
		w.dropped[i] -= uint64(len(gone))
	}
	if len(gone) > 0 {
		s.stale = true
		for s = s.next; s != nil; s = s.next {
			s.first, s.stale = s.first-uint64(len(gone)), true
		}
	}
}

// number brings the sequence fields of the unsent updates of a stage, and their UUIDs, into
// line with their numbers and with the server: one of another implementation gets none.
// mu must be held.
func (w *Writer) number(s *stage, ours bool) {
	if s.numbered == ours && !s.stale {
		return
	}
	for at := s.sent; at.bytes < len(s.bytes); at.messages++ {
		r := kvmsg.Record(s.bytes[at.bytes:])
		n := s.first + uint64(at.messages)
		if n > w.account.Sent() {
			high, low := w.uuids.code(n)
			binary.BigEndian.PutUint64(r.UUID(), high)
			binary.BigEndian.PutUint64(r.UUID()[8:], low)
		}
		if !ours {
			n = 0
		}
		r.SetSeq(int64(n))
		at.bytes += r.Size()
	}
	s.numbered, s.stale = ours, false
}

// reclaim frees the stages at the beginning that are no longer needed. mu must be held.
func (w *Writer) reclaim() {
	for s := w.first; s != nil && s.sent.bytes == len(s.bytes) && w.account.Done(s.last()); s = w.first {
		w.free()
		w.signalRoom()
	}
}
