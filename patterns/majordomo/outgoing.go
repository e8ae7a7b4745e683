package majordomo

import (
	"context"
	"errors"

	"clustermap/internal/hooks"
	"clustermap/internal/wake"
	"clustermap/sockets"
)

// outgoing collects what a broker sends each peer in a drain, and sends that at once.
// Broker.mu protects it.
type outgoing struct {
	router  *sockets.Router
	touched []*conn // connections with staged messages
}

// stageReply stages a reply to the client of a request.
func (o *outgoing) stageReply(j *job, cmd command, body []byte) {
	c := j.client
	dst := append(o.open(c), j.envelope()...)
	dst = appendClientHeader(dst, j.version, cmd, j.service.name)
	if cmd == reply {
		dst = append(dst, j.kept...)
	}
	c.stage.Bytes = append(dst, body...)
}

// respond stages a reply to a request that has not become a job.
func (o *outgoing) respond(c *conn, p *packet, body []byte) {
	dst := append(o.open(c), p.envelope...)
	dst = appendClientHeader(dst, p.version, reply, p.service)
	c.stage.Bytes = append(dst, body...)
}

// open returns the bytes of the stage of a peer, for appending one more message.
func (o *outgoing) open(c *conn) []byte {
	if c.stage != nil && len(c.stage.Bytes) >= fullStage {
		o.send(c)
	}
	if c.stage == nil {
		c.stage = hooks.NewStage()
		o.touched = append(o.touched, c)
	}
	c.messages++
	return c.stage.Bytes
}

// flush sends the staged messages.
func (o *outgoing) flush(now int64) {
	for i, c := range o.touched {
		o.touched[i] = nil
		if w := c.worker; w != nil {
			w.lastSent = now
		}
		if c.stage != nil {
			o.send(c)
		}
	}
	o.touched = o.touched[:0]
}

func (o *outgoing) send(c *conn) {
	st, n := c.stage, c.messages
	c.stage, c.messages = nil, 0
	defer st.Release()
	var owner hooks.Owner
	if len(st.Bytes) >= cap(st.Bytes)/lendPart {
		owner = st
	}
	// The queue is full only if the peer does not read.
	if err := hooks.SendWireTo(wake.Ended, o.router, c.peer, st.Bytes, n, owner); errors.Is(err, context.Canceled) {
		c.peer.Disconnect(sockets.ErrSlowPeer)
	}
}
