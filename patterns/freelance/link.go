package freelance

import (
	"bytes"
	"context"
	"errors"
	"time"

	"clustermap/internal/hooks"
	"clustermap/internal/wake"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// link is a client's view of a server. Each link has its own socket, so that servers
// can have different keys, and that a server with two names is not a duplicate
// identity.
type link struct {
	client   *Client
	endpoint string
	router   *sockets.Router

	// Guarded by client.mu.
	peer   *sockets.Peer // the connection; nil while there is none
	heard  time.Time     // when the last message arrived, or the connection was made
	pinged time.Time     // when the last PING was sent
	asked  time.Time     // when the first PING after heard was sent, or zero
	silent bool          // gets no requests until it is heard
	err    error         // why there is no connection
	fresh  time.Time     // until when requests wait for the first connection, or zero: it was made, or has failed

	due *sockets.Peer // used by tick: the connection to ping

	matched []match // used by receive
}

// match is a reply or a handler's error, and its call.
type match struct {
	call *call
	body zmtp.WireMessage
	err  error
}

func (c *Client) newLink(endpoint string, s sockets.Security) (*link, error) {
	l := &link{client: c, endpoint: endpoint, fresh: time.Now().Add(headStart)}
	o := sockets.Options{
		Security:         s,
		MaxMessageSize:   c.opts.MaxMessageSize,
		SendHWM:          sockets.Unlimited, // MaxRequests bounds the messages
		SendHWMBytes:     c.opts.MaxQueuedBytes,
		Linger:           sockets.LingerNone, // after Close no call waits for replies
		Metadata:         map[string]string{property: propertyVersion},
		ConnectTimeout:   max(c.opts.ServerTTL, time.Second),
		HandshakeTimeout: max(c.opts.ServerTTL, minHandshake),
		Monitor:          l.observe,
	}
	var err error
	if l.router, err = sockets.NewRouter(o); err == nil {
		hooks.Prepare(l.router, l.receive)
	}
	return l, err
}

// receive keeps a receive call of a socket active until it is closed, because over inproc
// the function of hooks.Prepare runs within one. The batches are empty.
func receive(r *sockets.Router) {
	var b sockets.Batch
	defer b.Release()
	for r.RecvBatch(context.Background(), &b) == nil {
	}
}

// observe tracks the connection. Calls of observe and receive are in the order of the
// events.
func (l *link) observe(e sockets.Event) {
	c := l.client
	c.mu.Lock()
	switch e.Kind {
	case sockets.EventHandshakeSucceeded:
		l.peer, l.heard, l.asked, l.err, l.fresh = e.Peer, time.Now(), time.Time{}, nil, time.Time{}
		c.gained(l)
	case sockets.EventDisconnected:
		if l.peer != nil && l.peer == e.Peer {
			c.lost(l)
		}
		l.err = e.Err
	case sockets.EventConnectFailed, sockets.EventHandshakeFailed:
		l.err = e.Err
		if !l.fresh.IsZero() {
			l.fresh = time.Time{}
			c.wakeUnsent()
		}
	}
	c.mu.Unlock()
	if c.opts.Monitor != nil {
		c.opts.Monitor(e)
	}
}

// ping sends a PING unless the queue is full.
func (l *link) ping(peer *sockets.Peer) { _ = l.router.SendTo(wake.Ended, peer, ping) }

// receive handles the messages of the server.
func (l *link) receive(b *hooks.Batch) {
	c, peer, now := l.client, (*sockets.Peer)(b.Peer()), time.Now()
	c.mu.Lock()
	if l.peer == peer {
		l.heard, l.asked = now, time.Time{}
		if l.silent {
			c.gained(l)
		}
	}
	for i := range b.Len() {
		l.match(peer, b.Message(i))
	}
	c.mu.Unlock()
	for i := range l.matched {
		m := &l.matched[i]
		k := m.call
		if k.err = m.err; m.err == nil {
			k.reply = Reply{Body: hooks.Frames(m.body), Server: l.endpoint}
		}
		k.replied <- struct{}{}
		*m = match{}
	}
	l.matched = l.matched[:0]
	b.SetSpans(b.Spans()[:0])
}

// match finds the call to which a message belongs. If the message ends the call, match
// removes it from the pending ones. client.mu must be held.
func (l *link) match(peer *sockets.Peer, m zmtp.WireMessage) {
	s := &l.client.stats
	first, rest := m.Next()
	switch {
	case len(rest) == 0 && bytes.Equal(first, pong):
		s.Pongs++
	case len(rest) == 0:
		s.Malformed++
	case bytes.Equal(first, refused):
		l.refusal(peer, rest)
	default:
		if k := l.finish(peer, first); k != nil {
			s.Replies++
			l.matched = append(l.matched, match{call: k, body: rest})
		}
	}
}

// refusal handles the frames that follow REFUSED: control frame, reason and text.
func (l *link) refusal(peer *sockets.Peer, m zmtp.WireMessage) {
	c := l.client
	if m.Len() != 3 {
		c.stats.Malformed++
		return
	}
	number, m := m.Next()
	reason, m := m.Next()
	text, _ := m.Next()
	if !bytes.Equal(reason, reasonBusy) {
		if k := l.finish(peer, number); k != nil {
			c.stats.Refused++
			text = text[:min(len(text), maxErrorText)]
			l.matched = append(l.matched, match{call: k, err: &HandlerError{Server: l.endpoint, Text: string(text)}})
		}
		return
	}
	k, i := l.find(peer, number)
	if k == nil {
		return
	}
	c.stats.Refused++
	k.tries[i].refused = true
	if k.current == i {
		wake.Signal(k.wake)
	}
}

// finish is like find, and removes the call from the pending ones.
func (l *link) finish(peer *sockets.Peer, controlFrame []byte) *call {
	k, _ := l.find(peer, controlFrame)
	if k != nil {
		delete(l.client.pending, k.number)
	}
	return k
}

// find returns the pending call with a control frame, and the index of its try over
// the given connection. If there is none, it counts the message as late or foreign.
func (l *link) find(peer *sockets.Peer, controlFrame []byte) (*call, int) {
	c := l.client
	number := parseControl(controlFrame)
	k := c.pending[number]
	if k == nil && number > 0 && number <= c.number {
		c.stats.Late++
		return nil, none
	}
	if k != nil {
		if i := k.tried(peer); i != none {
			return k, i
		}
	}
	c.stats.Foreign++
	return nil, none
}

// failure returns the reason why there is no connection, without the endpoint.
func (l *link) failure() error {
	if peer, ok := errors.AsType[*sockets.PeerError](l.err); ok {
		return peer.Err
	}
	return l.err
}
