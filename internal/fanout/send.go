package fanout

import (
	"context"

	"clustermap/internal/buf"
	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// Send queues a message for the peers that have subscribed to its first frame. It copies the
// frames. It waits, for as long as the limit allows, with Settings.Wait if there is none, and
// with the policy Block if the queue of one of them is full. With an error, no peer
// receives the message.
func (p *Publisher) Send(ctx context.Context, l queue.Limit, frames [][]byte) error {
	p.Lock()
	for {
		groups, alone, n := p.audience(frames[0])
		if n == 0 {
			if !p.Wait {
				p.only = nil
				p.Unlock()
				return nil
			}
			if err := p.changed.Wait(ctx, &p.Mutex, p.done, &l); err != nil {
				p.Unlock()
				return err
			}
			continue
		}
		var full *Subscriber
		switch {
		case alone != nil:
			full = p.sendAlone(alone, frames)
		case n > 1:
			full = p.fanOut(groups, frames)
		}
		if full != nil {
			p.Unlock()
			if err := full.out.WaitRoom(ctx, nil, p.done, &l); err != nil {
				return err
			}
			p.Lock()
			continue
		}
		p.only = nil
		p.release()
		return nil
	}
}

// SendWire queues messages that are already encoded: wire holds a number of complete
// messages. If spans is not nil, it holds their sizes: only End-Start of a span matters.
//
// If owner is nil, SendWire copies wire. Otherwise it may keep references to it, for peers
// that have subscribed to everything. It checks the queues once, and waits like Send with the
// policy Block. Settings.Wait does not apply.
func (p *Publisher) SendWire(ctx context.Context, l queue.Limit, wire []byte, messages int, spans []buf.Span, owner queue.Owner) error {
	if len(wire) == 0 {
		return nil
	}
	p.Lock()
	for {
		groups := p.sort(wire, spans)
		var alone *Subscriber
		if p.only != nil {
			if alone = p.chosen(groups); alone == nil {
				groups = nil
			}
		}
		if full := p.firstFull(groups, alone); full != nil {
			p.reset()
			p.Unlock()
			if err := full.out.WaitRoom(ctx, nil, p.done, &l); err != nil {
				return err
			}
			p.Lock()
			continue
		}
		if alone != nil {
			p.offerWireAlone(alone, wire, messages, owner)
			groups = nil
		}
		p.copied.begin(p.Policy)
		for _, g := range groups {
			p.offerWire(g, wire, messages, owner)
		}
		p.copied.end()
		p.reset()
		p.only = nil
		p.release()
		return nil
	}
}

// SendTo queues encoded messages for one peer, whatever it has subscribed to and however
// full its queue is; they count for later sends. It reports false if the connection has ended
// or is about to.
func (p *Publisher) SendTo(q *Subscriber, conn *queue.Conn, wire []byte, messages int, owner queue.Owner) bool {
	p.Lock()
	if q.link == nil || q.evicted {
		p.Unlock()
		return false
	}
	if len(wire) == 0 {
		p.Unlock()
		return true
	}
	p.separate(q)
	q.room = queue.HWM{}
	p.room -= int64(len(wire))
	v := q.out.Force(conn, wire, messages, owner)
	p.release()
	return v == queue.Accepted
}

// SendBatch sends each element of bodies as a message of one frame, and returns how many it
// has sent. It checks the queues once for each run of messages, of up to queue.FullStage.
func (p *Publisher) SendBatch(ctx context.Context, l queue.Limit, bodies [][]byte) (sent int, err error) {
	for sent < len(bodies) {
		if p.waits() {
			if err := p.Send(ctx, l, bodies[sent:sent+1]); err != nil {
				return sent, err
			}
			sent++
			continue
		}
		n, size := 0, 0
		for _, b := range bodies[sent:] {
			if n > 0 && size+zmtp.FrameSize(len(b)) > queue.FullStage {
				break
			}
			size += zmtp.FrameSize(len(b))
			n++
		}
		if err := p.sendRun(ctx, l, bodies[sent:sent+n], size); err != nil {
			return sent, err
		}
		sent += n
	}
	return sent, nil
}

func (p *Publisher) waits() bool {
	p.Lock()
	defer p.Unlock()
	return p.Wait
}

// sendRun sends messages of one frame each, of size bytes in wire form.
func (p *Publisher) sendRun(ctx context.Context, l queue.Limit, bodies [][]byte, size int) error {
	chunk := buf.Get(size)
	defer chunk.Release()
	wire := chunk.Data()[:0:size]
	for _, b := range bodies {
		wire = zmtp.AppendFrame(wire, b, false)
	}
	return p.SendWire(ctx, l, wire, len(bodies), nil, chunk)
}
