package chp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"clustermap/chp/internal/wire"
	"clustermap/internal/ipcpath"
)

// One text names three endpoints, in each transport.
func TestEndpointNames(t *testing.T) {
	t.Parallel()
	longest := "ipc://" + strings.Repeat("x", ipcpath.MaxServer)
	for _, c := range []struct{ text, publisher, collector string }{
		{"tcp://127.0.0.1:5556", "tcp://127.0.0.1:5557", "tcp://127.0.0.1:5558"},
		{"tcp://[::1]:5556", "tcp://[::1]:5557", "tcp://[::1]:5558"},
		{"ipc:///run/chp", "ipc:///run/chp+1", "ipc:///run/chp+2"},
		{"ipc://@chp", "ipc://@chp+1", "ipc://@chp+2"},
		{"inproc://map", "inproc://map+1", "inproc://map+2"},
		{longest, longest + "+1", longest + "+2"},
	} {
		a, err := parseServer(c.text, wire.DialectOf(ModelSix))
		if err != nil || a.Snapshot != c.text || a.Publisher != c.publisher || a.Collector != c.collector {
			t.Errorf("%s: %+v, %v", c.text, a, err)
		}
	}
	for _, text := range []string{
		"", "127.0.0.1:5556", "tcp://", "tcp://:5556", "tcp://*:5556", "tcp://host:0", "tcp://host:*", "tcp://host:65534", "tcp://host:x",
		"tcp://a;b:5556", "ipc://", "ipc://*", "ipc://@", "ipc://a\x00b", "ipc://" + strings.Repeat("x", ipcpath.MaxServer+1), "inproc://", "udp://host:5556",
	} {
		if a, err := parseServer(text, wire.DialectOf(ModelSix)); err == nil {
			t.Errorf("%q: %+v", text, a)
		}
	}
}

// Invalid endpoints are refused before anything is bound.
func TestEndpointOptions(t *testing.T) {
	t.Parallel()
	for _, o := range []ServerOptions{
		{Endpoints: []string{"127.0.0.1:5556"}},
		{Endpoints: []string{"ipc://"}},
		{Endpoints: []string{"ipc://" + strings.Repeat("x", ipcpath.MaxServer+1)}},
		{Endpoints: []string{"tcp://127.0.0.1:65534"}},
		{Endpoints: []string{"inproc://a", "inproc://a"}},
		{Endpoints: []string{"inproc://a"}, Port: 5556},
		{Endpoints: []string{"inproc://a"}, Host: "127.0.0.1"},
		{Advertise: "map.example.com"},
		{Advertise: "tcp://*:5556"},
	} {
		s, err := NewServer(o)
		var wrong *OptionError
		if !errors.As(err, &wrong) {
			t.Errorf("%+v: %v", o, err)
			if err == nil {
				s.Close()
			}
		}
	}
}

// transports are endpoints of each kind, for one test.
func transports(t *testing.T) []string {
	return []string{"tcp://127.0.0.1:*", "ipc://" + filepath.Join(t.TempDir(), "map"), "inproc://" + t.Name()}
}

