package fanout

import (
	"bytes"
	"context"
	"testing"

	"clustermap/internal/queue"
	"clustermap/internal/testenv"
	"clustermap/zmtp"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	must      = testenv.Must
	newLender = testenv.NewLender
)

// wire is the bytes of one message.
func wire(frames ...string) []byte {
	parts := make([][]byte, len(frames))
	for i, f := range frames {
		parts[i] = []byte(f)
	}
	return zmtp.AppendMessage(nil, parts...)
}

// conn is the connection of a subscriber in tests.
type conn struct {
	queue.Conn
	taken  int64
	reason error // for which it was ended
}

func (c *conn) Disconnect(reason error) { c.reason = reason }
func (c *conn) Taken() int64            { return c.taken }

func newOutbox() *queue.Outbox {
	out := new(queue.Outbox)
	out.Init(unlimited(queue.Unbounded), false)
	return out
}

// attach enters a connection that uses an outbox.
func attach(p *Publisher, out *queue.Outbox) *Subscriber {
	c := new(conn)
	out.Attach(&c.Conn)
	return p.Attach(c, out, new(queue.Client), false)
}

// fanned is a publisher with subscribers to everything and without writers.
func fanned(t *testing.T, n int, s Settings) (*Publisher, []*Subscriber) {
	t.Helper()
	if s.Limits == (queue.HWM{}) {
		s.Limits = unlimited(1000)
	}
	if s.Total == 0 {
		s.Total = 1 << 30
	}
	s.MaxBytes = queue.Unbounded
	p := new(Publisher)
	p.Init(nil)
	p.Set(s)
	var peers []*Subscriber
	for range n {
		out := newOutbox()
		out.SetLimits(s.Limits)
		q := attach(p, out)
		p.Lock()
		_, err := p.subscribe(q, nil, queue.Unbounded)
		p.Unlock()
		must(t, err)
		peers = append(peers, q)
	}
	return p, peers
}

// unlimited is a high-water mark of messages alone.
func unlimited(messages int) queue.HWM { return queue.HWM{Messages: messages, Bytes: queue.Unbounded} }

// send, sendWire and sendBatch do not wait.
func send(p *Publisher, frames ...[]byte) error { return p.Send(queue.NoWait, queue.Limit{}, frames) }

func sendWire(p *Publisher, wire []byte, messages int, owner queue.Owner) error {
	return p.SendWire(queue.NoWait, queue.Limit{}, wire, messages, nil, owner)
}

func sendBatch(p *Publisher, bodies [][]byte) (int, error) {
	return p.SendBatch(context.Context(queue.NoWait), queue.Limit{}, bodies)
}

// drain takes the messages that wait for peers, as their writers would, and returns the
// bytes.
func drain(peers ...*Subscriber) (taken []byte) {
	for _, q := range peers {
		var l queue.Load
		q.out.Take(&l, nil, func() {})
		taken = append(taken, bytes.Join(l.Gather(nil), nil)...)
		l.Clear()
	}
	return taken
}

// waiting is how much waits for a peer.
func waiting(q *Subscriber) (messages, size int) {
	s := q.out.Status()
	return s.Messages, s.Bytes
}
