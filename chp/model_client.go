package chp

import (
	"context"
	"time"

	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
	"clustermap/sockets"
)

const (
	// mostGrace is how long a client waits for its subscriptions to take effect if the
	// server answers no PINGs. The connection exists by then, so the subscriptions
	// need only half a round trip.
	mostGrace = time.Second

	// leastGrace is how long it waits after the answer. libzmq answers in its I/O
	// thread; the thread that publishes checks for subscriptions every millisecond or
	// so, before it sends.
	leastGrace = 50 * time.Millisecond
)

// silence returns how long the server may be silent. A negative value means no limit.
func (c *Client) silence() time.Duration {
	if !c.dialect.full {
		return -1
	}
	return c.opts.HeartbeatTimeout
}

// likely waits until the subscriptions have probably taken effect, at a server that may
// have nothing to publish. It receives no message: this early one may not be in the
// snapshot, and without snapshots the first message counts.
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

// prepare returns a socket's Prepare function, given one that handles records.
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

// requests returns the subtrees to request from a server of another implementation.
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
	WaitSubscribers(ctx context.Context, topic string, n int) error
	Close() error
	CloseContext(ctx context.Context) error
}

// newUpdateSocket returns a socket that sends records to a server's collector.
func (s *session) newUpdateSocket(o sockets.Options) (updateSocket, error) {
	d := s.client.dialect
	if d.full {
		o.FullPolicy = sockets.PolicyBlock
		p, err := sockets.NewPub(o)
		if err != nil {
			return nil, err
		}
		return p, nil
	}
	o.Immediate = true // without a connection, updates can still go to the next server
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

// WaitSubscribers returns nil: a PULL receives everything, and nothing is sent before
// it is connected.
func (pushUplink) WaitSubscribers(context.Context, string, int) error { return nil }

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
