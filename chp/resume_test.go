package chp

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"sync"
	"testing"
	"time"

	"clustermap/internal/loopback"
	"clustermap/internal/testenv"
)

// cable is the connections of a client, which a test can break and hold back.
type cable struct {
	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]bool
}

// dial is ClientOptions.Dial.
func (c *cable) dial(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		_ = conn.Close()
		return nil, io.ErrUnexpectedEOF
	}
	if c.conns == nil {
		c.conns = map[net.Conn]bool{}
	}
	c.conns[conn] = true
	return conn, nil
}

// pull breaks all connections, and lets none be made until plug.
func (c *cable) pull() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = true
	for conn := range c.conns {
		_ = conn.Close()
	}
	clear(c.conns)
}

// leave lets no connection be made until plug, and those that there are alone.
func (c *cable) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = true
}

func (c *cable) plug() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = false
}

// without runs f while a client has no server.
func without(t testing.TB, c *Client, by *cable, f func()) {
	t.Helper()
	by.pull()
	eventually(t, "the client has lost its server", func() bool { return c.State() != StateActive })
	f()
	by.plug()
	must(t, c.Sync(testContext(t)))
}

// wantSame checks that a client has the keys of a server that are below its subtrees.
func wantSame(t testing.TB, c *Client, s *Server) {
	t.Helper()
	want := map[string]string{}
	s.Range(func(key, value []byte) bool {
		if c.subtrees.Contains(key) {
			want[string(key)] = string(value)
		}
		return true
	})
	if got := have(c); !maps.Equal(got, want) {
		t.Errorf("the client has %d keys, the server %d, and they differ", len(got), len(want))
	}
}

// TestResume: a client that comes back gets what it has missed, deletions and expired keys among
// them, and no snapshot. Its watch has each change once, and no resync.
func TestResume(t *testing.T) {
	t.Parallel()
	for _, subtrees := range [][]string{nil, {"/a/"}, {"/a/", "/b/7", "/c/"}} {
		t.Run(fmt.Sprint(subtrees), func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			s := startServer(t, ServerOptions{})
			for i := range 2000 {
				must(t, s.Set(ctx, fmt.Sprintf("/%c/%d", 'a'+i%4, i), []byte("0")))
			}
			var by cable
			c := startClient(t, s, ClientOptions{Dial: by.dial, Subtrees: subtrees})
			w, err := c.Watch()
			must(t, err)
			defer w.Close()
			must(t, c.WaitActive(ctx))
			model := map[string]string{}
			var last int64
			follow := func() {
				for last < s.Sequence() && model["/a/end"] != fmt.Sprint(s.Sequence()-1) {
					e, err := w.Next(ctx)
					must(t, err)
					switch e.Op {
					case OpSynced:
						last = e.Sequence
						continue
					case OpDelete:
						delete(model, string(e.Key))
					case OpSet:
						model[string(e.Key)] = string(e.Value)
					}
					if last > 0 && (e.Sequence <= last || e.Cause == CauseResync) {
						t.Fatalf("%v of %s with sequence %d after %d", e.Cause, e.Key, e.Sequence, last)
					}
					if last > 0 {
						last = e.Sequence
					}
				}
			}
			end := func() {
				must(t, s.Set(ctx, "/a/end", fmt.Appendf(nil, "%d", s.Sequence())))
			}
			must(t, c.Sync(ctx))
			for round := range 4 {
				without(t, c, &by, func() {
					for i := range 200 {
						key := fmt.Sprintf("/%c/%d", 'a'+i%4, i)
						if (i+round)%3 == 0 {
							must(t, s.Delete(ctx, key))
						} else {
							must(t, s.Set(ctx, key, fmt.Appendf(nil, "%d %d", round, i)))
						}
					}
					must(t, s.Set(ctx, "/a/brief", []byte("x"), WithTTL(10*time.Millisecond)))
					eventually(t, "the key has expired", func() bool { _, ok := s.Get("/a/brief"); return !ok })
					end()
				})
				wantSame(t, c, s)
				follow()
				if got := have(c); !maps.Equal(got, model) {
					t.Fatalf("the events add up to %d keys, the client has %d", len(model), len(got))
				}
			}
			if st := c.Stats(); st.Syncs != 1 || st.Resumed != 4 {
				t.Errorf("%d snapshots, resumed %d times, want 1 and 4", st.Syncs, st.Resumed)
			}
			eventually(t, "the server counts them", func() bool { return s.Stats().Resumed == 4 })
		})
	}
}

