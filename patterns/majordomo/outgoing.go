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
	router      *sockets.Router
	touched     []*conn // connections with staged messages
	spareStages [][]byte
}

// stageReply stages a reply to the client of a request.
func (o *outgoing) stageReply(j *job, cmd command, body []byte) {
	c := j.client
	dst := append(o.open(c), j.envelope()...)
	dst = appendClientHeader(dst, j.version, cmd, j.service.name)
	if cmd == reply {
		dst = append(dst, j.kept...)
	}
	c.stage = append(dst, body...)
}

// respond stages a reply to a request that has not become a job.
func (o *outgoing) respond(c *conn, p *packet, body []byte) {
	dst := append(o.open(c), p.envelope...)
	dst = appendClientHeader(dst, p.version, reply, p.service)
	c.stage = append(dst, body...)
}

// open returns the stage of a peer, for appending one more message.
func (o *outgoing) open(c *conn) []byte {
	c.messages++
	if c.messages > 1 {
		return c.stage
	}
	o.touched = append(o.touched, c)
	n := len(o.spareStages)
	if n == 0 {
		return nil
	}
	stage := o.spareStages[n-1]
	o.spareStages = o.spareStages[:n-1]
	return stage
}

// flush sends the staged messages.
func (o *outgoing) flush(now int64) {
	for i, c := range o.touched {
		o.touched[i] = nil
		o.send(c, now)
	}
	o.touched = o.touched[:0]
}

func (o *outgoing) send(c *conn, now int64) {
	if w := c.worker; w != nil {
		w.lastSent = now
	}
	// The queue is full only if the peer does not read.
	if err := hooks.SendWireTo(wake.Ended, o.router, c.peer, c.stage, c.messages, nil); errors.Is(err, context.Canceled) {
		c.peer.Disconnect(sockets.ErrSlowPeer)
	}
	if cap(c.stage) <= maxStage && len(o.spareStages) < maxSpareStages {
		o.spareStages = append(o.spareStages, c.stage[:0])
	}
	c.stage, c.messages = nil, 0
}
