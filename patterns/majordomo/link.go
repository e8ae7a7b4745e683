package majordomo

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"clustermap/internal/hooks"
	"clustermap/internal/wake"
	"clustermap/sockets"
)

// link is one connection of a client. A broker of this package returns request numbers;
// with others it carries one request at a time.
type link struct {
	connection
	c    *Client
	busy bool // in use, if it carries one request at a time; guarded by c.mu

	mu    sync.Mutex
	over  bool
	last  uint64           // number of the last request
	calls map[uint64]*call // in flight, by number; without numbers, the only one has 0
}

// call is a request in flight.
type call struct {
	service string
	wake    chan struct{} // capacity 1

	// Guarded by link.mu.
	parts [][][]byte // not yet delivered
	bytes int        // of the parts that count for MaxReply
	final [][]byte
	done  bool
	err   error
}

// dial makes a link that connects to the broker.
func (c *Client) dial() (*link, error) {
	l := &link{c: c, calls: map[uint64]*call{}}
	err := l.open(c.ctx, c.opts.Broker, c.opts.Socket, func() {
		c.reach.why.Store(nil)
		c.mu.Lock()
		c.notify()
		c.mu.Unlock()
	})
	return l, err
}

// run receives replies until the link ends.
func (l *link) run() {
	err := l.receive()
	l.cancel(err)
	l.mu.Lock()
	l.over = true
	calls := l.calls
	l.calls = nil
	for _, call := range calls {
		if !call.done {
			call.done, call.err = true, errLost
			if l.c.ctx.Err() != nil {
				call.err = ErrClosed
			}
			wake.Signal(call.wake)
		}
	}
	l.mu.Unlock()
	_ = l.dealer.Close()
	c := l.c
	c.mu.Lock()
	defer c.mu.Unlock()
	c.links = slices.DeleteFunc(c.links, func(other *link) bool { return other == l })
	c.notify()
}

func (l *link) receive() error {
	var batch sockets.Batch
	defer batch.Release()
	for l.dealer.RecvBatch(l.ctx, &batch) == nil {
		if err := l.deliver(&batch); err != nil {
			return err
		}
	}
	// Deliver the replies that arrived before the end. The broker may still send, so
	// this is bounded.
	for n := 0; n < lastBatches && l.dealer.TryRecvBatch(&batch) == nil; n++ {
		if err := l.deliver(&batch); err != nil {
			return err
		}
	}
	return context.Cause(l.ctx)
}

// deliver passes replies to their calls.
func (l *link) deliver(batch *sockets.Batch) error {
	var p packet
	ours := l.ours()
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range batch.Len() {
		if !p.parse(batch.Message(i), false) || p.worker || p.command == notice || p.version != l.c.opts.Version ||
			ours && len(p.number) != 8 || !ours && p.number != nil {
			l.c.malformed.Add(1)
			return errLost
		}
		var number uint64
		if ours {
			number = binary.BigEndian.Uint64(p.number)
		}
		call := l.calls[number]
		if call == nil {
			continue // the call has ended
		}
		if string(p.service) != call.service {
			l.c.malformed.Add(1)
			return errLost
		}
		frames := hooks.Frames(p.body)
		if p.command == partial {
			call.bytes += len(p.body) + partCost + frameCost*len(frames)
			if call.bytes > l.c.opts.MaxReply {
				call.err = ErrTooLarge
				call.done = true
				delete(l.calls, number)
			} else {
				call.parts = append(call.parts, frames)
			}
		} else {
			call.final, call.done = frames, true
			delete(l.calls, number)
		}
		wake.Signal(call.wake)
	}
	return nil
}

// do sends a request and waits for its reply. It returns errLost if the request may be
// repeated. parts is the number of calls of part. If streams is set, parts that were
// delivered do not count for MaxReply.
func (l *link) do(ctx context.Context, service string, body [][]byte, part func([][]byte) error, streams bool) (last [][]byte, parts int, err error) {
	ours := l.ours()
	if !ours {
		defer func() { l.release(err) }()
	}
	call := &call{service: service, wake: make(chan struct{}, 1)}
	var number uint64
	l.mu.Lock()
	if l.over {
		l.mu.Unlock()
		return nil, 0, l.endError()
	}
	if ours {
		l.last++
		number = l.last
	}
	l.calls[number] = call
	l.mu.Unlock()
	defer l.forget(number, call)

	if err := l.send(ctx, number, service, body); err != nil {
		switch {
		case ctx.Err() != nil:
			return nil, 0, context.Cause(ctx)
		case l.ctx.Err() != nil || errors.Is(err, sockets.ErrClosed):
			return nil, 0, l.endError()
		}
		return nil, 0, fmt.Errorf("majordomo: %w", err)
	}
	var expired <-chan time.Time
	if !ours && l.c.opts.Timeout > 0 {
		timer := time.NewTimer(l.c.opts.Timeout)
		defer timer.Stop()
		expired = timer.C
	}
	for {
		select {
		case <-call.wake:
		case <-expired:
			return nil, parts, errLost
		case <-ctx.Done():
			return nil, parts, context.Cause(ctx)
		}
		l.mu.Lock()
		some, done := call.parts, call.done
		call.parts = nil
		if streams {
			call.bytes = 0
		}
		l.mu.Unlock()
		for _, frames := range some {
			parts++
			if err := part(frames); err != nil {
				return nil, parts, err
			}
		}
		if done {
			return call.final, parts, call.err
		}
	}
}

func (l *link) send(ctx context.Context, number uint64, service string, body [][]byte) error {
	frames := make([][]byte, 0, 5+len(body))
	ours := l.ours()
	if ours {
		frames = append(frames, binary.BigEndian.AppendUint64(nil, number))
	}
	if ours || l.c.opts.Version == Version01 {
		frames = append(frames, emptyFrame)
	}
	if l.c.opts.Version == Version01 {
		frames = append(frames, headerClient01)
	} else {
		frames = append(frames, headerClient02, codeOfRequest02)
	}
	frames = append(append(frames, []byte(service)), body...)
	return l.dealer.Send(ctx, frames...)
}

var (
	headerClient01  = []byte(client01)
	headerClient02  = []byte(client02)
	codeOfRequest02 = []byte{codeRequest02}
)

func (l *link) forget(number uint64, c *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls[number] == c {
		delete(l.calls, number)
	}
}

func (l *link) endError() error {
	if l.c.ctx.Err() != nil {
		return ErrClosed
	}
	return errLost
}

// release ends the use of a link that carries one request at a time. Without the reply
// the link ends, since a late reply would be mistaken for that to the next request.
func (l *link) release(err error) {
	if err != nil {
		l.cancel(errLost)
		return
	}
	c := l.c
	c.mu.Lock()
	defer c.mu.Unlock()
	l.busy = false
	c.notify()
}
