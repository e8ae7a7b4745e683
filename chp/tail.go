package chp

import (
	"encoding/binary"

	"clustermap/internal/store"
)

// batchHead says what a batch of updates is. The servers of a pair send it ahead of
// the batch.
type batchHead struct {
	epoch uint64 // the reign in which it was made
	first int64  // sequence of its first update
	count uint32 // its updates

	// The client that sent it, and the order number of its last update; the counter
	// is 0 if it does not number its updates, or none sent them.
	id      clientID
	counter uint64
}

const batchHeadSize = 8 + 8 + 4 + len(clientID{}) + 8

func (h *batchHead) last() int64 { return h.first + int64(h.count) - 1 }

func (h *batchHead) append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, h.epoch)
	dst = binary.BigEndian.AppendUint64(dst, uint64(h.first))
	dst = binary.BigEndian.AppendUint32(dst, h.count)
	dst = append(dst, h.id[:]...)
	return binary.BigEndian.AppendUint64(dst, h.counter)
}

func parseBatchHead(b []byte) (h batchHead, ok bool) {
	if len(b) != batchHeadSize {
		return h, false
	}
	h.epoch = binary.BigEndian.Uint64(b)
	h.first = int64(binary.BigEndian.Uint64(b[8:]))
	h.count = binary.BigEndian.Uint32(b[16:])
	h.id = clientID(b[20:])
	h.counter = binary.BigEndian.Uint64(b[36:])
	return h, h.first > 0 && h.count > 0
}

// tail is the last updates of a server of a pair, for the other one, which follows.
// A follower is a position in it: a number that rises by one from batch to batch.
//
// The segments of its batches are retained, so it is bounded in bytes. Guarded by the
// sequencer's mutex.
type tail struct {
	on      bool
	batches []tailBatch
	first   int    // index in batches of the oldest
	begin   uint64 // its position
	bytes   int
	grown   chan struct{} // closed when a batch is added; nil while nobody waits
}

type tailBatch struct {
	batchHead
	pieces []store.Piece
	bytes  int
}

const (
	// tailBytes bounds the updates in the tail.
	tailBytes = 64 << 20
	// tailSpare is from how many dropped batches on the slice is moved.
	tailSpare = 1024
)

// end returns the position behind the newest batch.
func (t *tail) end() uint64 { return t.begin + uint64(len(t.batches)-t.first) }

// add appends a batch.
func (t *tail) add(h batchHead, pieces []store.Piece) {
	if !t.on {
		return
	}
	b := tailBatch{batchHead: h, pieces: append([]store.Piece(nil), pieces...), bytes: heldBytes}
	for _, p := range pieces {
		p.Segment.Retain()
		b.bytes += p.Size()
	}
	t.bytes += b.bytes
	t.batches = append(t.batches, b)
	for t.bytes > tailBytes && len(t.batches)-t.first > 1 {
		t.drop()
	}
	if t.grown != nil {
		close(t.grown)
		t.grown = nil
	}
}

// drop ends the oldest batch.
func (t *tail) drop() {
	b := &t.batches[t.first]
	for _, p := range b.pieces {
		p.Segment.Release()
	}
	t.bytes -= b.bytes
	*b = tailBatch{}
	t.first++
	t.begin++
	if t.first >= tailSpare && t.first > len(t.batches)/2 {
		n := copy(t.batches, t.batches[t.first:])
		clear(t.batches[n:])
		t.batches, t.first = t.batches[:n], 0
	}
}

// clear ends all batches: what follows does not follow from them.
func (t *tail) clear() {
	for t.first < len(t.batches) {
		t.drop()
	}
	t.begin++ // no position before is good any more
}

// behind returns the position of the first batch that a server does not have which
// has everything up to a sequence of a reign, and false if the tail does not go back
// so far.
func (t *tail) behind(epoch uint64, last int64) (position uint64, ok bool) {
	for i := len(t.batches) - 1; i >= t.first; i-- {
		if b := &t.batches[i]; b.last() <= last {
			return t.begin + uint64(i-t.first) + 1, b.last() == last && b.epoch == epoch
		}
	}
	return 0, false
}

// read appends batches from a position on, up to a number of bytes, and retains
// them. It reports false if the position is no longer in the tail.
func (t *tail) read(position uint64, size int, dst []tailBatch) (_ []tailBatch, ok bool) {
	if position < t.begin || position > t.end() {
		return dst, false
	}
	for _, b := range t.batches[t.first+int(position-t.begin):] {
		if size < 0 {
			break
		}
		size -= b.bytes
		for _, p := range b.pieces {
			p.Segment.Retain()
		}
		dst = append(dst, b)
	}
	return dst, true
}

// lag returns the bytes from a position on.
func (t *tail) lag(position uint64) (bytes int) {
	if position < t.begin {
		return t.bytes
	}
	for _, b := range t.batches[min(t.first+int(position-t.begin), len(t.batches)):] {
		bytes += b.bytes
	}
	return bytes
}

// more returns a channel that is closed when a batch is added.
func (t *tail) more() <-chan struct{} {
	if t.grown == nil {
		t.grown = make(chan struct{})
	}
	return t.grown
}
