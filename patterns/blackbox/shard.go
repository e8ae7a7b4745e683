package blackbox

import (
	"context"
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"

	"clustermap/internal/buf"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// shard receives the messages of a Shard.
type shard struct {
	index   int
	sub     *sockets.Sub
	seed    maphash.Seed
	key     func(zmtp.WireMessage) []byte // nil: the first frame
	inline  bool                          // run calls Handle; the only worker has no goroutine
	workers []*worker
	free    chunkPool
	thread  thread

	messages, batches atomic.Uint64
}

// worker calls Handle.
type worker struct {
	shard  *shard
	number int // unique in the box
	handle func(*Batch)
	kept   bool // Handle has called Keep
	queue  queue
	thread thread
}

// run receives until the socket is closed.
func (s *shard) run() {
	s.thread.pin()
	for {
		p := s.free.get()
		if p == nil {
			p = s.newChunk()
		}
		// The only possible error is that the socket is closed.
		if s.sub.RecvBatch(context.Background(), &p.batch) != nil {
			return
		}
		s.messages.Add(uint64(p.batch.Len()))
		s.batches.Add(1)
		s.distribute(p)
	}
}

// distribute passes the parts of a chunk to the workers.
func (s *shard) distribute(p *chunk) {
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
		accepted := false
		if s.inline {
			if accepted = w.queue.admit(b); accepted {
				w.work(b)
			}
		} else {
			accepted = w.queue.push(b)
		}
		if !accepted {
			b.held.Store(false)
			p.done()
		}
	}
	p.done()
}

// assignWorkers sets the worker of each message, and counts the messages of each worker.
func (s *shard) assignWorkers(wire []byte, spans []buf.Span, owner []uint16, counts []int) {
	n := uint64(len(counts))
	for i, span := range spans {
		m := zmtp.WireMessage(wire[span.Start:span.End:span.End])
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

// run handles batches until the queue is closed.
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

// chunkPool has the unused chunks of a shard. The queues of its workers bound the number
// of chunks. The most recently used one is the next.
type chunkPool struct {
	mu  sync.Mutex
	all []*chunk
}

func (f *chunkPool) get() *chunk {
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

func (f *chunkPool) put(p *chunk) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, p)
}
