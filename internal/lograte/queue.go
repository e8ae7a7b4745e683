package lograte

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"clustermap/internal/wake"
)

// Queue decouples servers and clients from a slow logger. Records are queued, and a
// goroutine passes them to the logger: a pipe that is not read must not block
// connections or keep a server from ending. The queue is bounded: records beyond it are
// counted, and the count is logged when there is room again.
//
// Records of one kind, those with the same message, are limited in rate, because peers
// can cause any number of them. Those left out are counted, and the count is logged
// too. Debug records are queued but not limited.
type Queue struct {
	handler slog.Handler

	mu      sync.Mutex
	entries []queued // in order; queueRoom of them at most
	kinds   map[string]*kind
	dropped uint64        // records without room since the last report
	wake    chan struct{} // capacity 1
	ended   chan struct{} // closed when the goroutine has ended; nil before it starts
	closed  bool

	abandoned atomic.Bool // close has stopped waiting: queued records are dropped
}

// queued is a record and its handler.
type queued struct {
	handler slog.Handler
	record  slog.Record
}

// kind counts the records with one message in the current period.
type kind struct {
	begun   time.Time
	level   slog.Level
	n       int
	omitted uint64       // records omitted since the last report
	handler slog.Handler // of the last omitted record
}

// NewQueue returns an empty queue for a handler.
func NewQueue(h slog.Handler) *Queue {
	return &Queue{handler: h, kinds: map[string]*kind{}, wake: make(chan struct{}, 1)}
}

// Logger returns a logger that never waits.
func (q *Queue) Logger() *slog.Logger { return slog.New(queuedHandler{q, q.handler}) }

// queuedHandler is a slog.Handler that queues for another one.
type queuedHandler struct {
	queue *Queue
	next  slog.Handler
}

func (h queuedHandler) Enabled(ctx context.Context, l slog.Level) bool { return h.next.Enabled(ctx, l) }

func (h queuedHandler) Handle(_ context.Context, r slog.Record) error {
	h.queue.put(queued{h.next, r.Clone()})
	return nil
}

func (h queuedHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return queuedHandler{h.queue, h.next.WithAttrs(attrs)}
}

func (h queuedHandler) WithGroup(name string) slog.Handler {
	return queuedHandler{h.queue, h.next.WithGroup(name)}
}

// put queues or counts a record. It does not wait.
func (q *Queue) put(e queued) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return
	case e.record.Level > slog.LevelDebug && !q.allow(e):
		return
	case len(q.entries) >= queueRoom:
		q.dropped++
		return
	}
	q.entries = append(q.entries, e)
	if q.ended == nil {
		q.ended = make(chan struct{})
		go q.run()
	}
	wake.Signal(q.wake)
}

// allow reports whether a record is within the rate of its kind. mu must be held.
func (q *Queue) allow(e queued) bool {
	name := e.record.Message
	k := q.kinds[name]
	if k == nil {
		if len(q.kinds) >= mostKinds {
			name = ""
			k = q.kinds[name]
		}
		if k == nil {
			k = &kind{}
			q.kinds[name] = k
		}
	}
	if now := time.Now(); now.Sub(k.begun) >= period {
		k.begun, k.n = now, 0
	}
	if k.n++; k.n <= perKind {
		return true
	}
	if k.omitted++; k.omitted == 1 {
		wake.Signal(q.wake) // run may sleep without its ticker, and must report this
	}
	k.level, k.handler = e.record.Level, e.handler
	return false
}

// run passes records to the logger until the queue is closed and empty.
func (q *Queue) run() {
	defer close(q.ended)
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	var batch []queued
	for {
		q.mu.Lock()
		batch, q.entries = q.entries, batch[:0]
		var waiting bool
		batch, waiting = q.report(batch)
		closed := q.closed
		q.mu.Unlock()
		for i, e := range batch {
			if q.abandoned.Load() {
				return
			}
			_ = e.handler.Handle(context.Background(), e.record) // there is no one to report the error to
			batch[i] = queued{}
		}
		if len(batch) > 0 {
			continue
		}
		if closed {
			return
		}
		if !waiting {
			ticker.Stop() // sleeps until there is a record
		} else {
			ticker.Reset(period)
		}
		select {
		case <-q.wake:
		case <-ticker.C:
		}
	}
}

// report adds records about omitted ones: for each kind once its period is over, or
// when the queue is closed. It reports whether some periods are not over yet. mu must be
// held.
func (q *Queue) report(batch []queued) (all []queued, waiting bool) {
	if q.dropped > 0 {
		r := slog.NewRecord(time.Now(), slog.LevelWarn, "log records dropped: the logger is too slow", 0)
		r.AddAttrs(slog.Uint64("count", q.dropped))
		batch = append(batch, queued{q.handler, r})
		q.dropped = 0
	}
	for message, k := range q.kinds {
		if k.omitted == 0 {
			continue
		}
		if !q.closed && time.Since(k.begun) < period {
			waiting = true
			continue
		}
		if message == "" {
			message = "other records"
		}
		r := slog.NewRecord(time.Now(), k.level, message, 0)
		r.AddAttrs(slog.Uint64("more", k.omitted))
		batch = append(batch, queued{k.handler, r})
		k.omitted, k.handler = 0, nil
	}
	return batch, waiting
}

// Close stops accepting records, and waits up to linger for the logger to take the
// queued ones. If the logger blocks longer, the goroutine ends when it returns.
func (q *Queue) Close() {
	q.mu.Lock()
	q.closed = true
	ended := q.ended
	wake.Signal(q.wake)
	q.mu.Unlock()
	if ended == nil {
		return
	}
	timer := time.NewTimer(linger)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
		q.abandoned.Store(true)
	}
}
