package snail

import (
	"context"
	"strconv"
	"time"
)

// Sender is the socket of a Publisher, usually a *sockets.Pub. Send must not keep the
// frames.
type Sender interface {
	Send(ctx context.Context, frames ...[]byte) error
}

// PublisherOptions configures a Publisher. The zero value works.
type PublisherOptions struct {
	// Sequence adds a sequence number as decimal text before the stamp: 1, 2 and so
	// on.
	Sequence bool

	// Now is the clock. The default is time.Now.
	Now func() time.Time
}

// Publisher sends messages with stamps. It is safe for concurrent use. It has no
// goroutine and need not be closed.
type Publisher struct {
	socket Sender
	opts   PublisherOptions

	turn   chan struct{} // has a token while no call sends
	sent   uint64
	frames [][]byte // scratch
	text   []byte   // scratch
}

// NewPublisher returns a Publisher that sends with socket. Messages that are sent
// directly with the socket have no stamps and sequence numbers.
func NewPublisher(socket Sender, o PublisherOptions) *Publisher {
	if o.Now == nil {
		o.Now = time.Now
	}
	p := &Publisher{socket: socket, opts: o, turn: make(chan struct{}, 1)}
	p.turn <- struct{}{}
	return p
}

// Send sends the frames followed by a stamp. Without frames, the message is the stamp
// alone, as in the guide. Concurrent calls send one after the other, so that sequence
// numbers are in order; a message that is not sent uses no number. It returns the error
// of the socket's Send, or the context's.
func (p *Publisher) Send(ctx context.Context, frames ...[]byte) error {
	select {
	case <-p.turn:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { p.turn <- struct{}{} }()
	p.frames, p.text = append(p.frames[:0], frames...), p.text[:0]
	if p.opts.Sequence {
		p.text = strconv.AppendUint(p.text, p.sent+1, 10)
	}
	at := len(p.text)
	p.text = AppendStamp(p.text, p.opts.Now())
	if p.opts.Sequence {
		p.frames = append(p.frames, p.text[:at])
	}
	p.frames = append(p.frames, p.text[at:])
	err := p.socket.Send(ctx, p.frames...)
	clear(p.frames)
	if err == nil {
		p.sent++
	}
	return err
}
