package chp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"clustermap/chp/commit"
	"clustermap/chp/internal/order"
	"clustermap/internal/loopback"
)

// pairTimeout is the time-out of pairs in tests. A busy machine keeps a goroutine waiting
// for half a second, and then no server may be taken for dead.
const pairTimeout = 2 * time.Second

// pairOptions returns the options of both servers of a pair on one address, quick to
// notice that the other one is gone.
func pairOptions(t testing.TB) (primary, backup ServerOptions) {
	t.Helper()
	host := loopback.Own()
	at := func(port int) string { return "tcp://" + net.JoinHostPort(host, strconv.Itoa(port)) }
	primary = ServerOptions{
		Host: host, Port: 5556, Logger: quiet(), HeartbeatInterval: 50 * time.Millisecond,
		Pair: &PairOptions{Peer: at(5566), State: at(5003), PeerState: at(5004), Interval: 50 * time.Millisecond, Timeout: pairTimeout},
	}
	backup = ServerOptions{
		Host: host, Port: 5566, Logger: quiet(), HeartbeatInterval: 50 * time.Millisecond,
		Pair: &PairOptions{Backup: true, Peer: at(5556), State: at(5004), PeerState: at(5003), Interval: 50 * time.Millisecond, Timeout: pairTimeout},
	}
	return primary, backup
}

// pairServer is a server of a pair.
type pairServer struct {
	*Server
	stop func() // ends it

	// crash ends it without a handover, as far as the other server and clients see.
	crash func()
}

func startPairServer(t testing.TB, o ServerOptions) pairServer {
	t.Helper()
	s, err := NewServer(o)
	must(t, err)
	return servePair(t, s)
}

// startAlone starts a server of a pair for which the time is over in which the other one
// might have announced itself.
func startAlone(t testing.TB, o ServerOptions) pairServer {
	t.Helper()
	s, err := NewServer(o)
	must(t, err)
	s.pair.Began = time.Time{}
	return servePair(t, s)
}

func servePair(t testing.TB, s *Server) pairServer {
	t.Helper()
	gated(s)
	served := make(chan error, 1)
	go func() { served <- s.Serve(context.Background()) }()
	select {
	case <-s.Ready():
	case err := <-served:
		t.Fatal(err)
	}
	stopped := false
	p := pairServer{Server: s, stop: func() {
		if !stopped {
			stopped = true
			must(t, s.Close())
			must(t, <-served)
		}
	}}
	p.crash = func() {
		must(t, s.pair.Node().Close())
		p.stop()
	}
	t.Cleanup(p.stop)
	return p
}

// inSync says whether updates wait for the other server.
func (p pairServer) inSync() (yes bool) {
	p.sequencer.Between(func(now *order.Moment) {
		yes = p.pair.Journal().Waits() && now.Held == 0 && p.pair.Journal().Follower().Have == now.Newest.Last
	})
	return yes
}

func (p pairServer) active() bool { return p.pair.Active() }

// pairClient is a client of both servers.
func pairClient(t testing.TB, primary, backup ServerOptions) *Client {
	t.Helper()
	c, err := NewClient(ClientOptions{Servers: []string{backup.Pair.Peer, primary.Pair.Peer}, HeartbeatTimeout: hang, SyncTimeout: hang, Logger: quiet()})
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	return c
}

// TestPairFailover: acknowledged updates are there when the backup takes over, and when
// the primary does after that.
func TestPairFailover(t *testing.T) {
	t.Parallel()
	for _, disk := range []bool{false, true} {
		t.Run(fmt.Sprintf("disk=%v", disk), func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			po, bo := pairOptions(t)
			dirs := [2]string{t.TempDir(), t.TempDir()}
			start := func(i int) pairServer {
				o := []ServerOptions{po, bo}[i]
				if disk {
					o.Log, o.Sync = openLog(t, dirs[i]), commit.Interval(time.Millisecond)
				}
				return startPairServer(t, o)
			}
			servers := [2]pairServer{start(0), start(1)}
			c := pairClient(t, po, bo)
			want := map[string]string{}
			set := func(round int) {
				t.Helper()
				for i := range 100 {
					key, value := fmt.Sprintf("/%d/%d", i%30, round), fmt.Sprintf("%d", i)
					if _, err := c.SetSync(ctx, key, []byte(value)); err != nil {
						t.Fatalf("round %d, %d: %v", round, i, err)
					}
					want[key] = value
				}
			}
			active := 0
			for round := range 4 {
				eventually(t, "a server is active", func() bool { return servers[active].active() })
				set(round)
				eventually(t, "the other server follows", servers[active].inSync)
				set(round)
				servers[active].crash()
				other := 1 - active
				set(round + 100)
				if !servers[other].active() {
					t.Fatal("the other server is not active")
				}
				for key, value := range want {
					if got, _ := servers[other].Get(key); string(got) != value {
						t.Fatalf("round %d: %s is %q, want %q", round, key, got, value)
					}
				}
				servers[active] = start(active)
				active = other
			}
		})
	}
}

