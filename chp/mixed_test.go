package chp

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"clustermap/chp/internal/wire"
	"clustermap/internal/testenv"
	"clustermap/internal/wake"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// scatter returns a Dial function for a server at 127.0.0.1:7000: the way says to which of
// the servers the connections to its three ports go, in the order of the ports.
func scatter(servers []*Server, way *atomic.Pointer[string]) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		_, text, _ := net.SplitHostPort(address)
		port, _ := strconv.Atoi(text)
		e := servers[(*way.Load())[port-7000]-'A'].Endpoints()
		_, to, _ := net.SplitHostPort([]string{e.Snapshot, e.Publisher, e.Collector}[port-7000][len("tcp://"):])
		var d net.Dialer
		return d.DialContext(ctx, network, net.JoinHostPort("127.0.0.1", to))
	}
}

// scatterServers returns two servers with different maps.
func scatterServers(t *testing.T) []*Server {
	t.Helper()
	all := []*Server{startServer(t, ServerOptions{}), startServer(t, ServerOptions{})}
	for i, s := range all {
		must(t, s.Set(testContext(t), "/who", []byte{byte('A' + i)}))
	}
	return all
}

// holds reports whether a server's map has a key.
func holds(s *Server, key string) bool {
	_, at := s.Lookup(key)
	return at == PresenceFound
}

// TestMixtureIsAnError: a client whose connections reach different servers is never
// ACTIVE, says why, and follows one of them as soon as all connections reach it.
func TestMixtureIsAnError(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"ABB", "BAB", "BBA", "ABA", "BAA", "AAB"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			servers := scatterServers(t)
			var now atomic.Pointer[string]
			now.Store(&way)
			failed := make(chan error, 100)
			c, err := NewClient(ClientOptions{
				Servers: []string{"tcp://127.0.0.1:7000"}, Dial: scatter(servers, &now), Logger: quiet(), restless: true,
				OnFailure: func(_ string, err error) {
					select {
					case failed <- err:
					default:
					}
				},
			})
			must(t, err)
			t.Cleanup(func() { c.Close() })
			if way[0] == way[1] { // only the collector is another's, which a writer notices
				must(t, c.WaitActive(ctx))
			}
			wrote := make(chan error, 1)
			go func() {
				_, err := c.SetSync(ctx, "/mine", []byte("1"))
				wrote <- err
			}()
			var mixed *MixedError
			if err := <-failed; !errors.As(err, &mixed) || mixed.Server != "tcp://127.0.0.1:7000" || mixed.Remote == mixed.Other {
				t.Errorf("failed with %v", err)
			}
			// The next one has seen that the client writes.
			for range 2 {
				if err := <-failed; !errors.As(err, &mixed) {
					t.Errorf("failed with %v", err)
				}
			}
			gone, cancel := context.WithCancel(ctx)
			cancel()
			if err := c.WaitActive(gone); !errors.As(err, &mixed) {
				t.Errorf("WaitActive: %v", err)
			}
			for i, s := range servers {
				if holds(s, "/mine") {
					t.Errorf("server %c has the update", 'A'+i)
				}
			}
			same := "BBB"
			now.Store(&same)
			must(t, <-wrote)
			if value, _ := c.Get("/who"); string(value) != "B" {
				t.Errorf("follows %q", value)
			}
			if a, b := holds(servers[0], "/mine"), holds(servers[1], "/mine"); a || !b {
				t.Errorf("the update is at A %v, at B %v", a, b)
			}
		})
	}
}

// TestCollectorRefusesClientsOfOthers: a server takes no update of a client that says that
// it follows another one.
func TestCollectorRefusesClientsOfOthers(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	over := make(chan struct{})
	var once sync.Once
	pub, err := sockets.NewPub(sockets.Options{
		Metadata:          map[string]string{"X-CHP-Instance": wire.NewID()},
		ReconnectInterval: sockets.ReconnectNever,
		Monitor: func(e sockets.Event) {
			if e.Kind == sockets.EventDisconnected {
				once.Do(func() { close(over) })
			}
		},
	})
	must(t, err)
	t.Cleanup(func() { pub.Close() })
	must(t, pub.Connect(s.Endpoints().Collector))
	select {
	case <-over:
	case <-ctx.Done():
		t.Fatal("the server keeps the connection")
	}
}

