package wire

import (
	"context"
	"time"

	"clustermap/internal/buf"
	"clustermap/internal/hooks"
	"clustermap/internal/kvmsg"
	"clustermap/sockets"
)

// Session converts what a client receives and sends in one session.
type Session struct {
	dialect Dialect
	sent    *sentUpdates // with messages of three frames, else nil
}

// NewSession returns a session.
func (d Dialect) NewSession() *Session {
	s := &Session{dialect: d}
	if d.Three {
		s.sent = newSentUpdates(maxSentUpdates)
	}
	return s
}

// Prepare returns a function for hooks.Prepare, given one that handles records. refused is
// called with the errors of messages that are none.
func (s *Session) Prepare(records func(*hooks.Batch), refused func(error)) func(*hooks.Batch) {
	if !s.dialect.Three {
		return records
	}
	return func(b *hooks.Batch) {
		widen(b, refused, s.sent)
		records(b)
	}
}

// Uplink is the socket on which a client sends updates: PUB, or PUSH before model 6.
// SendWire sends records; the other methods are those of sockets.Pub.
type Uplink interface {
	Connect(endpoint string) error
	SendWire(ctx context.Context, wire []byte, messages int, owner hooks.Owner) error
	WaitSubscribers(ctx context.Context, topic string, n int) error
	Close() error
	CloseContext(ctx context.Context) error
}

// NewUplink returns a socket that sends to a server's collector.
func (s *Session) NewUplink(o sockets.Options) (Uplink, error) {
	if s.dialect.Full {
		o.FullPolicy = sockets.PolicyBlock
		p, err := sockets.NewPub(o)
		if err != nil {
			return nil, err
		}
		return pubUplink{p}, nil
	}
	o.Immediate = true // without a connection, updates can still go to the next server
	p, err := sockets.NewPush(o)
	switch {
	case err != nil:
		return nil, err
	case s.dialect.Three:
		return &threeUplink{pushUplink{p}, s.sent}, nil
	}
	return pushUplink{p}, nil
}

// pubUplink is an uplink to a SUB.
type pubUplink struct{ *sockets.Pub }

func (p pubUplink) SendWire(ctx context.Context, wire []byte, messages int, owner hooks.Owner) error {
	return hooks.SendWire(ctx, p.Pub, wire, messages, owner)
}

// pushUplink is an uplink to a PULL.
type pushUplink struct{ *sockets.Push }

func (p pushUplink) SendWire(ctx context.Context, wire []byte, messages int, owner hooks.Owner) error {
	return hooks.SendWire(ctx, p.Push, wire, messages, owner)
}

// WaitSubscribers returns nil: a PULL receives everything, and nothing is sent before
// it is connected.
func (pushUplink) WaitSubscribers(context.Context, string, int) error { return nil }

// threeUplink is an uplink that sends messages of three frames.
type threeUplink struct {
	pushUplink
	sent *sentUpdates
}

// SendWire sends copies of the records. It lends them to the socket if the records were lent.
func (l *threeUplink) SendWire(ctx context.Context, wire []byte, messages int, owner hooks.Owner) error {
	c := buf.Get(len(wire))
	defer c.Release()
	out := c.Data()[:0]
	for rest := kvmsg.Record(wire); len(rest) > 0; {
		r := rest[:rest.Size()]
		rest = rest[len(r):]
		l.sent.note(r)
		out = appendThree(out, r)
	}
	if owner != nil {
		owner = c
	}
	return l.pushUplink.SendWire(ctx, out, messages, owner)
}

// AwaitSubscribed waits until the subscriptions have probably taken effect, at a server of
// another implementation that may have nothing to publish, and for at most limit. It
// receives no message: this early one may not be in the snapshot, and without snapshots the
// first message counts. pings says that the socket sends PINGs. It returns the context's
// error.
func AwaitSubscribed(ctx context.Context, sub *sockets.Sub, pings bool, limit time.Duration) error {
	most, cancel := context.WithTimeout(ctx, min(mostGrace, limit))
	defer cancel()
	if !pings {
		<-most.Done()
	} else if sub.WaitSubscribed(most) == nil {
		grace := time.NewTimer(leastGrace)
		defer grace.Stop()
		select {
		case <-grace.C:
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}
