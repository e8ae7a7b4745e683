package freelance

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"clustermap/internal/testenv"
	"clustermap/sockets"

	"go.uber.org/goleak"
)

const hang = testenv.Hang

var (
	testContext = testenv.Context
	eventually  = testenv.Eventually
	must        = testenv.Must
)

// short is a ping interval for tests.
const short = 20 * time.Millisecond

func TestMain(m *testing.M) {
	child()
	goleak.VerifyTestMain(m)
}

func echo(_ context.Context, request [][]byte) ([][]byte, error) { return request, nil }

// named is a handler that replies with a name and the first frame of the request.
func named(name string) Handler {
	return func(_ context.Context, request [][]byte) ([][]byte, error) {
		return [][]byte{[]byte(name), request[0]}, nil
	}
}

// startServer starts a server on a port that the system chooses.
func startServer(t testing.TB, o ServerOptions) *Server {
	t.Helper()
	if o.Bind == "" {
		o.Bind = "tcp://127.0.0.1:*"
	}
	if o.Handler == nil {
		o.Handler = echo
	}
	s, err := NewServer(testContext(t), o)
	must(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

func startClient(t testing.TB, o ClientOptions) *Client {
	t.Helper()
	c, err := NewClient(o)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// withSecond starts a client of the server at an endpoint and of another one, which replies
// "second" and the first frame of the request. Both are alive.
func withSecond(t testing.TB, first string, o ClientOptions) (*Client, *Server) {
	t.Helper()
	second := startServer(t, ServerOptions{Handler: named("second")})
	o.Servers = []string{first, second.Endpoint()}
	return startClient(t, o).alive(t), second
}

// alive waits until the client can use all of its servers.
func (c *Client) alive(t testing.TB) *Client {
	t.Helper()
	eventually(t, "all servers are alive", func() bool {
		for _, s := range c.Servers() {
			if s.State != ServerAlive {
				return false
			}
		}
		return true
	})
	return c
}

func wantBody(t testing.TB, got [][]byte, want ...string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("reply %q, want %q", got, want)
	}
	for i := range want {
		if string(got[i]) != want[i] {
			t.Fatalf("reply %q, want %q", got, want)
		}
	}
}

// rawServer is a ROUTER with which a test acts as a server.
type rawServer struct {
	*sockets.Router
	endpoint string
	serving  sync.WaitGroup

	mu       sync.Mutex
	deaf     bool // sends no PONG
	pings    int
	requests []rawRequest
}

// rawRequest is a request as rawServer received it.
type rawRequest struct {
	peer   *sockets.Peer
	frames [][]byte // control frame and body
}

// startRaw starts a server that answers pings and records requests.
func startRaw(t testing.TB) *rawServer {
	t.Helper()
	s := &rawServer{}
	var err error
	s.Router, err = sockets.NewRouter(sockets.Options{Identity: []byte("a test's"), Linger: sockets.LingerNone})
	must(t, err)
	t.Cleanup(func() {
		s.Close()
		s.serving.Wait()
	})
	must(t, s.Bind(testContext(t), "tcp://127.0.0.1:*"))
	s.endpoint = s.LastEndpoint()
	s.serving.Go(func() {
		for {
			m, peer, err := s.RecvFrom(context.Background())
			if err != nil {
				return
			}
			s.mu.Lock()
			isPing := len(m) == 2 && string(m[1]) == "PING"
			if isPing {
				s.pings++
				isPing = !s.deaf
			} else {
				s.requests = append(s.requests, rawRequest{peer, m[1:]})
			}
			s.mu.Unlock()
			if isPing {
				s.SendTo(context.Background(), peer, []byte("PONG"))
			}
		}
	})
	return s
}

func (s *rawServer) setDeaf(deaf bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deaf = deaf
}

func (s *rawServer) pinged() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pings
}

// got returns the requests so far.
func (s *rawServer) got() []rawRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}

// await waits for n requests and returns the last one.
func (s *rawServer) await(t testing.TB, n int) rawRequest {
	t.Helper()
	eventually(t, fmt.Sprintf("%d requests came", n), func() bool { return len(s.got()) >= n })
	return s.got()[n-1]
}

func (s *rawServer) send(t testing.TB, to rawRequest, frames ...string) {
	t.Helper()
	must(t, s.SendTo(testContext(t), to.peer, asBytes(frames)...))
}

func asBytes(frames []string) [][]byte {
	all := make([][]byte, len(frames))
	for i, f := range frames {
		all[i] = []byte(f)
	}
	return all
}

// rawClient is a ROUTER with which a test acts as a client.
type rawClient struct {
	*sockets.Router
	t    testing.TB
	peer *sockets.Peer
}

// startRawClient connects to a server, and waits for the connection.
func startRawClient(t testing.TB, endpoint string, o sockets.Options) *rawClient {
	t.Helper()
	connected := make(chan *sockets.Peer, 1)
	o.Linger = sockets.LingerNone
	o.Monitor = func(e sockets.Event) {
		if e.Kind == sockets.EventHandshakeSucceeded {
			connected <- e.Peer
		}
	}
	r, err := sockets.NewRouter(o)
	must(t, err)
	t.Cleanup(func() { r.Close() })
	must(t, r.Connect(endpoint))
	return &rawClient{r, t, <-connected}
}

func (c *rawClient) send(frames ...string) {
	c.t.Helper()
	must(c.t, c.SendTo(testContext(c.t), c.peer, asBytes(frames)...))
}

// want receives a message and compares it.
func (c *rawClient) want(frames ...string) {
	c.t.Helper()
	m, err := c.Recv(testContext(c.t))
	must(c.t, err)
	got, want := bytes.Join(m[1:], []byte{'|'}), bytes.Join(asBytes(frames), []byte{'|'})
	if len(m) != len(frames)+1 || !bytes.Equal(got, want) {
		c.t.Fatalf("received %.200q, want %.200q", m[1:], frames)
	}
}

// result is the result of begin.
type result struct {
	Reply
	err error
}

// begin sends a request in the background.
func (c *Client) begin(ctx context.Context, body ...string) <-chan result {
	done := make(chan result, 1)
	go func() {
		r, err := c.Do(ctx, asBytes(body)...)
		done <- result{r, err}
	}()
	return done
}
