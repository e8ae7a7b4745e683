package chp

import (
	"clustermap/chp/internal/ledger"
	"clustermap/internal/timer"
	"encoding/binary"
	"time"
)

// batchHead describes a batch of updates. The servers of a pair send it before the
// batch.
type batchHead struct {
	reign uint64 // in which the batch was made
	first int64  // sequence of its first update
	count uint32 // number of updates

	// The client that sent the batch and the order number of its last update. counter is 0
	// if the updates have no numbers or do not come from a client.
	id      ledger.ID
	counter uint64

	// When the batch was made, on clock; times to live count from then. The wire form has
	// its age.
	at time.Duration
}

const batchHeadSize = 8 + 8 + 4 + len(ledger.ID{}) + 8 + 8

func (h *batchHead) last() int64 { return h.first + int64(h.count) - 1 }

func (h *batchHead) append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, h.reign)
	dst = binary.BigEndian.AppendUint64(dst, uint64(h.first))
	dst = binary.BigEndian.AppendUint32(dst, h.count)
	dst = append(dst, h.id[:]...)
	dst = binary.BigEndian.AppendUint64(dst, h.counter)
	return binary.BigEndian.AppendUint64(dst, uint64(max(timer.Now()-h.at, 0)))
}

func parseBatchHead(b []byte) (h batchHead, ok bool) {
	if len(b) != batchHeadSize {
		return h, false
	}
	h.reign = binary.BigEndian.Uint64(b)
	h.first = int64(binary.BigEndian.Uint64(b[8:]))
	h.count = binary.BigEndian.Uint32(b[16:])
	h.id = ledger.ID(b[20:])
	h.counter = binary.BigEndian.Uint64(b[36:])
	age := time.Duration(binary.BigEndian.Uint64(b[44:]))
	h.at = timer.Now() - age
	return h, h.first > 0 && h.count > 0 && age >= 0 && h.first <= maxSequence && reign{h.reign, h.last()}.possible()
}
