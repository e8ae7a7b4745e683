package wire

import (
	"hash/maphash"
	"sync"

	"clustermap/internal/buf"
	"clustermap/internal/fifo"
	"clustermap/internal/hooks"
	"clustermap/internal/kvmsg"
)

var errThreeFrames = &kvmsg.MessageError{Reason: kvmsg.ReasonFrameCount, Detail: "want key, sequence, value"}

// widened is the greatest number of bytes that widen adds to a message: the headers of
// two frames, and a UUID.
const widened = 2 + kvmsg.UUIDSize + 2

// widen converts a batch of messages of three frames to records with empty properties.
// The UUID is the one that sent, which may be nil, has for the message. It drops
// messages that do not have three frames, and passes the errors to refused. It runs in
// hooks.Prepare, before the function that checks records.
func widen(b *hooks.Batch, refused func(error), sent *sentUpdates) {
	wire, spans := b.Wire(), b.Spans()
	size := 0
	for _, span := range spans {
		size += int(span.End-span.Start) + widened
	}
	if size == 0 {
		return
	}
	b.Rewrite(size, func(dst []byte) []buf.Span {
		out, kept := dst[:0], spans[:0]
		for _, span := range spans {
			start := len(out)
			var err error
			if out, err = appendWide(out, wire[span.Start:span.End], sent); err != nil {
				refused(err)
				continue
			}
			kept = append(kept, buf.Span{Start: uint32(start), End: uint32(len(out))})
		}
		return kept
	})
}

// appendWide appends the record of a message that should have three frames.
func appendWide(dst, m []byte, sent *sentUpdates) ([]byte, error) {
	var bodies [3][]byte
	if !kvmsg.Split(m, bodies[:]) {
		return dst, errThreeFrames
	}
	key, sequence, value := bodies[0], bodies[1], bodies[2]
	if len(sequence) != kvmsg.SequenceSize {
		return dst, kvmsg.ErrSequence
	}
	dst = kvmsg.AppendFrame(dst, key, kvmsg.FlagMore)
	dst = kvmsg.AppendFrame(dst, sequence, kvmsg.FlagMore)
	var uuid []byte
	if id, own := sent.match(key, value); own {
		uuid = id[:]
	}
	dst = kvmsg.AppendFrame(dst, uuid, kvmsg.FlagMore)
	dst = kvmsg.AppendFrame(dst, nil, kvmsg.FlagMore)
	return kvmsg.AppendFrame(dst, value, 0), nil
}

// appendThree appends a record as a message of three frames, which is shorter than the
// record.
func appendThree(dst []byte, r kvmsg.Record) []byte {
	size := r.Size()
	dst = append(dst, r[:r.KeyEnd()+2+kvmsg.SequenceSize]...)
	return append(dst, r[size-kvmsg.FrameSize(len(r.Value())):size]...)
}

// sentUpdates are the updates, in order, that a session has sent in three frames and
// that have not come back. It finds their UUIDs when they do.
//
// A nil *sentUpdates is empty. It is safe for concurrent use.
type sentUpdates struct {
	seed maphash.Seed
	most int // maxSentUpdates

	mu    sync.Mutex
	queue fifo.Queue[sentUpdate]
	count map[uint64]int // number of updates in the queue with a hash
}

type sentUpdate struct {
	hash uint64 // of key and value
	id   [kvmsg.UUIDSize]byte
}

func newSentUpdates(most int) *sentUpdates {
	return &sentUpdates{seed: maphash.MakeSeed(), most: most, count: map[uint64]int{}}
}

func (u *sentUpdates) hash(key, value []byte) uint64 {
	return maphash.Bytes(u.seed, key)*31 ^ maphash.Bytes(u.seed, value)
}

// note adds an update that is about to be sent.
func (u *sentUpdates) note(r kvmsg.Record) {
	id := r.UUID()
	if len(id) != kvmsg.UUIDSize {
		return
	}
	s := sentUpdate{hash: u.hash(r.Key(), r.Value()), id: [kvmsg.UUIDSize]byte(id)}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.queue.Len() == u.most {
		u.pop()
	}
	u.queue.Push(s)
	u.count[s.hash]++
}

// match returns the UUID of the oldest update with this key and value. It forgets that
// one and all that were sent before it, because updates come back in order.
func (u *sentUpdates) match(key, value []byte) (id [kvmsg.UUIDSize]byte, ok bool) {
	if u == nil {
		return id, false
	}
	hash := u.hash(key, value)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.count[hash] == 0 {
		return id, false
	}
	for {
		if s := u.pop(); s.hash == hash {
			return s.id, true
		}
	}
}

// pop removes the oldest update. mu must be held.
func (u *sentUpdates) pop() sentUpdate {
	s := u.queue.Pop()
	if n := u.count[s.hash]; n > 1 {
		u.count[s.hash] = n - 1
	} else {
		delete(u.count, s.hash)
	}
	return s
}
