package espresso

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"

	"clustermap/internal/wake"
	"clustermap/sockets"
)

// ErrClosed is returned by a closed Observer.
var ErrClosed = errors.New("espresso: the observer is closed")

// Observer receives the events of a tap, starting with the call of Tap.Observe. Only one
// goroutine at a time may call Next, Buffered and Record; Stats and Close are safe for
// concurrent use.
type Observer struct {
	tap    *Tap
	filter Filter
	wake   chan struct{} // capacity 1

	// Owned by the reader.
	reading []byte
	rest    []byte

	mu              sync.Mutex
	stage           []byte // unread records
	last            int64  // time of the last record
	lost, lostBytes uint64 // since the last record
	stats           ObserverStats
	ended, closed   bool

	probe Event // scratch for the filter
}

// ObserverStats counts the messages, subscriptions and unsubscriptions that an observer's
// filter selected. Bytes are in wire form.
type ObserverStats struct {
	Messages, Bytes uint64 // queued for the observer
	Lost, LostBytes uint64 // lost because the queue was full
}

func newObserver(t *Tap, f Filter) *Observer {
	f.Topics = append([]string(nil), f.Topics...)
	return &Observer{tap: t, filter: f, wake: make(chan struct{}, 1)}
}

// Stats returns the current counters.
func (o *Observer) Stats() ObserverStats {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.stats
}

// Close ends the observer. Next and Record return ErrClosed.
func (o *Observer) Close() {
	o.tap.mu.Lock()
	o.tap.change(func(all []*Observer) []*Observer {
		return slices.DeleteFunc(all, func(other *Observer) bool { return other == o })
	})
	o.tap.mu.Unlock()
	o.mu.Lock()
	o.closed, o.stage = true, nil
	o.mu.Unlock()
	wake.Signal(o.wake)
}

// end is called when the tap has ended.
func (o *Observer) end() {
	o.mu.Lock()
	o.ended = true
	o.mu.Unlock()
	wake.Signal(o.wake)
}

// offer queues the messages that pass the filter, and counts those for which there is no
// room.
func (o *Observer) offer(seen sockets.Observed, from Direction, now int64) {
	if o.filter.From != 0 && o.filter.From != from {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return
	}
	now = max(now, o.last) // the two directions may call offer out of order
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
		o.appendLost(now)
		o.stage = appendHead(o.stage, byte(from), now, size)
		o.stage = seen.AppendWire(o.stage, i)
		o.stats.Messages++
		o.stats.Bytes += uint64(size)
	}
	o.last = now
	if len(o.stage) > 0 || o.lost > 0 {
		wake.Signal(o.wake)
	}
}

// appendLost queues a record of lost messages, if any. mu must be held.
func (o *Observer) appendLost(now int64) {
	if o.lost > 0 {
		o.stage = appendLostRecord(o.stage, now, o.lost, o.lostBytes)
		o.lost, o.lostBytes = 0, 0
	}
}

// fetch waits for records and returns them. They are valid until the next call.
func (o *Observer) fetch(ctx context.Context) ([]byte, error) {
	for {
		o.mu.Lock()
		o.appendLost(o.last)
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

// Next waits for the next event and stores it in e, whose memory it reuses. It returns
// io.EOF after the last event of a tap that has ended, ErrClosed, or the context's error.
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

// Buffered reports whether Next has an event without waiting. A program that prints
// events can flush its output when Buffered is false.
func (o *Observer) Buffered() bool { return len(o.rest) > 0 }

// Record writes events to a recording. It writes all available events with one call,
// and waits for more. It returns nil after the last event of a tap that has ended,
// ErrClosed, the context's error, or an error of the file.
func (o *Observer) Record(ctx context.Context, w *Writer) error {
	for {
		// fetch checks the context only when it has to wait.
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
