package majordomo

import (
	"context"
	"slices"
	"testing"
	"time"

	"clustermap/internal/testenv"
	"clustermap/sockets"

	"go.uber.org/goleak"
)

const (
	hang    = testenv.Hang
	anyPort = testenv.AnyPort
)

var (
	testContext = testenv.Context
	eventually  = testenv.Eventually
	must        = testenv.Must
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// startBroker starts a broker and returns its endpoint.
func startBroker(t testing.TB, o BrokerOptions) (*Broker, string) {
	t.Helper()
	b, err := NewBroker(o)
	must(t, err)
	t.Cleanup(func() { b.Close() })
	endpoint, err := b.Bind(testContext(t), anyPort)
	must(t, err)
	return b, endpoint
}

func startWorker(t testing.TB, service, endpoint string, h Handler, o WorkerOptions) *Worker {
	t.Helper()
	o.Broker = endpoint
	w, err := NewWorker(service, h, o)
	must(t, err)
	t.Cleanup(func() { w.Close() })
	return w
}

func startClient(t testing.TB, endpoint string, o ClientOptions) *Client {
	t.Helper()
	o.Broker = endpoint
	c, err := NewClient(o)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// echo is a handler that returns the request.
func echo(_ context.Context, request [][]byte) ([][]byte, error) { return request, nil }

// texts returns frames as strings.
func texts(frames [][]byte) []string {
	all := make([]string, len(frames))
	for i, f := range frames {
		all[i] = string(f)
	}
	return all
}

// raw is a peer of a broker whose frames a test sends and receives.
type raw struct {
	t testing.TB
	*sockets.Dealer
	ctx context.Context
}

func newRaw(t testing.TB, endpoint string, o sockets.Options) *raw {
	t.Helper()
	d, err := sockets.NewDealer(o)
	must(t, err)
	t.Cleanup(func() { d.Close() })
	must(t, d.Connect(endpoint))
	return &raw{t, d, testContext(t)}
}

func (r *raw) send(frames ...string) {
	r.t.Helper()
	m := make([][]byte, len(frames))
	for i, f := range frames {
		m[i] = []byte(f)
	}
	must(r.t, r.Send(r.ctx, m...))
}

// recv returns the next message that is not a heartbeat.
func (r *raw) recv() []string {
	r.t.Helper()
	for {
		m, err := r.Recv(r.ctx)
		must(r.t, err)
		if f := texts(m); !isHeartbeat(f) {
			return f
		}
	}
}

// isHeartbeat reports whether a message of the broker is a HEARTBEAT of either version.
func isHeartbeat(f []string) bool {
	return len(f) == 3 && f[1] == worker01 && f[2] == "\x04" || len(f) == 2 && f[0] == worker02 && f[1] == "\x05"
}

// The worker commands of version 0.1.
const (
	cReady      = "\x01"
	cRequest    = "\x02"
	cReply      = "\x03"
	cHeartbeat  = "\x04"
	cDisconnect = "\x05"
)

// ready registers a peer as a worker of version 0.1, and waits until the broker has
// registered it.
func (r *raw) ready(b *Broker, service string) {
	r.t.Helper()
	n := workersOf(b, service)
	r.send("", worker01, cReady, service)
	eventually(r.t, "a worker is registered", func() bool { return workersOf(b, service) > n })
}

func workersOf(b *Broker, service string) int {
	for _, s := range b.Services() {
		if s.Name == service {
			return s.Workers
		}
	}
	return 0
}

// await receives the next message and compares it.
func (r *raw) await(want ...string) {
	r.t.Helper()
	if got := r.recv(); !slices.Equal(got, want) {
		r.t.Fatalf("got %q, want %q", got, want)
	}
}

// awaitRequest receives a REQUEST of version 0.1 and returns the client's address.
func (r *raw) awaitRequest(body ...string) (address string) {
	r.t.Helper()
	got := r.recv()
	if len(got) < 6 || !slices.Equal(got[:3], []string{"", worker01, cRequest}) || got[4] != "" || !slices.Equal(got[5:], body) {
		r.t.Fatalf("got %q, want a REQUEST of %q", got, body)
	}
	return got[3]
}

func (r *raw) reply(address string, body ...string) {
	r.t.Helper()
	r.send(append([]string{"", worker01, cReply, address, ""}, body...)...)
}

// silent checks that a broker sends nothing more to peers that it has dismissed, and sent
// them only heartbeats before. watch is a registered worker of the same broker.
func silent(t testing.TB, b *Broker, watch *raw, peers ...*raw) {
	t.Helper()
	// A message from the broker's own socket comes after all that the broker has sent.
	mark := func(text string) {
		var dismissed []*sockets.Peer
		eventually(t, "all are dismissed", func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			dismissed = dismissed[:0]
			for peer, c := range b.conns {
				if c.dismissed {
					dismissed = append(dismissed, peer)
				}
			}
			return len(dismissed) == len(peers)
		})
		for _, peer := range dismissed {
			must(t, b.router.SendTo(testContext(t), peer, []byte(text)))
		}
	}
	mark("first")
	for _, r := range peers {
		r.await("first")
	}
	for range 3 {
		watch.beat()
	}
	mark("last")
	for _, r := range peers {
		m, err := r.Recv(r.ctx)
		must(t, err)
		if got := texts(m); !slices.Equal(got, []string{"last"}) {
			t.Fatalf("got %q, want nothing", got)
		}
	}
}

// beat waits for the next heartbeat of the broker, and answers it.
func (r *raw) beat() {
	r.t.Helper()
	for _, err := r.TryRecv(); err == nil; _, err = r.TryRecv() { // those before
	}
	if _, err := r.Recv(r.ctx); err != nil {
		r.t.Fatal(err)
	}
	r.send("", worker01, cHeartbeat)
}

// request sends a request of version 0.1.
func (r *raw) request(service string, body ...string) {
	r.t.Helper()
	r.send(append([]string{"", client01, service}, body...)...)
}

// quick has the heartbeats for tests with silent peers, and lasting those for tests in
// which no peer may become silent, however loaded the machine is.
var (
	quick   = BrokerOptions{Heartbeat: 20 * time.Millisecond, Liveness: 5}
	lasting = BrokerOptions{Heartbeat: 20 * time.Millisecond, Liveness: 5000}
)

// fakeBroker is a broker of another implementation, whose frames a test sends and
// receives.
type fakeBroker struct {
	t testing.TB
	*sockets.Router
	ctx      context.Context
	endpoint string
}

func newFakeBroker(t testing.TB) *fakeBroker {
	t.Helper()
	r, err := sockets.NewRouter(sockets.Options{})
	must(t, err)
	t.Cleanup(func() { r.Close() })
	f := &fakeBroker{t, r, testContext(t), ""}
	must(t, r.Bind(f.ctx, anyPort))
	f.endpoint = r.LastEndpoint()
	return f
}

// recv returns the next message that is not a heartbeat, and its sender.
func (f *fakeBroker) recv() (peer string, frames []string) {
	f.t.Helper()
	for {
		m, err := f.Recv(f.ctx)
		must(f.t, err)
		got := texts(m)
		if len(got) == 4 && got[3] == cHeartbeat {
			continue
		}
		return got[0], got[1:]
	}
}

func (f *fakeBroker) send(peer string, frames ...string) {
	f.t.Helper()
	m := [][]byte{[]byte(peer)}
	for _, s := range frames {
		m = append(m, []byte(s))
	}
	must(f.t, f.Send(f.ctx, m...))
}

// awaitReady receives a READY and returns its sender.
func (f *fakeBroker) awaitReady(service string) (peer string) {
	f.t.Helper()
	for {
		peer, got := f.recv()
		if slices.Equal(got, []string{"", worker01, cReady, service}) {
			return peer
		}
		if len(got) == 3 && got[2] == cDisconnect {
			continue // from a previous connection
		}
		f.t.Fatalf("got %q, want READY", got)
	}
}