// An idle client and an idle server: there is nothing to send.
func TestResumeWithoutUpdates(t *testing.T) {
	t.Parallel()
	s := startServer(t, ServerOptions{})
	var by cable
	c := startClient(t, s, ClientOptions{Dial: by.dial})
	must(t, c.Sync(testContext(t)))
	without(t, c, &by, func() {})
	without(t, c, &by, func() {})
	if st := c.Stats(); st.Syncs != 1 || st.Resumed != 2 {
		t.Errorf("%d snapshots, resumed %d times", st.Syncs, st.Resumed)
	}
}

// A client that was away for longer than the server remembers takes a snapshot; so does every
// client of a server that remembers nothing.
func TestResumeBeyondTheWindow(t *testing.T) {
	t.Parallel()
	for _, retain := range []int{-1, 64 << 10} {
		t.Run(fmt.Sprint(retain), func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			s := startServer(t, ServerOptions{RetainBytes: retain})
			var by cable
			c := startClient(t, s, ClientOptions{Dial: by.dial})
			must(t, c.Sync(ctx))
			value := make([]byte, 1000)
			without(t, c, &by, func() {
				for i := range 1000 {
					must(t, s.Set(ctx, fmt.Sprint("/", i%10), value))
				}
			})
			wantSame(t, c, s)
			if st := c.Stats(); st.Syncs != 2 || st.Resumed != 0 {
				t.Errorf("%d snapshots, resumed %d times", st.Syncs, st.Resumed)
			}
			if retain > 0 {
				without(t, c, &by, func() { must(t, s.Set(ctx, "/last", value)) })
				if st := c.Stats(); st.Syncs != 2 || st.Resumed != 1 {
					t.Errorf("%d snapshots, resumed %d times", st.Syncs, st.Resumed)
				}
			}
			if got := s.Stats().Retained; got > int64(max(retain, 0))+256<<10 {
				t.Errorf("the server retains %d bytes", got)
			}
		})
	}
}

// TestResumeWhileUpdatesGoOn: the client's connections break again and again while others set and
// delete. It never needs a second snapshot, and ends with what the server has.
func TestResumeWhileUpdatesGoOn(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{RetainBytes: 1 << 30})
	var by cable
	c := startClient(t, s, ClientOptions{Dial: by.dial, restless: true})
	parts := startClient(t, s, ClientOptions{Dial: by.dial, Subtrees: []string{"/1/", "/3/", "/7/7"}, restless: true})
	must(t, c.Sync(ctx))
	must(t, parts.Sync(ctx))
	over := make(chan struct{})
	var writing sync.WaitGroup
	writing.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-over:
				return
			default:
			}
			key := fmt.Sprintf("/%d/%d", i%10, i/7%100)
			if i%5 == 0 {
				must(t, s.Delete(ctx, key))
			} else {
				must(t, s.Set(ctx, key, fmt.Appendf(nil, "%d", i)))
			}
		}
	})
	for range 10 {
		by.pull()
		time.Sleep(5 * time.Millisecond)
		by.plug()
		must(t, c.Sync(ctx))
		must(t, parts.Sync(ctx))
	}
	close(over)
	writing.Wait()
	for _, c := range []*Client{c, parts} {
		must(t, c.Sync(ctx))
		wantSame(t, c, s)
		if st := c.Stats(); st.Syncs != 1 || st.Resumed < 5 {
			t.Errorf("%d snapshots, resumed %d times", st.Syncs, st.Resumed)
		}
	}
}

