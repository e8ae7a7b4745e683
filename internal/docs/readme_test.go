package docs

import (
	"context"
	"testing"
	"time"

	"clustermap/chp"
	"clustermap/internal/loopback"
	"clustermap/internal/testenv"
	"clustermap/sockets"
)

// TestReadmeMap: the server and the client of README.md.
func TestReadmeMap(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(testenv.Context(t))
	defer stop()
	own := loopback.Own()
	host := func(string) string { return own }
	endpoint := placesAt(own)
	serve := func() error {
		s, err := chp.NewServer(chp.ServerOptions{Host: host("127.0.0.1"), Port: 5556})
		if err != nil {
			return err
		}
		defer s.Close()
		if err := s.Listen(ctx); err != nil { // such as a port in use
			return err
		}
		if err := s.Set(ctx, "/config/colour", []byte("blue")); err != nil {
			return err
		}
		return s.Serve(ctx)
	}
	follow := func() error {
		c, err := chp.NewClient(chp.ClientOptions{Servers: []string{endpoint("tcp://127.0.0.1:5556")}, Subtrees: []string{"/config/"}})
		if err != nil {
			return err
		}
		defer c.Close()
		seq, err := c.SetSync(ctx, "/config/colour", []byte("red"), chp.WithTTL(30*time.Second))
		value, ok := c.Get("/config/colour")
		if string(value) != "red" || !ok || seq == 0 {
			t.Errorf("%q, %v, sequence %d", value, ok, seq)
		}
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- serve() }()
	testenv.Must(t, follow())
	stop()
	testenv.Must(t, <-ended)
}

// TestReadmeSockets: the sockets of README.md.
func TestReadmeSockets(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	run := func() error {
		pull, err := sockets.NewPull(sockets.Options{})
		if err != nil {
			return err
		}
		defer pull.Close()
		if err := pull.Bind(ctx, "tcp://127.0.0.1:*"); err != nil {
			return err
		}

		push, err := sockets.NewPush(sockets.Options{})
		if err != nil {
			return err
		}
		defer push.CloseContext(ctx) // waits for peers that take their queued messages, or until ctx is done
		if err := push.Connect(pull.LastEndpoint()); err != nil {
			return err
		}
		if err := push.Send(ctx, []byte("job"), []byte("42")); err != nil { // one message of two frames
			return err
		}
		m, err := pull.Recv(ctx) // m[0] is job, m[1] is 42
		if err == nil && (string(m[0]) != "job" || string(m[1]) != "42") {
			t.Errorf("the message is %q", m)
		}
		return err
	}
	testenv.Must(t, run())
}