// A server listens on several endpoints of different transports, and clients of each
// share one map, with the server's own updates, watches, times to live and refusals.
func TestServerEndpoints(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("needs Unix sockets")
	}
	ctx := testContext(t)
	list := transports(t)
	s := startServer(t, ServerOptions{Endpoints: list, MaxMapBytes: 1 << 20, HeartbeatInterval: 50 * time.Millisecond})
	all := s.AllEndpoints()
	if len(all) != len(list) || s.Endpoints() != all[0] || s.Status().Endpoint != all[0].Snapshot {
		t.Fatalf("endpoints %v", all)
	}
	if all[1] != (Endpoints{list[1], list[1] + "+1", list[1] + "+2"}) || all[2] != (Endpoints{list[2], list[2] + "+1", list[2] + "+2"}) {
		t.Errorf("endpoints %v", all)
	}
	must(t, s.Set(ctx, "/before", []byte("1")))
	var clients []*Client
	for _, e := range all {
		c, err := NewClient(ClientOptions{Servers: []string{e.Snapshot}, HeartbeatTimeout: hang, SyncTimeout: hang, Logger: quiet()})
		must(t, err)
		t.Cleanup(func() { must(t, c.Close()) })
		clients = append(clients, c)
	}
	for i, c := range clients {
		must(t, c.WaitActive(ctx))
		_, err := c.SetSync(ctx, fmt.Sprintf("/from/%d", i), []byte("x"))
		must(t, err)
		_, err = c.SetSync(ctx, "/large", make([]byte, 1<<20))
		if !errors.Is(err, &MessageError{Reason: ReasonMapFull}) {
			t.Errorf("%s: a refused update: %v", all[i].Snapshot, err)
		}
		for n := range 2000 {
			must(t, c.Set(ctx, fmt.Sprintf("/n/%d", n), fmt.Appendf(nil, "%d of %d", n, i)))
		}
		must(t, c.Flush(ctx))
	}
	_, err := s.SetSync(ctx, "/brief", []byte("2"), WithTTL(10*time.Millisecond))
	must(t, err)
	eventually(t, "the key expires", func() bool { _, ok := s.Get("/brief"); return !ok })
	_, err = s.SetSync(ctx, "/last", []byte("3"))
	must(t, err)
	for i, c := range clients {
		waitEqual(t, s, c)
		st, err := ServerStatus(ctx, all[i].Snapshot, c.opts.Security)
		if err != nil || st.Keys != s.Len() {
			t.Errorf("%s: status %+v, %v", all[i].Snapshot, st, err)
		}
		if stats := c.Stats(); stats.Syncs != 1 || stats.Gaps != 0 {
			t.Errorf("%s: %d snapshots, %d gaps", all[i].Snapshot, stats.Syncs, stats.Gaps)
		}
	}
}

// Clients by ipc and inproc notice that their server has gone, and follow the next one at
// the same endpoint.
func TestEndpointsReconnect(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("needs Unix sockets")
	}
	for _, endpoint := range transports(t)[1:] {
		t.Run(strings.SplitN(endpoint, ":", 2)[0], func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			c, err := NewClient(ClientOptions{Servers: []string{endpoint}, HeartbeatTimeout: time.Second, Logger: quiet()})
			must(t, err)
			defer c.Close()
			for i := range 3 {
				s, err := NewServer(ServerOptions{Endpoints: []string{endpoint}, HeartbeatInterval: 50 * time.Millisecond, Logger: quiet()})
				must(t, err)
				must(t, s.Listen(ctx))
				served := make(chan error, 1)
				go func() { served <- s.Serve(context.Background()) }()
				key := fmt.Sprintf("/%d", i)
				must(t, s.Set(ctx, key, []byte("1")))
				eventually(t, "the client follows", func() bool { _, ok := c.Get(key); return ok })
				for err = ErrUncertain; errors.Is(err, ErrUncertain); { // it may still be leaving the former server
					_, err = c.SetSync(ctx, "/theirs", []byte("1"))
				}
				must(t, err)
				if _, ok := s.Get("/theirs"); !ok {
					t.Error("the server does not have the client's update")
				}
				must(t, s.Close())
				must(t, <-served)
			}
		})
	}
}

// If one endpoint of several is in use, none stays bound.
func TestEndpointsInUse(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("needs Unix sockets")
	}
	ctx := testContext(t)
	path := "ipc://" + filepath.Join(t.TempDir(), "map")
	name := "inproc://" + t.Name()
	startServer(t, ServerOptions{Endpoints: []string{name + "+2"}}) // the third one of name
	s, err := NewServer(ServerOptions{Endpoints: []string{"tcp://127.0.0.1:0", path, name}, Logger: quiet()})
	must(t, err)
	defer s.Close()
	err = s.Listen(ctx)
	var listen *ListenError
	if !errors.As(err, &listen) || !errors.Is(err, syscall.EADDRINUSE) || listen.Endpoint != name+"+2" {
		t.Errorf("Listen: %v", err)
	}
	if all := s.AllEndpoints(); len(all) != 0 {
		t.Errorf("bound: %v", all)
	}
	startServer(t, ServerOptions{Endpoints: []string{path}})
	startServer(t, ServerOptions{Endpoints: []string{name + "+1"}})
}