// TestRefusedCollectorIsNoConnectionOfItsClient: the end of a refused connection to the
// collector does not count as the end of one of the client's others, with which the client
// would be listed twice among those that have gone.
func TestRefusedCollectorIsNoConnectionOfItsClient(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	id := wire.NewID()
	announce := map[string]string{"X-CHP-Client": id, "X-CHP-Generation": "1", "X-CHP-Instance": wire.NewID()}
	state := func() (connections, collectors, gone int) {
		for _, p := range s.members.Connected() {
			if p.SocketType() == "PUB" {
				collectors++
			}
		}
		n, known := s.members.Known()[id]
		if known && n == 0 {
			gone = 1
		}
		return n, collectors, gone
	}
	dealer, err := sockets.NewDealer(sockets.Options{Metadata: announce})
	must(t, err)
	t.Cleanup(func() { dealer.Close() })
	must(t, dealer.Connect(s.Endpoints().Snapshot))
	eventually(t, "the snapshot connection is known", func() bool { n, _, _ := state(); return n == 1 })
	over := make(chan struct{})
	pub, err := sockets.NewPub(sockets.Options{
		Metadata: announce, ReconnectInterval: sockets.ReconnectNever,
		Monitor: func(e sockets.Event) {
			if e.Kind == sockets.EventDisconnected {
				close(over)
			}
		},
	})
	must(t, err)
	t.Cleanup(func() { pub.Close() })
	must(t, pub.Connect(s.Endpoints().Collector))
	select {
	case <-over:
	case <-ctx.Done():
		t.Fatal("the server keeps the connection")
	}
	eventually(t, "the server has seen the end, too", func() bool { _, n, _ := state(); return n == 0 })
	if n, _, gone := state(); n != 1 || gone != 0 {
		t.Errorf("the client has %d connections, and %d have gone", n, gone)
	}
	must(t, dealer.Close())
	eventually(t, "the client has gone", func() bool { _, _, gone := state(); return gone > 0 })
	if n, _, gone := state(); n != 0 || gone != 1 {
		t.Errorf("afterwards it has %d connections, and %d have gone", n, gone)
	}
}

// TestNameOfSeveralServers: a client of a name with several servers follows one of them
// with all of its connections, whichever address the name gives first.
func TestNameOfSeveralServers(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	var servers []*Server
	port := 0
	for servers == nil { // the same ports at two addresses
		a := startServer(t, ServerOptions{Host: "127.0.0.1"})
		port = portOf(a.Endpoints().Snapshot)
		b, err := NewServer(ServerOptions{Host: "127.0.0.2", Port: port, Logger: quiet()})
		must(t, err)
		if b.Listen(ctx) != nil {
			continue
		}
		go b.Serve(context.Background())
		t.Cleanup(func() { b.Close() })
		servers = []*Server{a, b}
	}
	var turn atomic.Int64
	name := testenv.NewName(t, func() []string {
		if turn.Add(1)%4 < 2 { // each look-up has two questions, for A and AAAA
			return []string{"127.0.0.1", "127.0.0.2"}
		}
		return []string{"127.0.0.2", "127.0.0.1"}
	})
	for n := range 12 {
		c, err := NewClient(ClientOptions{
			Servers: []string{"tcp://" + name + ":" + strconv.Itoa(port)}, Logger: quiet(),
			OnFailure: func(_ string, err error) { t.Errorf("failed: %v", err) },
		})
		must(t, err)
		key := "/" + strconv.Itoa(n)
		_, err = c.SetSync(ctx, key, []byte("1"))
		must(t, err)
		must(t, c.Close())
		if a, b := holds(servers[0], key), holds(servers[1], key); a == b {
			t.Errorf("%s is at A %v, at B %v", key, a, b)
		}
	}
}