// TestPairKeepsDeadlines: times to live go on at the server that takes over.
func TestPairKeepsDeadlines(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	po, bo := pairOptions(t)
	bo.ExpiryGrace = -1
	primary, backup := startPairServer(t, po), startPairServer(t, bo)
	c := pairClient(t, po, bo)
	const ttl = time.Second
	_, err := c.SetSync(ctx, "/before", []byte("1"), WithTTL(ttl)) // comes with the map, or as an update
	must(t, err)
	eventually(t, "the backup follows", primary.inSync)
	_, err = c.SetSync(ctx, "/short", []byte("1"), WithTTL(ttl))
	must(t, err)
	_, err = c.SetSync(ctx, "/long", []byte("1"), WithTTL(time.Hour))
	must(t, err)
	set := time.Now()
	primary.crash()
	eventually(t, "the backup is active", backup.active)
	must(t, c.WaitActive(ctx))
	eventually(t, "keys expire at the backup", func() bool { return backup.Len() == 1 && c.Len() == 1 })
	if d := time.Since(set); d < ttl/2 {
		t.Errorf("the key was gone after %v", d)
	}
	if left, ok := timeLeft(c, "/long"); !ok || left > time.Hour || left < time.Hour-time.Minute {
		t.Errorf("%v are left of an hour", left)
	}
}

// TestPairHandover: a planned handover loses nothing, and back again.
func TestPairHandover(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	po, bo := pairOptions(t)
	servers := [2]pairServer{startPairServer(t, po), startPairServer(t, bo)}
	c := pairClient(t, po, bo)
	stop := make(chan struct{})
	wrote := make(chan int, 1)
	go func() {
		n := 0
		for ; ; n++ {
			select {
			case <-stop:
				wrote <- n
				return
			default:
			}
			if _, err := c.SetSync(ctx, "/n", []byte(strconv.Itoa(n))); err != nil {
				t.Errorf("update %d: %v", n, err)
				wrote <- n
				return
			}
		}
	}()
	for i := range 4 {
		eventually(t, "one is active, the other follows", func() bool { return servers[i%2].active() && servers[i%2].inSync2() })
		must(t, servers[i%2].pair.Handover(ctx, ""))
		eventually(t, "the other one is active", servers[1-i%2].active)
	}
	close(stop)
	n := <-wrote
	if got, _ := servers[0].Get("/n"); string(got) != strconv.Itoa(n-1) {
		t.Errorf("%q is the last of %d", got, n)
	}
	if err := servers[1].pair.Handover(ctx, ""); !errors.Is(err, order.ErrNotActive) && err == nil {
		t.Errorf("the passive one hands over: %v", err)
	}
}

// inSync2 says whether updates wait for the other server, also while some do.
func (p pairServer) inSync2() (yes bool) {
	p.sequencer.Between(func(*order.Moment) { yes = p.pair.Journal().Waits() })
	return yes
}

// TestPairEndHandsOver: a server that is ended on purpose hands over; the other one does
// not wait for the time-out.
func TestPairEndHandsOver(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	po, bo := pairOptions(t)
	po.Pair.Timeout, bo.Pair.Timeout = time.Hour, time.Hour
	primary, backup := startPairServer(t, po), startPairServer(t, bo)
	c := pairClient(t, po, bo)
	_, err := c.SetSync(ctx, "/a", []byte("1"))
	must(t, err)
	eventually(t, "the backup follows", primary.inSync)
	primary.stop()
	eventually(t, "the backup is active", backup.active)
	_, err = c.SetSync(ctx, "/a", []byte("2"))
	must(t, err)
}

// TestPairWithoutCopyDoesNotServe: a passive server that has no copy of the active
// one's map yet does not take over, even if a client asks.
func TestPairWithoutCopyDoesNotServe(t *testing.T) {
	t.Parallel()
	po, bo := pairOptions(t)
	var refused atomic.Int64 // how often the backup has refused the client
	c, err := NewClient(ClientOptions{
		Servers: []string{bo.Pair.Peer, po.Pair.Peer}, HeartbeatTimeout: hang, SyncTimeout: hang, Logger: quiet(),
		OnFailure: func(server string, err error) {
			if server == po.Pair.Peer && errors.Is(err, ErrStandby) {
				refused.Add(1)
			}
		},
	})
	must(t, err)
	defer c.Close()
	bo.Pair.Peer = bo.Pair.PeerState // where no server sends anything
	primary, backup := startPairServer(t, po), startPairServer(t, bo)
	eventually(t, "the backup is passive", func() bool { return backup.Status().State == ServerPassive })
	primary.crash()
	eventually(t, "the backup misses the primary", func() bool { return !backup.pair.Node().Peer().Alive })
	before := refused.Load()
	eventually(t, "it has refused the client twice since then", func() bool { return refused.Load() >= before+2 })
	if backup.active() || c.State() == StateActive {
		t.Fatal("the backup serves a map that is not the one before")
	}
}

// TestPairReportsAnotherMap: a server with a map of its own that finds another map at the
// active server reports all of its own before it gives it up.
func TestPairReportsAnotherMap(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	po, bo := pairOptions(t)
	dir := t.TempDir()
	alone, stop := serveUntil(t, ServerOptions{Log: openLog(t, dir)})
	c := startClient(t, alone, ClientOptions{})
	for i := range 10 {
		_, err := c.SetSync(ctx, fmt.Sprintf("/%d", i), []byte("v"))
		must(t, err)
	}
	must(t, c.Close())
	stop()

	startAlone(t, po)
	other := pairClient(t, po, bo)
	_, err := other.SetSync(ctx, "/other", []byte("v"))
	must(t, err)
	reported := make(chan int, 10)
	bo.Log = openLog(t, dir)
	bo.Pair.OnDiverged = func(d Divergence) {
		n := 0
		for e := range d.Entries {
			if string(e.Value) == "v" {
				n++
			}
		}
		reported <- n
	}
	backup := startPairServer(t, bo)
	eventually(t, "the backup has the primary's map", func() bool { return backup.Len() == 1 })
	select {
	case n := <-reported:
		if n != 10 {
			t.Errorf("%d keys were reported, want 10", n)
		}
	default:
		t.Error("nothing was reported")
	}
}