// The wildcard path of ipc is a temporary one, from which the other two follow, and
// nothing is left of it.
func TestEndpointsTemporaryPath(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("needs Unix sockets")
	}
	ctx := testContext(t)
	s := startServer(t, ServerOptions{Endpoints: []string{"ipc://*"}})
	e := s.Endpoints()
	if e.Publisher != e.Snapshot+"+1" || e.Collector != e.Snapshot+"+2" {
		t.Errorf("endpoints %v", e)
	}
	c := startClient(t, s, ClientOptions{})
	_, err := c.SetSync(ctx, "/a", []byte("1"))
	must(t, err)
	must(t, c.Close())
	must(t, s.Close())
	dir := filepath.Dir(strings.TrimPrefix(e.Snapshot, "ipc://"))
	if left, _ := filepath.Glob(dir + "*"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// Status tells the advertised endpoint.
func TestAdvertise(t *testing.T) {
	t.Parallel()
	s := startServer(t, ServerOptions{Endpoints: []string{"tcp://*:0"}, Advertise: "tcp://map.example.com:5556"})
	if st := s.Status(); st.Endpoint != "tcp://map.example.com:5556" {
		t.Errorf("status has %s", st.Endpoint)
	}
	if _, port, err := net.SplitHostPort(strings.TrimPrefix(s.Endpoints().Snapshot, "tcp://")); err != nil || port == "0" {
		t.Errorf("endpoint %s", s.Endpoints().Snapshot)
	}
}

// A server uses listeners that are handed in, in the order P, P+1, P+2, and closes them; a
// client's connections are handed in too, so their ports need not be consecutive.
func TestListenersHandedIn(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	var asked []string
	listeners := map[string]net.Listener{}
	s := startServer(t, ServerOptions{Endpoints: []string{"tcp://127.0.0.1:7000"}, Listen: func(ctx context.Context, network, address string) (net.Listener, error) {
		var lc net.ListenConfig
		l, err := lc.Listen(ctx, network, "127.0.0.1:0")
		asked, listeners[address] = append(asked, address), l
		return l, err
	}})
	if want := []string{"127.0.0.1:7000", "127.0.0.1:7001", "127.0.0.1:7002"}; !slices.Equal(asked, want) {
		t.Fatalf("asked for %v, want %v", asked, want)
	}
	if got, want := s.Endpoints().Collector, "tcp://"+listeners["127.0.0.1:7002"].Addr().String(); got != want {
		t.Errorf("collector at %s, want %s", got, want)
	}
	c, err := NewClient(ClientOptions{Servers: []string{"tcp://127.0.0.1:7000"}, SyncTimeout: hang, Logger: quiet(), Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, listeners[address].Addr().String())
	}})
	must(t, err)
	defer c.Close()
	must(t, s.Set(ctx, "/server", []byte("1")))
	_, err = c.SetSync(ctx, "/client", []byte("2"))
	must(t, err)
	waitEqual(t, s, c)
	must(t, c.Close())
	must(t, s.Close())
	for address, l := range listeners {
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("the listener for %s is open: %v", address, err)
		}
	}
}

// With any free ports, a first port that cannot be bound is not tried again; other ports
// are.
func TestListenAgain(t *testing.T) {
	t.Parallel()
	for failing, want := range map[int]int{1: 1, 2: 5, 3: 6} {
		calls := 0
		refusal := errors.New("refused")
		s, err := NewServer(ServerOptions{Endpoints: []string{"tcp://127.0.0.1:0"}, Listen: func(ctx context.Context, network, address string) (net.Listener, error) {
			if calls++; calls == failing {
				return nil, refusal
			}
			var lc net.ListenConfig
			return lc.Listen(ctx, network, "127.0.0.1:0")
		}})
		if err != nil {
			t.Fatal(err)
		}
		err = s.Listen(testContext(t))
		if failing == 1 != errors.Is(err, refusal) || failing > 1 && err != nil || calls != want {
			t.Errorf("call %d fails: %d calls, want %d, %v", failing, calls, want, err)
		}
		s.Close()
	}
}
