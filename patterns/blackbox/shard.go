package blackbox

import (
	"context"
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"

	"clustermap/sockets"
	"clustermap/zmtp"
)

// shard receives its part of the topics.
type shard struct {
	index   int
	sub     *sockets.Sub
	seed    maphash.Seed
	key     func(zmtp.Message) []byte // nil: the first frame
	inside  bool                      // its only worker has no goroutine of its own
	workers []*worker
	free    parcels
	thread  thread

	messages, batches atomic.Uint64
}

// worker calls Handle.
type worker struct {
	shard  *shard
	number int // of all workers of the box
	handle func(*Batch)
	kept   bool // Handle has called Keep; its goroutine's
	queue  queue
	thread thread
}

// run receives until the socket is closed.
func (s *shard) run() {
	s.thread.pin()
	for {
		p := s.free.get()
		if p == nil {
			p = s.newParcel()
		}
		// The only error without a limit on the wait is that the socket is closed.
		if s.sub.RecvBatch(context.Background(), &p.batch) != nil {
			return
		}
		s.messages.Add(uint64(p.batch.Len()))
		s.batches.Add(1)
		s.deal(p)
	}
}

// deal gives the workers their parts of a parcel.
func (s *shard) deal(p *parcel) {
	p.divide()
	p.users.Store(1)
	for i := range p.parts {
		b := &p.parts[i]
		if b.Len() == 0 {
			continue
		}
		b.held.Store(true)
		p.users.Add(1)
		w := b.worker
		given := false
		if s.inside {
			if given = w.queue.admit(b); given {
				w.work(b)
			}
		} else {
			given = w.queue.push(b)
		}
		if !given {
			b.held.Store(false)
			p.done()
		}
	}
	p.done()
}

// place finds the worker of each message, and counts each worker's.
func (s *shard) place(wire []byte, spans []sockets.Span, owner []uint16, counts []int) {
	n := uint64(len(counts))
	for i, span := range spans {
		m := zmtp.Message(wire[span.Start:span.End:span.End])
		var key []byte
		if s.key != nil {
			key = s.key(m)
		} else {
			key, _ = m.Next()
		}
		w, _ := bits.Mul64(maphash.Bytes(s.seed, key), n)
		owner[i] = uint16(w)
		counts[w]++
	}
}

// run works until the queue is closed.
func (w *worker) run() {
	w.thread.pin()
	for {
		b := w.queue.pop()
		if b == nil {
			return
		}
		w.work(b)
	}
}

func (w *worker) work(b *Batch) {
	w.kept = false
	w.handle(b)
	if !w.kept {
		b.Release()
	}
}

// parcels are a shard's parcels that are not in use. There are as many as the
// bounds of its workers let it have in use at once; the one used last is the next.
type parcels struct {
	mu  sync.Mutex
	all []*parcel
}

func (f *parcels) get() *parcel {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(f.all)
	if n == 0 {
		return nil
	}
	p := f.all[n-1]
	f.all = f.all[:n-1]
	return p
}

func (f *parcels) put(p *parcel) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, p)
}