// TestResumeAfterRestart: a server with a log knows after a restart what came after a sequence.
func TestResumeAfterRestart(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	dir := t.TempDir()
	o := ServerOptions{Host: loopback.Own(), Port: 5556}
	o.Log = openLog(t, dir)
	s, stop := serveUntil(t, o)
	must(t, s.Set(ctx, "/before", []byte("1")))
	c := startClient(t, s, ClientOptions{restless: true})
	must(t, c.Sync(ctx))
	for i := range 5 {
		for n := range 10 {
			must(t, s.Set(ctx, fmt.Sprint("/", n), fmt.Appendf(nil, "%d", i)))
		}
		if i == 1 {
			must(t, s.sequencer.Checkpoint(ctx))
			must(t, s.Delete(ctx, "/1"))
		}
		must(t, c.Sync(ctx))
		stop()
		o.Log = openLog(t, dir)
		s, stop = serveUntil(t, o)
		must(t, c.Sync(ctx))
		wantSame(t, c, s)
	}
	if st := c.Stats(); st.Syncs != 1 || st.Resumed != 5 {
		t.Errorf("%d snapshots, resumed %d times", st.Syncs, st.Resumed)
	}
}

// TestResumeAfterCheckpoint: a server whose log ends with a checkpoint knows after a restart, and
// after the next one, that nothing has come since.
func TestResumeAfterCheckpoint(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	dir := t.TempDir()
	o := ServerOptions{Host: loopback.Own(), Port: 5556}
	o.Log = openLog(t, dir)
	s, stop := serveUntil(t, o)
	must(t, s.Set(ctx, "/kept", []byte("1")))
	must(t, s.Set(ctx, "/deleted", []byte("1")))
	must(t, s.Delete(ctx, "/deleted")) // so that no record has the last sequence
	c := startClient(t, s, ClientOptions{restless: true})
	must(t, c.Sync(ctx))
	since := s.Sequence()
	must(t, s.sequencer.Checkpoint(ctx))
	for range 3 {
		stop()
		o.Log = openLog(t, dir)
		s, stop = serveUntil(t, o)
		must(t, c.Sync(ctx))
		w, err := s.WatchWith(WatchOptions{Since: since})
		must(t, err)
		must(t, w.Close())
	}
	must(t, s.Set(ctx, "/kept", []byte("2")))
	must(t, c.Sync(ctx))
	wantSame(t, c, s)
	w, err := s.WatchWith(WatchOptions{Since: since})
	must(t, err)
	defer w.Close()
	if got := fmt.Sprint(eventsUntil(t, w, OpSynced)); got != "[set /kept=2 synced =]" {
		t.Error(got)
	}
	if st := c.Stats(); st.Syncs != 1 || st.Resumed != 3 {
		t.Errorf("%d snapshots, resumed %d times", st.Syncs, st.Resumed)
	}
}

// TestResumeAfterFirstUpdate: a server whose log has no checkpoint, and one batch only, knows after a
// restart what came first.
func TestResumeAfterFirstUpdate(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	dir := t.TempDir()
	o := ServerOptions{Host: loopback.Own(), Port: 5556}
	o.Log = openLog(t, dir)
	s, stop := serveUntil(t, o)
	must(t, s.Set(ctx, "/first", []byte("1")))
	c := startClient(t, s, ClientOptions{restless: true})
	must(t, c.Sync(ctx))
	stop()
	o.Log = openLog(t, dir)
	s, _ = serveUntil(t, o)
	must(t, c.Sync(ctx))
	wantSame(t, c, s)
	if st := c.Stats(); st.Syncs != 1 || st.Resumed != 1 {
		t.Errorf("%d snapshots, resumed %d times", st.Syncs, st.Resumed)
	}
}

// TestResumeAfterFailover: the other server of a pair knows what its clients have missed, and they
// keep nothing that its map does not have.
func TestResumeAfterFailover(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	po, bo := pairOptions(t)
	primary, backup := startPairServer(t, po), startPairServer(t, bo)
	c := pairClient(t, po, bo)
	eventually(t, "the backup has the map", func() bool { return backup.Status().State == ServerPassive && primary.Status().InSync })
	for i := range 100 {
		_, err := c.SetSync(ctx, fmt.Sprint("/", i), []byte("1"))
		must(t, err)
	}
	primary.crash()
	_, err := c.SetSync(ctx, "/after", []byte("2"))
	must(t, err)
	wantSame(t, c, backup.Server)
	if st := c.Stats(); st.Syncs != 1 || st.Resumed != 1 {
		t.Errorf("%d snapshots, resumed %d times", st.Syncs, st.Resumed)
	}
	_ = testenv.Hang
}