// TestStatusOfNameWithSilentAddress: an address of a name at which connections are accepted
// and nobody answers does not keep the server at another one from answering.
func TestStatusOfNameWithSilentAddress(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	var server *Server
	for server == nil { // the same port at two addresses
		silent, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		t.Cleanup(func() { silent.Close() })
		port := silent.Addr().(*net.TCPAddr).Port
		s, err := NewServer(ServerOptions{Host: "127.0.0.2", Port: port, Logger: quiet()})
		if err != nil || s.Listen(ctx) != nil {
			continue
		}
		go s.Serve(context.Background())
		t.Cleanup(func() { s.Close() })
		server = s
	}
	name := testenv.NewName(t, func() []string { return []string{"127.0.0.1", "127.0.0.2"} })
	must(t, server.Set(ctx, "/k", []byte("v")))
	st, err := ServerStatus(ctx, "tcp://"+name+":"+strconv.Itoa(portOf(server.Endpoints().Snapshot)), sockets.Security{})
	must(t, err)
	if st.Keys != 1 || st.State != ServerActive {
		t.Errorf("status %+v", st)
	}
}

var runsOfOtherKeys atomic.Uint32

// TestServersWithOtherKeysBehindOneName: a server whose key is not the one that the client
// expects is not a permanent fault as long as the name has addresses that were not tried, and
// the client follows the server with that key.
func TestServersWithOtherKeysBehindOneName(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	// Addresses of no other test, nor an earlier run: the process remembers what has failed.
	network := "127.77." + strconv.Itoa(int(runsOfOtherKeys.Add(1)))
	hosts := []string{network + ".1", network + ".2"}
	keys := []zmtp.KeyPair{zmtp.GenerateKeyPair(), zmtp.GenerateKeyPair()}
	var servers []*Server
	for port := 0; len(servers) < len(hosts); { // the same ports at two addresses
		s, err := NewServer(ServerOptions{Host: hosts[len(servers)], Port: port, Logger: quiet(),
			Security: sockets.Security{CurveServer: true, CurveSecretKey: keys[len(servers)].Secret}})
		must(t, err)
		if err := s.Listen(ctx); err != nil {
			must(t, s.Close())
			must(t, servers[0].Close())
			servers, port = nil, 0
			continue
		}
		go s.Serve(context.Background())
		t.Cleanup(func() { s.Close() })
		servers = append(servers, s)
		port = portOf(s.Endpoints().Snapshot)
	}
	at := func(host string) string {
		name := testenv.NewName(t, func() []string { return []string{host} })
		if host == "" {
			name = testenv.NewName(t, func() []string { return hosts })
		}
		return "tcp://" + name + ":" + strconv.Itoa(portOf(servers[0].Endpoints().Snapshot))
	}
	for _, c := range []struct {
		name   string
		server string
		key    zmtp.PublicKey
		follow bool   // the client follows a server in the end
		want   []bool // whether each fault is permanent
	}{
		{"the key of the second", at(""), keys[1].Public, true, []bool{false}},
		{"one address", at(hosts[1]), keys[0].Public, false, []bool{false, true}},                // it may have ended the first for another reason
		{"the key of nobody", at(""), zmtp.GenerateKeyPair().Public, false, []bool{false, true}}, // the first address has failed before
	} {
		var client *Client
		made, faults := make(chan struct{}), make(chan bool, 100)
		client, err := NewClient(ClientOptions{
			Servers: []string{c.server}, Logger: quiet(), restless: true,
			Security: sockets.Security{CurveSecretKey: zmtp.GenerateKeyPair().Secret, CurveServerKey: c.key},
			OnFailure: func(string, error) {
				<-made
				var e *NotActiveError
				faults <- errors.As(client.WaitActive(wake.Ended), &e) && e.Servers[0].Permanent()
			},
		})
		must(t, err)
		close(made)
		if c.follow {
			must(t, client.WaitActive(ctx))
		}
		for i, want := range c.want {
			if got := <-faults; got != want {
				t.Errorf("%s: fault %d: permanent %v", c.name, i, got)
			}
		}
		must(t, client.Close())
	}
}
