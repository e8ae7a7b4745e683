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
// less than the others, and a replica that joins late gets no map from it. Each key is a
// subject of one token, and the replica subscribes to all of them. The client's table is
// ours. By default the server disconnects a subscriber that is 64 MiB behind, and the
// client drops what exceeds its queue: both limits are lifted, so nothing is lost.
var natsSystem = system{name: "nats", share: 2, serve: serveNATS, publish: publishNATS, follow: followNATS}

// natsPending is what the server queues for a subscriber, in bytes.
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

type natsPublisher struct{ c *nats.Conn }

func publishNATS(ctx context.Context, servers []string, _ workload) (publisher, error) {
	c, err := dialNATS(ctx, servers)
	return &natsPublisher{c}, err
}

func (p *natsPublisher) set(u update) error { return p.c.Publish(u.key, u.value) }

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
	see  func(key, value []byte) bool
	done chan struct{} // closed when every update has arrived
}

func followNATS(ctx context.Context, servers []string, see func(key, value []byte) bool) (replica, error) {
	c, err := dialNATS(ctx, servers)
	if err != nil {
		return nil, err
	}
	r := &natsReplica{table: newTable(), see: see, done: make(chan struct{})}
	s, err := c.Subscribe("*", r.take)
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
	key := unsafe.Slice(unsafe.StringData(m.Subject), len(m.Subject)) // nobody changes it
	r.put(key, m.Data)
	if !r.see(key, m.Data) {
		close(r.done)
	}
}

func (r *natsReplica) run(ctx context.Context) error {
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
