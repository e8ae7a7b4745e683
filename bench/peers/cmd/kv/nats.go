package main

import (
	"context"
	"errors"
	"time"
	"unsafe"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// natsSystem is NATS core: a server that passes messages on and keeps nothing, so it does
// less than the others, and a replica that joins late gets no map from it. All updates are
// messages of one subject, key and value in each: that is the fastest. The client's table
// is ours. By default the server disconnects a subscriber that is 64 MiB behind, and the
// client drops messages that exceed its queue: both limits are lifted, so nothing is
// lost.
var natsSystem = system{
	name: "nats", share: 2, serve: serveNATS,
	publish: func(ctx context.Context, servers []string, _ workload) (publisher, error) {
		return publishNATS(ctx, servers, natsSubject)
	},
	follow: func(ctx context.Context, servers []string, see func(key, value []byte) bool) (replica, error) {
		return followNATS(ctx, servers, natsSubject, see)
	},
}

// natsKeysSystem is the same with a subject for each key, by which a subscriber can choose.
// The server remembers the subscribers of 1,024 subjects, so a map of more keys is slower.
var natsKeysSystem = system{
	name: "nats-subjects", share: 2, serve: serveNATS,
	publish: func(ctx context.Context, servers []string, _ workload) (publisher, error) {
		return publishNATS(ctx, servers, "")
	},
	follow: func(ctx context.Context, servers []string, see func(key, value []byte) bool) (replica, error) {
		return followNATS(ctx, servers, "*", see)
	},
}

const natsSubject = "bench"

// natsPending is the limit of the server's queue for a subscriber, in bytes.
const natsPending = 16 << 30

func natsOptions() *server.Options {
	return &server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true,
		MaxPending: natsPending, WriteDeadline: time.Minute,
	}
}

// startNATS starts a server that runs until it is shut down.
func startNATS(o *server.Options) (*server.Server, error) {
	s, err := server.NewServer(o)
	if err != nil {
		return nil, err
	}
	s.Start()
	if !s.ReadyForConnections(time.Minute) {
		return nil, errors.New("the server does not start")
	}
	return s, nil
}

func serveNATS(ctx context.Context, ready func(...string)) error {
	s, err := startNATS(natsOptions())
	if err != nil {
		return err
	}
	ready(s.ClientURL())
	<-ctx.Done()
	s.Shutdown()
	return nil
}

// dialNATS connects. The connection is closed when ctx ends.
func dialNATS(ctx context.Context, servers []string) (*nats.Conn, error) {
	c, err := nats.Connect(servers[0], nats.NoReconnect())
	if err == nil {
		context.AfterFunc(ctx, c.Close)
	}
	return c, err
}

type natsPublisher struct {
	c       *nats.Conn
	subject string // of all keys, or "" for a subject each
	message []byte
}

func publishNATS(ctx context.Context, servers []string, subject string) (publisher, error) {
	c, err := dialNATS(ctx, servers)
	return &natsPublisher{c: c, subject: subject}, err
}

func (p *natsPublisher) set(u update) error {
	if p.subject == "" {
		return p.c.Publish(u.key, u.value)
	}
	p.message = appendMessage(p.message[:0], u.key, u.value)
	return p.c.Publish(p.subject, p.message)
}

func (p *natsPublisher) push() error { return nil } // the client sends in the background

func (p *natsPublisher) settle(ctx context.Context) error {
	return flushNATS(ctx, p.c)
}

// flushNATS waits until the server has taken all that was sent.
func flushNATS(ctx context.Context, c *nats.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, time.Hour) // the call insists on an end
	defer cancel()
	return c.FlushWithContext(ctx)
}

type natsReplica struct {
	*table
	see     func(key, value []byte) bool
	subject string     // of all keys, if they have one
	ended   bool       // of take: nothing more is wanted
	done    chan error // when every update has arrived, or one was malformed
}

func followNATS(ctx context.Context, servers []string, subject string, see func(key, value []byte) bool) (replica, error) {
	c, err := dialNATS(ctx, servers)
	if err != nil {
		return nil, err
	}
	r := &natsReplica{table: newTable(), see: see, subject: subject, done: make(chan error, 1)}
	s, err := c.Subscribe(subject, r.take)
	if err != nil {
		return nil, err
	}
	if err := s.SetPendingLimits(-1, -1); err != nil {
		return nil, err
	}
	return r, flushNATS(ctx, c)
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
	r.put(key, value)
	if !r.see(key, value) {
		r.end(nil)
	}
}

func (r *natsReplica) end(err error) {
	r.ended = true
	r.done <- err
}

func (r *natsReplica) run(ctx context.Context) error {
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
