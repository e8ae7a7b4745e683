package main

import (
	"context"
	"time"
	"unsafe"

	"github.com/nats-io/nats.go"

	"clustermap/bench/peers/internal/systems"
	"clustermap/internal/bench/link"
	"clustermap/internal/bench/pipeline"
)

// natsSystem is NATS core: a server that passes messages on and keeps nothing, so it does
// less than the others, and a replica that joins late gets no map from it. All updates are
// messages of one subject, key and value in each: that is the fastest. The client's table
// is ours. By default the server disconnects a subscriber that is 64 MiB behind, and the
// client drops messages that exceed its queue: both limits are lifted, so nothing is
// lost.
var natsSystem = systems.System{
	Share: 2,
	Pipeline: pipeline.Pipeline{
		Name: "nats", Serve: serveNATS,
		Publish: func(p *link.Peer) (pipeline.Publisher, error) { return publishNATS(p, natsSubject) },
		Follow: func(p *link.Peer, r *pipeline.Receiver) (pipeline.Replica, error) {
			return followNATS(p, natsSubject, r)
		},
	},
}

// natsKeysSystem is the same with a subject for each key, by which a subscriber can choose.
// The server remembers the subscribers of 1,024 subjects, so a map of more keys is slower.
var natsKeysSystem = systems.System{
	Share: 2,
	Pipeline: pipeline.Pipeline{
		Name: "nats-subjects", Serve: serveNATS,
		Publish: func(p *link.Peer) (pipeline.Publisher, error) { return publishNATS(p, "") },
		Follow:  func(p *link.Peer, r *pipeline.Receiver) (pipeline.Replica, error) { return followNATS(p, "*", r) },
	},
}

const natsSubject = "bench"

func serveNATS(p *link.Peer, ready func(...string)) error {
	s, err := systems.StartNATS(systems.NATSOptions())
	if err != nil {
		return err
	}
	ready(s.ClientURL())
	<-p.Context().Done()
	s.Shutdown()
	return nil
}

type natsPublisher struct {
	c       *nats.Conn
	subject string // of all keys, or "" for a subject each
	message []byte
}

func publishNATS(p *link.Peer, subject string) (pipeline.Publisher, error) {
	c, err := systems.DialNATS(p.Context(), p.Servers, nats.NoReconnect())
	return &natsPublisher{c: c, subject: subject}, err
}

func (p *natsPublisher) Set(_ int, key string, value []byte) error {
	if p.subject == "" {
		return p.c.Publish(key, value)
	}
	p.message = appendMessage(p.message[:0], key, value)
	return p.c.Publish(p.subject, p.message)
}

func (p *natsPublisher) Push() error { return nil } // the client sends in the background

func (p *natsPublisher) Settle(ctx context.Context) error {
	return flushNATS(ctx, p.c)
}

// flushNATS waits until the server has taken all that was sent.
func flushNATS(ctx context.Context, c *nats.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, time.Hour) // the call insists on an end
	defer cancel()
	return c.FlushWithContext(ctx)
}

type natsReplica struct {
	systems.Held
	subject string     // of all keys, if they have one
	ended   bool       // of take: nothing more is wanted
	done    chan error // when every update has arrived, or one was malformed
}

func followNATS(p *link.Peer, subject string, to *pipeline.Receiver) (pipeline.Replica, error) {
	c, err := systems.DialNATS(p.Context(), p.Servers, nats.NoReconnect())
	if err != nil {
		return nil, err
	}
	r := &natsReplica{Held: systems.NewHeld(p, to), subject: subject, done: make(chan error, 1)}
	s, err := c.Subscribe(subject, r.take)
	if err != nil {
		return nil, err
	}
	if err := s.SetPendingLimits(-1, -1); err != nil {
		return nil, err
	}
	return r, flushNATS(p.Context(), c)
}

// take takes one message after the other.
func (r *natsReplica) take(m *nats.Msg) {
	if r.ended {
		return
	}
	key, value := unsafe.Slice(unsafe.StringData(m.Subject), len(m.Subject)), m.Data // it does not change
	if m.Subject == r.subject {
		var err error
		if key, value, err = cutMessage(m.Data); err != nil {
			r.end(err)
			return
		}
	}
	if !r.Apply(key, value) {
		r.end(nil)
	}
}

func (r *natsReplica) end(err error) {
	r.ended = true
	r.done <- err
}

// Run waits for the end of take.
func (r *natsReplica) Run(ctx context.Context) error {
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
