package state

import (
	"encoding/binary"
	"time"

	"clustermap/chp/internal/ledger"
	"clustermap/internal/timer"
)

// Head describes a batch of updates. The servers of a pair send it before the
// batch.
type Head struct {
	Reign uint64 // in which the batch was made
	First int64  // sequence of its first update
	Count uint32 // number of updates

	// The client that sent the batch and the order number of its last update. counter is 0
	// if the updates have no numbers or do not come from a client; with an identity they are
	// those of the client's requests (see package txn).
	Client  ledger.ID
	Counter uint64

	// When the batch was made, on clock; times to live count from then. The wire form has
	// its age.
	At time.Duration
}

const batchHeadSize = 8 + 8 + 4 + len(ledger.ID{}) + 8 + 8

func (h *Head) Last() int64 { return h.First + int64(h.Count) - 1 }

// requests reports whether the batch is of requests.
func (h *Head) requests() bool { return h.Counter == 0 && h.Client != (ledger.ID{}) }

func (h *Head) Append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, h.Reign)
	dst = binary.BigEndian.AppendUint64(dst, uint64(h.First))
	dst = binary.BigEndian.AppendUint32(dst, h.Count)
	dst = append(dst, h.Client[:]...)
	dst = binary.BigEndian.AppendUint64(dst, h.Counter)
	return binary.BigEndian.AppendUint64(dst, uint64(max(timer.Now()-h.At, 0)))
}

func ParseHead(b []byte) (h Head, ok bool) {
	if len(b) != batchHeadSize {
		return h, false
	}
	h.Reign = binary.BigEndian.Uint64(b)
	h.First = int64(binary.BigEndian.Uint64(b[8:]))
	h.Count = binary.BigEndian.Uint32(b[16:])
	h.Client = ledger.ID(b[20:])
	h.Counter = binary.BigEndian.Uint64(b[36:])
	age := time.Duration(binary.BigEndian.Uint64(b[44:]))
	h.At = timer.Now() - age
	return h, h.First > 0 && h.Count > 0 && age >= 0 && h.First <= maxSequence && Reign{h.Reign, h.Last()}.possible()
}
