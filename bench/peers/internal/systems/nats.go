package systems

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// natsPending is the limit of the server's queue for a subscriber, in bytes.
const natsPending = 16 << 30

// NATSOptions returns the options of a server that drops no client.
func NATSOptions() *server.Options {
	return &server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true,
		MaxPending: natsPending, WriteDeadline: time.Minute,
	}
}

// StartNATS starts a server that runs until it is shut down.
func StartNATS(o *server.Options) (*server.Server, error) {
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

// DialNATS connects to the first of the servers that answers, in this order. The connection is closed when ctx ends.
func DialNATS(ctx context.Context, servers []string, options ...nats.Option) (*nats.Conn, error) {
	c, err := nats.Connect(strings.Join(servers, ","), append(options, nats.DontRandomize())...)
	if err == nil {
		context.AfterFunc(ctx, c.Close)
	}
	return c, err
}
