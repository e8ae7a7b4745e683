package kv

import (
	"context"
	"fmt"

	"clustermap/sockets"
)

// Client is what the clients of models 2 to 5 have in common: it takes a snapshot and
// applies the updates that are newer.
type Client struct {
	Updates *sockets.Sub

	ctx      context.Context
	form     Form
	snapshot *sockets.Dealer
	request  [][]byte
	sequence int64 // -1 before the snapshot
	pairs    map[string]Message
}

// Follow returns a client of the server at host that follows the keys which begin with a
// subtree. request asks for the snapshot of them.
func Follow(ctx context.Context, form Form, host, subtree string, request ...string) *Client {
	c := &Client{
		Updates: Must(sockets.NewSub(sockets.Options{})),
		ctx:     ctx, form: form, sequence: -1, pairs: map[string]Message{},
		snapshot: Must(sockets.NewDealer(sockets.Options{})),
	}
	for _, frame := range request {
		c.request = append(c.request, []byte(frame))
	}
	Check(c.Updates.Subscribe(subtree))
	Check(c.Updates.Connect("tcp://" + host + ":5557"))
	Check(c.snapshot.Connect("tcp://" + host + ":5556"))
	return c
}

// Update receives an update.
func (c *Client) Update() {
	m, ok := c.form.parse(Must(c.Updates.Recv(c.ctx)))
	// The first update shows that the subscription is in force. A snapshot that is asked
	// for now has this update and all before it, and the later ones come by the
	// subscription.
	if ok && c.sequence < 0 {
		Check(c.snapshot.Send(c.ctx, c.request...))
		c.takeSnapshot()
		fmt.Println("ready: snapshot", c.sequence)
	}
	if ok && m.Sequence > c.sequence {
		c.sequence = m.Sequence
		c.form.apply(c.pairs, m)
		fmt.Println("update", m)
	}
}

// takeSnapshot stores a snapshot, up to KTHXBAI, which has the number of the last update
// that it includes.
func (c *Client) takeSnapshot() {
	for {
		m, ok := c.form.parse(Must(c.snapshot.Recv(c.ctx)))
		switch {
		case ok && m.Key == "KTHXBAI":
			c.sequence = m.Sequence
			return
		case ok:
			c.pairs[m.Key] = m
		}
	}
}

// End prints the summary.
func (c *Client) End() {
	fmt.Println(Summary(c.sequence, c.pairs))
	_ = c.Updates.Close()
	_ = c.snapshot.Close()
}
