package sockets

import (
	"context"
	"errors"
	"sync/atomic"

	"clustermap/internal/buf"
	"clustermap/zmtp"
)

// Traffic counts the messages that a proxy has forwarded in one direction.
// Bytes is the sum of the sizes of the frames' bodies. If the messages come
// from a ROUTER, the identity counts as a frame.
type Traffic struct {
	Messages, Frames, Bytes uint64
}

// ProxyStats counts the messages that a proxy has forwarded since it was
// created. Messages that were received but not sent are in progress, or were
// lost when the proxy ended.
type ProxyStats struct {
	FrontendIn, BackendOut Traffic // from the frontend to the backend
	BackendIn, FrontendOut Traffic // from the backend to the frontend
}

// Statistics returns the counters of the proxy.
func (p *SteerableProxy) Statistics() ProxyStats {
	s := ProxyStats{
		FrontendIn: p.stats[0].in.load(), BackendOut: p.stats[0].out.load(),
		BackendIn: p.stats[1].in.load(), FrontendOut: p.stats[1].out.load(),
	}
	if len(p.flows) == 1 && p.flows[0].from == p.flows[0].to {
		// A single socket is both sides.
		s.BackendIn, s.FrontendOut = s.FrontendIn, s.BackendOut
	}
	return s
}

// traffic is Traffic with atomic counters.
type traffic struct{ messages, frames, bytes atomic.Uint64 }

func (t *traffic) add(n Traffic) {
	t.messages.Add(n.Messages)
	t.frames.Add(n.Frames)
	t.bytes.Add(n.Bytes)
}

func (t *traffic) load() Traffic {
	return Traffic{t.messages.Load(), t.frames.Load(), t.bytes.Load()}
}

type flowStats struct{ in, out traffic }

func receives(s Socket) bool {
	_, ok := s.(Receiver)
	return ok
}

func sends(s Socket) bool {
	_, ok := s.(Sender)
	return ok
}

// flow is one direction of a proxy.
type flow struct {
	proxy    *SteerableProxy
	from, to Socket
	capture  []*forwarder
	out      *forwarder
	stats    *flowStats
}

func newFlow(p *SteerableProxy, from, to Socket, capture []Socket, stats *flowStats) *flow {
	f := &flow{proxy: p, from: from, to: to, out: &forwarder{to: to}, stats: stats}
	for _, c := range capture {
		f.capture = append(f.capture, &forwarder{to: c}) // with its own scratch memory
	}
	return f
}

// run forwards until the context is done or a socket fails.
func (f *flow) run(ctx context.Context) error {
	var room, news Poller
	defer room.Close()
	defer news.Close()
	// A socket that is both sides may have to receive before it can send.
	single := f.from.engine() == f.to.engine()
	if err := news.Add(f.from, PollIn); err != nil {
		return err
	}
	if !single {
		err := errors.Join(room.Add(f.to, PollOut), room.Add(f.from, pollEnd), news.Add(f.to, pollEnd))
		if err != nil {
			return err
		}
	}
	var p parcel
	defer p.release()
	var ready []Ready
	for {
		step, err := f.proxy.proceed(ctx)
		if err != nil {
			return err
		}
		if p.len() == 0 {
			// The Pollers wait without a limit, with any timeouts of the sockets.
			if !single {
				ready, err = room.WaitInto(step, ready)
			}
			if err == nil {
				ready, err = news.WaitInto(step, ready)
			}
			if err == nil {
				err = f.to.engine().Open()
			}
			if err == nil {
				err = p.receive(step, f.from)
			}
			if err == nil {
				p.begin(f)
			}
		}
		if err == nil {
			err = p.forward(step, f)
		}
		switch {
		case err == nil, step.Err() != nil: // done with it, or a pause
		case again(err):
		default:
			return err
		}
	}
}

// again reports whether an error of a send or receive call is not an error for
// a proxy, which may wait for longer than the socket's timeouts allow.
func again(err error) bool {
	return errors.Is(err, ErrTimeout)
}

// parcel is the batch that a flow is forwarding.
type parcel struct {
	batch Batch
	lead  []byte // the identity to put before each message of the batch; nil for none

	pending []int // how many messages of it each capture socket, and last the destination, has been sent
}

func (p *parcel) len() int { return p.batch.Len() }

func (p *parcel) release() {
	p.batch.Release()
	p.lead = nil
}

func (p *parcel) receive(ctx context.Context, from Socket) error {
	if err := from.(Receiver).RecvBatch(ctx, &p.batch); err != nil {
		return err
	}
	p.lead = nil
	if from.engine().Addressed() {
		p.lead = p.batch.Peer().Identity()
	}
	return nil
}

// begin counts a received parcel and passes it to Observe.
func (p *parcel) begin(f *flow) {
	p.pending = append(p.pending[:0], make([]int, len(f.capture)+1)...)
	f.stats.in.add(p.count(0, p.len()))
	if observe := f.proxy.observe; observe != nil {
		observe(Observed{parcel: p, backward: f.stats == &f.proxy.stats[1]})
	}
}

// count counts messages from..to of the parcel.
func (p *parcel) count(from, to int) Traffic {
	t := Traffic{Messages: uint64(to - from)}
	for i := from; i < to; i++ {
		for m := p.batch.Message(i); len(m) > 0; t.Frames++ {
			var body []byte
			body, m = m.Next()
			t.Bytes += uint64(len(body))
		}
	}
	if p.lead != nil {
		t.Frames += t.Messages
		t.Bytes += t.Messages * uint64(len(p.lead))
	}
	return t
}

// forward sends the rest of the parcel, first to the capture sockets, and then
// releases it. After an error it can be called again.
func (p *parcel) forward(ctx context.Context, f *flow) error {
	for i := range p.pending {
		out := f.out
		if i < len(f.capture) {
			out = f.capture[i]
		}
		for p.pending[i] < p.len() {
			at := p.pending[i]
			n, err := out.forward(ctx, p, at)
			p.pending[i] += n
			if out == f.out && n > 0 {
				f.stats.out.add(p.count(at, at+n))
			}
			if err != nil {
				return err
			}
		}
	}
	p.release()
	return nil
}

// frames appends the frames of message i to dst, without copying them.
func (p *parcel) frames(dst [][]byte, i int) [][]byte {
	if p.lead != nil {
		dst = append(dst, p.lead)
	}
	return p.batch.Message(i).AppendFrames(dst)
}

// wire returns the bytes of the batch, and the spans from message i on.
func (p *parcel) wire(i int) (bytes []byte, spans []buf.Span) {
	b := p.batch.engine()
	return b.Wire(), b.Spans()[i:]
}

// leadFrame appends the lead in wire form to dst.
func (p *parcel) leadFrame(dst []byte) []byte {
	if p.lead == nil {
		return dst
	}
	return zmtp.AppendFrame(dst, p.lead, true)
}
