package chp

import (
	"encoding/binary"
	"slices"
)

// reign is a server's term as the active one of a pair, and the last update of it that
// a server has. Its id differs from those of all other reigns of the map.
type reign struct {
	id   uint64 // see newReign
	last int64
}

// maxReigns bounds the reigns that are remembered, including the newest. Reigns without
// an update are not remembered.
const maxReigns = 256

const reignSize = 8 + 8

// advance sets the last update and its reign. mu must be held.
func (q *sequencer) advance(id uint64, last int64) {
	if id != q.newest.id && q.newest.last > 0 {
		if len(q.reigns) >= maxReigns-1 {
			q.reigns = slices.Delete(q.reigns, 0, len(q.reigns)-(maxReigns-2))
		}
		q.reigns = append(q.reigns, q.newest)
	}
	q.newest = reign{id, last}
}

// history returns the reigns of the map, oldest first. mu must be held.
func (q *sequencer) history() []reign {
	return append(slices.Clone(q.reigns), q.newest)
}

// setHistory sets the reigns of the map. mu must be held.
func (q *sequencer) setHistory(h []reign) {
	n := len(h) - 1
	q.reigns, q.newest = slices.Clone(h[:n]), h[n]
	q.reign = q.newest.id
}

// common returns the sequence of the last update that two histories of one map have in
// common, or 0 if it is not known.
func common(a, b []reign) int64 {
	for _, mine := range slices.Backward(a) {
		for _, other := range slices.Backward(b) {
			if mine.id == other.id {
				return min(mine.last, other.last)
			}
		}
	}
	return 0
}

// appendReigns appends the wire form of a history.
func appendReigns(dst []byte, h []reign) []byte {
	for _, r := range h {
		dst = binary.BigEndian.AppendUint64(dst, r.id)
		dst = binary.BigEndian.AppendUint64(dst, uint64(r.last))
	}
	return dst
}

// parseReigns parses a history of at least one reign.
func parseReigns(b []byte) (h []reign, ok bool) {
	n := len(b) / reignSize
	if len(b)%reignSize != 0 || n == 0 || n > maxReigns {
		return nil, false
	}
	h = make([]reign, n)
	for i := range h {
		h[i] = reign{binary.BigEndian.Uint64(b[i*reignSize:]), int64(binary.BigEndian.Uint64(b[i*reignSize+8:]))}
		if h[i].last < 0 {
			return nil, false
		}
	}
	return h, true
}
