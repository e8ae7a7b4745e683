package browser

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"clustermap/chp"
	"clustermap/internal/commandtest"
	"clustermap/internal/testenv"
	"clustermap/sockets"
)

// server is a process of chp serve with --http.
type server struct {
	*commandtest.Process
	t        *testing.T
	endpoint string // of clients
	url      string // of the page
	token    string // of whoever may do everything, for /v1/
}

// serve starts a server on ports that the system chooses, unless the arguments say otherwise.
func serve(t *testing.T, args ...string) *server {
	t.Helper()
	return serveAs(t, append([]string{"--port", "0", "--http", "127.0.0.1:0"}, args...)...)
}

func serveAs(t *testing.T, args ...string) *server {
	t.Helper()
	s := &server{Process: program.Start(t, append([]string{"serve"}, args...)...), t: t}
	s.url = s.Await(`(?m)^chp: http on (http://\S+)$`)[1] + "/"
	s.endpoint = s.Ready()[0]
	return s
}

// client returns a client of the server.
func (s *server) client(security sockets.Security, subtrees ...string) *chp.Client {
	s.t.Helper()
	c, err := chp.NewClient(chp.ClientOptions{Servers: []string{s.endpoint}, Security: security, Subtrees: subtrees})
	testenv.Must(s.t, err)
	s.t.Cleanup(func() { c.Close() })
	testenv.Must(s.t, c.WaitActive(testenv.Context(s.t)))
	return c
}

// set sets keys: a key, its value, and so on.
func (s *server) set(c *chp.Client, pairs ...string) {
	s.t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		_, err := c.SetSync(testenv.Context(s.t), pairs[i], []byte(pairs[i+1]))
		testenv.Must(s.t, err)
	}
}

// ask makes a request without a browser, and returns the status and the body.
func (s *server) ask(method, path, body, token string) (int, string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(testenv.Context(s.t), method, s.url+path, bytes.NewReader([]byte(body)))
	testenv.Must(s.t, err)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := http.DefaultClient.Do(r)
	testenv.Must(s.t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	testenv.Must(s.t, err)
	return answer.StatusCode, string(text)
}

// writing makes updates, some hundred a second, until the function that it returns is called, or the test ends.
func writing(t *testing.T, c *chp.Client, key string, value []byte) (stop func()) {
	ctx, cancel := context.WithCancel(testenv.Context(t))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		each := time.NewTicker(5 * time.Millisecond)
		defer each.Stop()
		for ctx.Err() == nil {
			<-each.C
			if _, err := c.SetSync(ctx, key, value); err != nil && ctx.Err() == nil {
				t.Errorf("set %s: %v", key, err)
				return
			}
		}
	}()
	stop = func() {
		cancel()
		<-ended
	}
	t.Cleanup(stop)
	return stop
}

// withoutScheme is an endpoint as it is in a title.
func withoutScheme(endpoint string) string { return strings.TrimPrefix(endpoint, "tcp://") }
