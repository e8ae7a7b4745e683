package chp

import (
	"context"
	"time"

	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
	"clustermap/sockets"
)

const (
	// mostGrace is how long a client waits for its subscriptions to be in force if
	// the server answers no PINGs. The connection is there by then, so they have but
	// one way to go.
	mostGrace = time.Second

	// leastGrace is how long it waits after the answer. libzmq answers in a thread of
	// its own; the one that publishes looks for subscriptions every millisecond or
	// so, before it sends.
	leastGrace = 50 * time.Millisecond
)

// silence returns how long the server may be silent, or less than 0 for ever.
func (c *Client) silence() time.Duration {
	if !c.dialect.full {
		return -1
	}
	return c.opts.HeartbeatTimeout
}

// likely waits until the subscriptions are likely to be in force, at a server that
// need not send anything. It takes no message: what comes this early may not be in the
// snapshot, and without snapshots the first one counts.
func (s *session) likely() error {
	most, cancel := context.WithTimeout(s.ctx, min(mostGrace, s.client.opts.SyncTimeout))
	defer cancel()
	if s.client.opts.HeartbeatTimeout < 0 {
		<-most.Done() // no PINGs
	} else if s.sub.WaitSubscribed(most) == nil {
		pause(s.ctx, leastGrace)
	}
	return s.ctx.Err()
}

// prepare returns what a socket's Prepare is to be, given a function for records.
func (s *session) prepare(records func(*sockets.Batch)) func(*sockets.Batch) {
	if !s.client.dialect.three {
		return records
	}
	return func(b *sockets.Batch) {
		widen(b, &s.client.refused, s.sent)
		records(b)
	}
}

// request returns the frames of a snapshot request.
func (d dialect) request(subtree string) [][]byte {
	frames := [][]byte{[]byte("ICANHAZ?")}
	if d.subtrees {
		frames = append(frames, []byte(subtree))
	}
	return frames
}

// requests returns what to ask a server of another kind for.
func (d dialect) requests(s *subtrees) subtrees {
	if !d.subtrees {
		return newSubtrees(nil)
	}
	return s.plain()
}

// updateSocket is the socket of an uplink: PUB, or PUSH before model 6.
type updateSocket interface {
	Connect(endpoint string) error
	SendWire(ctx context.Context, wire []byte, messages int, owner sockets.Owner) error
	WaitSubscribers(ctx context.Context, topic []byte, n int) error
	Close() error
	CloseContext(ctx context.Context) error
}

// newUpdateSocket makes the socket that sends records to a server's collector.
func (s *session) newUpdateSocket(o sockets.Options) (updateSocket, error) {
	d := s.client.dialect
	if d.full {
		p, err := sockets.NewPub(o)
		if err != nil {
			return nil, err
		}
		return p, nil
	}
	o.Immediate = true // what waits for a connection may still go to the next server
	p, err := sockets.NewPush(o)
	switch {
	case err != nil:
		return nil, err
	case d.three:
		return &threeUplink{pushUplink{p}, s.sent}, nil
	}
	return pushUplink{p}, nil
}

// pushUplink is an uplink to a PULL.
type pushUplink struct{ *sockets.Push }

// WaitSubscribers returns nil: a PULL takes everything, and nothing is sent before it
// is connected.
func (pushUplink) WaitSubscribers(context.Context, []byte, int) error { return nil }

// threeUplink is an uplink that sends messages of three frames.
type threeUplink struct {
	pushUplink
	sent *sentUpdates
}

// SendWire sends copies of the records.
func (l *threeUplink) SendWire(ctx context.Context, wire []byte, messages int, _ sockets.Owner) error {
	c := buf.Get(len(wire))
	defer c.Release()
	out := c.Data()[:0]
	for rest := kvmsg.Record(wire); len(rest) > 0; {
		r := rest[:rest.Size()]
		rest = rest[len(r):]
		l.sent.note(r)
		out = appendThree(out, r)
	}
	var owner sockets.Owner = c
	if len(out) < lendStage {
		owner = nil
	}
	return l.Push.SendWire(ctx, out, messages, owner)
}
