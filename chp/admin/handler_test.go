package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"clustermap/chp"
	"clustermap/chp/admin"
	"clustermap/internal/testenv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// served is a server that serves until the test ends.
func served(t *testing.T, o chp.ServerOptions) *chp.Server {
	t.Helper()
	s := listening(t, o)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	<-s.Ready()
	return s
}

func listening(t *testing.T, o chp.ServerOptions) *chp.Server {
	t.Helper()
	s, err := chp.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if err := s.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// asked is a Handler that is served over TCP.
type asked struct {
	*admin.Handler
	url string
}

func over(t *testing.T, o admin.Options) asked {
	t.Helper()
	h, err := admin.NewHandler(o)
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(h)
	t.Cleanup(web.Close)
	return asked{h, web.URL}
}

// get returns the status code and the body of an answer.
func (a asked) get(t *testing.T, path string, change ...func(*http.Request)) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, a.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range change {
		c(r)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

func (a asked) expect(t *testing.T, path string, code int, text string, change ...func(*http.Request)) {
	t.Helper()
	if got, body := a.get(t, path, change...); got != code || !strings.Contains(body, text) {
		t.Errorf("%s: %d %q, want %d with %q", path, got, body, code, text)
	}
}

func TestReadyFromTheFirstClientOn(t *testing.T) {
	t.Parallel()
	a := over(t, admin.Options{})
	a.expect(t, "/livez", 200, "ok")
	a.expect(t, "/readyz", 503, "[-] attached: the server has not begun")
	a.expect(t, "/status", 503, "the server has not begun")
	if code, body := a.get(t, "/metrics"); code != 200 || strings.Contains(body, "chp_keys") {
		t.Errorf("metrics of no server: %d %s", code, body)
	}

	s := listening(t, chp.ServerOptions{Host: "127.0.0.1"})
	a.Attach(s)
	a.expect(t, "/livez?verbose", 200, "[+] answers")
	a.expect(t, "/readyz", 503, "[-] serves: it does not accept clients yet")

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	<-s.Ready()
	a.expect(t, "/readyz", 200, "ok")
	a.expect(t, "/readyz?verbose", 200, "[+] answers\n[+] serves\n[+] role\n")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestWaitingServerOfAPairIsNotReady(t *testing.T) {
	t.Parallel()
	// Nobody is at the other one's address, and no client asks.
	s := served(t, chp.ServerOptions{Host: "127.0.0.1", Pair: &chp.PairOptions{Backup: true, State: "tcp://127.0.0.1:*", PeerState: "tcp://127.0.0.1:9", Peer: "tcp://127.0.0.1:9", Interval: time.Hour}})
	a := over(t, admin.Options{})
	a.Attach(s)
	a.expect(t, "/livez", 200, "ok")
	a.expect(t, "/readyz", 503, "[-] role: neither active nor passive")
}

func TestMetricsCountWhatAClientDid(t *testing.T) {
	t.Parallel()
	s := served(t, chp.ServerOptions{Host: "127.0.0.1"})
	a := over(t, admin.Options{})
	a.Attach(s)
	c, err := chp.NewClient(chp.ClientOptions{Servers: []string{s.Endpoints().Snapshot}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for i := range 3 {
		if _, err := c.SetSync(t.Context(), fmt.Sprintf("/k/%d", i), []byte("value")); err != nil {
			t.Fatal(err)
		}
	}
	var conflict *chp.ConflictError
	if _, err := c.SetIf(t.Context(), "/k/0", []byte("x"), chp.IfAbsent()); !errors.As(err, &conflict) {
		t.Fatal(err)
	}
	if _, err := s.SetSync(t.Context(), "/own", []byte("1")); err != nil {
		t.Fatal(err)
	}
	code, body := a.get(t, "/metrics")
	if code != 200 {
		t.Fatal(code, body)
	}
	for _, line := range []string{
		"chp_updates_total 4", "chp_keys 4", "chp_conflicts_total 1", "chp_clients 1", "chp_active 1", "chp_term 0",
		`chp_refused_total{reason="value_too_large"} 0`, "chp_subscriber_queue_bytes 0", "# TYPE chp_updates_total counter",
		"# TYPE chp_map_bytes gauge", "go_goroutines ", "chp_snapshots_total 1",
	} {
		if !strings.Contains(body, "\n"+line) {
			t.Errorf("no line %q in\n%s", line, body)
		}
	}
	var st admin.StatusJSON
	_, text := a.get(t, "/status")
	if err := json.Unmarshal([]byte(text), &st); err != nil || st.Keys != 4 || st.Sequence != s.Sequence() || st.Peer != nil || st.Endpoint != s.Endpoints().Snapshot {
		t.Errorf("status %s: %v", text, err)
	}

	own := prometheus.NewRegistry()
	own.MustRegister(admin.NewClientCollector(c))
	testenv.Eventually(t, "the client has all keys", func() bool {
		return testutil.GatherAndCompare(own, strings.NewReader("# HELP chp_client_keys Keys in the client's map.\n# TYPE chp_client_keys gauge\nchp_client_keys 4\n"), "chp_client_keys") == nil
	})
}

// Names, units and help texts follow Prometheus' conventions.
func TestMetricsFollowTheConventions(t *testing.T) {
	t.Parallel()
	s := served(t, chp.ServerOptions{Host: "127.0.0.1"})
	c, err := chp.NewClient(chp.ClientOptions{Servers: []string{s.Endpoints().Snapshot}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	own := prometheus.NewPedanticRegistry()
	own.MustRegister(admin.NewServerCollector(s), admin.NewClientCollector(c), admin.NewSyncSeconds())
	problems, err := testutil.GatherAndLint(own)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestOnlyNamesOfTheServerAreAnswered(t *testing.T) {
	t.Parallel()
	a := over(t, admin.Options{Hosts: []string{"Metrics.Example"}})
	a.Attach(served(t, chp.ServerOptions{Host: "127.0.0.1"}))
	called := func(host string) func(*http.Request) { return func(r *http.Request) { r.Host = host } }
	for _, host := range []string{"localhost", "LOCALHOST:8080", "localhost.", "127.0.0.1:1", "[::1]:8080", "10.1.2.3", "metrics.example:80"} {
		a.expect(t, "/livez", 200, "ok", called(host))
	}
	for _, host := range []string{"evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", "metrics.example.evil", "xlocalhost"} {
		for _, path := range []string{"/livez", "/status", "/metrics", "/"} {
			a.expect(t, path, http.StatusMisdirectedRequest, "no name of this server", called(host))
		}
	}
	all := over(t, admin.Options{Hosts: []string{"*"}})
	all.expect(t, "/livez", 200, "ok", called("any.example"))
}

func TestClientsAreListed(t *testing.T) {
	t.Parallel()
	s := served(t, chp.ServerOptions{Host: "127.0.0.1"})
	a := over(t, admin.Options{})
	a.expect(t, "/clients", http.StatusServiceUnavailable, "")
	a.Attach(s)
	a.expect(t, "/clients", 200, `{"clients":[],"more":0}`)
	c, err := chp.NewClient(chp.ClientOptions{Servers: []string{s.Endpoints().Snapshot}, Subtrees: []string{"/a/"}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.WaitActive(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.expect(t, "/clients", 200, `"subtrees":["/a/"]`)
}

func TestNothingCanBeChanged(t *testing.T) {
	t.Parallel()
	a := over(t, admin.Options{})
	a.Attach(served(t, chp.ServerOptions{Host: "127.0.0.1"}))
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete} {
		a.expect(t, "/status", http.StatusMethodNotAllowed, "", func(r *http.Request) { r.Method = method })
	}
	a.expect(t, "/debug/pprof/", http.StatusNotFound, "")
	over(t, admin.Options{Pprof: true}).expect(t, "/debug/pprof/", 200, "goroutine")
}

func TestRegistryOfTheProgram(t *testing.T) {
	t.Parallel()
	own := prometheus.NewRegistry()
	a := over(t, admin.Options{Registry: own})
	s := served(t, chp.ServerOptions{Host: "127.0.0.1"})
	a.Attach(s)
	if n, err := testutil.GatherAndCount(own, "chp_keys"); err != nil || n != 1 {
		t.Errorf("%d, %v", n, err)
	}
	if _, err := admin.NewHandler(admin.Options{Registry: own}); err == nil {
		t.Error("a second Handler has the same registry")
	}
}

// A service is ready when all of its checks are, and says which is not.
func TestServiceIsReadyWithItsReplica(t *testing.T) {
	t.Parallel()
	s := served(t, chp.ServerOptions{Host: "127.0.0.1"})
	c, err := chp.NewClient(chp.ClientOptions{Servers: []string{s.Endpoints().Snapshot}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.WaitActive(t.Context()); err != nil {
		t.Fatal(err)
	}
	var broken atomic.Bool
	web := httptest.NewServer(admin.NewReadyHandler(admin.ClientCheck("map", c, 0), admin.Check{Name: "disk", Test: func(context.Context) error {
		if broken.Load() {
			return errors.New("it is full")
		}
		return nil
	}}))
	t.Cleanup(web.Close)
	a := asked{url: web.URL}
	a.expect(t, "/", 200, "ok\n")
	a.expect(t, "/?verbose", 200, "[+] map\n[+] disk\n")
	broken.Store(true)
	a.expect(t, "/?verbose", 503, "[+] map\n[-] disk: it is full\n")
	broken.Store(false)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the client notices", func() bool { return c.State() != chp.StateActive })
	a.expect(t, "/", 503, "[-] map: chp: no server to follow: chp: the client follows no server now: ")
}
