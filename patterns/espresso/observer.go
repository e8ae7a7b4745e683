package espresso

import (
	"context"
	"errors"
	"io"
	"sync"

	"clustermap/sockets"
)

// ErrClosed is returned by an Observer that was closed.
var ErrClosed = errors.New("espresso: the observer is closed")

// Observer gets what a tap forwards, from Tap.Observe on. Next and Record are for one
// goroutine at a time; Stats and Close are safe for concurrent use.
type Observer struct {
	tap    *Tap
	filter Filter
	wake   chan struct{} // has room for one

	// What is being read.
	reading []byte
	rest    []byte

	mu              sync.Mutex
	stage           []byte // records that nobody has read
	last            int64  // the time of the last one
	lost, lostBytes uint64 // since the last record
	stats           ObserverStats
	ended, closed   bool

	probe Event // scratch of the filter
}

// ObserverStats counts what passed an observer's filter: messages, subscriptions and
// unsubscriptions. Bytes are those in wire form.
type ObserverStats struct {
	Messages, Bytes uint64 // queued for the observer
	Lost, LostBytes uint64 // for which there was no room
}

func newObserver(t *Tap, f Filter) *Observer {
	f.Topics = append([]string(nil), f.Topics...)
	return &Observer{tap: t, filter: f, wake: make(chan struct{}, 1)}
}

// Stats returns what there was for the observer so far.
func (o *Observer) Stats() ObserverStats {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.stats
}

// Close ends the observer. Next and Record return ErrClosed.
func (o *Observer) Close() {
	o.tap.mu.Lock()
	o.tap.change(func(all []*Observer) []*Observer {
		for i := range all {
			if all[i] == o {
				return append(all[:i], all[i+1:]...)
			}
		}
		return all
	})
	o.tap.mu.Unlock()
	o.mu.Lock()
	o.closed, o.stage = true, nil
	o.mu.Unlock()
	o.rouse()
}

// end says that the tap has ended.
func (o *Observer) end() {
	o.mu.Lock()
	o.ended = true
	o.mu.Unlock()
	o.rouse()
}

func (o *Observer) rouse() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// offer queues the messages that pass the filter and find room.
func (o *Observer) offer(seen sockets.Observed, from Direction, now int64) {
	if o.filter.From != 0 && o.filter.From != from {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return
	}
	now = max(now, o.last) // of two directions the later one may come first
	for i := range seen.Len() {
		if len(o.filter.Topics) > 0 {
			o.probe.From, o.probe.Frames = from, seen.AppendFrames(o.probe.Frames[:0], i)
			o.tap.ends.interpret(&o.probe)
			pass := o.filter.Pass(&o.probe)
			clear(o.probe.Frames)
			if !pass {
				continue
			}
		}
		size := seen.WireSize(i)
		need := recordHead + bodyHead + size
		if o.lost > 0 {
			need += recordHead + lostBody
		}
		if need > o.tap.queue-len(o.stage) {
			o.lost++
			o.lostBytes += uint64(size)
			o.stats.Lost++
			o.stats.LostBytes += uint64(size)
			continue
		}
		o.tell(now)
		o.stage = appendHead(o.stage, byte(from), now, size)
		o.stage = seen.AppendWire(o.stage, i)
		o.stats.Messages++
		o.stats.Bytes += uint64(size)
	}
	o.last = now
	if len(o.stage) > 0 || o.lost > 0 {
		o.rouse()
	}
}

// tell queues a record of what was lost, if anything was. mu must be held.
func (o *Observer) tell(now int64) {
	if o.lost > 0 {
		o.stage = appendLost(o.stage, now, o.lost, o.lostBytes)
		o.lost, o.lostBytes = 0, 0
	}
}

// fetch waits for records and returns all of them. They are valid until the next
// call.
func (o *Observer) fetch(ctx context.Context) ([]byte, error) {
	for {
		o.mu.Lock()
		o.tell(o.last)
		switch {
		case o.closed:
			o.mu.Unlock()
			return nil, ErrClosed
		case len(o.stage) > 0:
			o.stage, o.reading = o.reading[:0], o.stage
			o.mu.Unlock()
			return o.reading, nil
		case o.ended:
			o.mu.Unlock()
			return nil, io.EOF
		}
		o.mu.Unlock()
		select {
		case <-o.wake:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Next waits for the next event and puts it into e, whose memory it uses again. It
// returns io.EOF when the tap has ended and nothing is left, ErrClosed, or the
// context's error.
func (o *Observer) Next(ctx context.Context, e *Event) error {
	if len(o.rest) == 0 {
		var err error
		if o.rest, err = o.fetch(ctx); err != nil {
			return err
		}
	}
	var body []byte
	body, o.rest = nextRecord(o.rest)
	o.tap.ends.decode(body, e)
	return nil
}

// Buffered says that Next returns at once, with what it has taken already. A printer
// flushes when it is false.
func (o *Observer) Buffered() bool { return len(o.rest) > 0 }

// Record writes events to a recording until the tap has ended and nothing is left, and
// then returns nil; until the context ends, whose error it then returns; or until an
// error of the file. It writes what is there in one call, and waits for more.
func (o *Observer) Record(ctx context.Context, w *Writer) error {
	for {
		// fetch looks at the context only when it has to wait.
		if err := ctx.Err(); err != nil {
			return err
		}
		records := o.rest
		o.rest = nil
		if len(records) == 0 {
			var err error
			if records, err = o.fetch(ctx); err == io.EOF {
				return nil
			} else if err != nil {
				return err
			}
		}
		if err := w.write(records); err != nil {
			return err
		}
	}
}
