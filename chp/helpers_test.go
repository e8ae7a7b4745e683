package chp

import (
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"clustermap/internal/testenv"
	"clustermap/sockets"

	"go.uber.org/goleak"
)

const (
	hang         = testenv.Hang
	raceDetector = testenv.RaceDetector // says that tests run under the race detector, some ten times slower
)

var (
	testContext = testenv.Context
	must        = testenv.Must
	eventually  = testenv.Eventually
)

func TestMain(m *testing.M) {
	testenv.Names()
	goleak.VerifyTestMain(m)
}

// portOf returns the port of an endpoint.
func portOf(endpoint string) int {
	n, _ := strconv.Atoi(endpoint[strings.LastIndexByte(endpoint, ':')+1:])
	return n
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// startServer serves on free ports until the test ends.
func startServer(t testing.TB, o ServerOptions) *Server {
	t.Helper()
	if o.Logger == nil {
		o.Logger = quiet()
	}
	s, err := NewServer(o)
	must(t, err)
	gated(s)
	must(t, s.Listen(testContext(t)))
	served := make(chan error, 1)
	go func() { served <- s.Serve(context.Background()) }()
	<-s.Ready()
	t.Cleanup(func() {
		must(t, s.Close())
		must(t, <-served)
	})
	return s
}

// plainClient is a CHP client of the wire alone: the three sockets of RFC 12,
// without any of this package's client. It does not announce itself as ours.
type plainClient struct {
	t      testing.TB
	ctx    context.Context
	dealer *sockets.Dealer
	sub    *sockets.Sub
	pub    *sockets.Pub
}

// kv is a received kvmsg, taken apart.
type kv struct {
	key        string
	seq        int64
	uuid       []byte
	properties string
	value      string
}

func newPlainClient(t testing.TB, s *Server, topics ...string) *plainClient {
	t.Helper()
	c := &plainClient{t: t, ctx: testContext(t)}
	var err error
	c.dealer, err = sockets.NewDealer(sockets.Options{Linger: sockets.LingerNone})
	must(t, err)
	t.Cleanup(func() { c.dealer.Close() })
	c.sub, err = sockets.NewSub(sockets.Options{RecvHWM: -1})
	must(t, err)
	t.Cleanup(func() { c.sub.Close() })
	c.pub, err = sockets.NewPub(sockets.Options{FullPolicy: sockets.PolicyBlock, WaitSubscriber: true, Linger: 30 * time.Second})
	must(t, err)
	t.Cleanup(func() { c.pub.Close() })
	e := s.Endpoints()
	must(t, c.dealer.Connect(e.Snapshot))
	must(t, c.sub.Connect(e.Publisher))
	must(t, c.pub.Connect(e.Collector))
	if len(topics) == 0 {
		topics = []string{""}
	}
	for _, topic := range topics {
		must(t, c.sub.Subscribe(topic))
	}
	must(t, c.sub.WaitSubscribed(c.ctx))
	return c
}

// set sends a KVSET.
func (c *plainClient) set(key, properties, value string) {
	c.t.Helper()
	c.send([]byte(key), make([]byte, 8), []byte("0123456789abcdef"), []byte(properties), []byte(value))
}

func (c *plainClient) send(frames ...[]byte) {
	c.t.Helper()
	must(c.t, c.pub.Send(c.ctx, frames...))
}

// next returns the next KVPUB, leaving out heartbeats.
func (c *plainClient) next() kv {
	c.t.Helper()
	for {
		if m := c.any(); m.key != "HUGZ" {
			return m
		}
	}
}

// any returns the next message of the publisher.
func (c *plainClient) any() kv {
	c.t.Helper()
	m, err := c.sub.Recv(c.ctx)
	must(c.t, err)
	return toKV(c.t, m)
}

func toKV(t testing.TB, m sockets.Message) kv {
	t.Helper()
	if len(m) != 5 || len(m[1]) != 8 {
		t.Fatalf("not a kvmsg: %q", m)
	}
	return kv{string(m[0]), int64(binary.BigEndian.Uint64(m[1])), m[2], string(m[3]), string(m[4])}
}

// snapshot asks for a subtree and returns the KVSYNCs and the KTHXBAI.
func (c *plainClient) snapshot(subtree string) ([]kv, kv) {
	c.t.Helper()
	must(c.t, c.dealer.Send(c.ctx, []byte("ICANHAZ?"), []byte(subtree)))
	var all []kv
	for {
		m, err := c.dealer.Recv(c.ctx)
		must(c.t, err)
		one := toKV(c.t, m)
		if one.key == "KTHXBAI" {
			return all, one
		}
		all = append(all, one)
	}
}
