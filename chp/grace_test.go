package chp

import (
	"fmt"
	"testing"
	"time"

	"clustermap/chp/commit"
	"clustermap/chp/internal/order"
	"clustermap/internal/kvmsg"
	"clustermap/internal/loopback"
	"clustermap/internal/timer"
)

// olderLog is a log whose entries were made the given time earlier, as if the server had
// been down for so long.
type olderLog struct {
	commit.Log
	age time.Duration
}

func (l olderLog) Replay(fn func(commit.Entry) error) (commit.Replayed, error) {
	return l.Log.Replay(func(e commit.Entry) error {
		e.Time -= int64(l.age)
		return fn(e)
	})
}

// runOut ends all times to live of a passive server, which expires nothing.
func (p pairServer) runOut() {
	p.sequencer.Between(func(now *order.Moment) {
		c := now.State.Cut()
		defer c.Release()
		c.Records(func(r kvmsg.Record) bool {
			if c.Deadlines.Remaining(r) > 0 {
				c.Deadlines.Set(kvmsg.HashKey(r.Key()), r.Seq(), timer.Now()-time.Second)
			}
			return true
		})
	})
}

// succession is a server, and how the one comes that is active after it, at which the times
// to live of all keys are over.
type succession struct {
	servers   []string
	first     *Server
	successor func() *Server
}

// successions returns each kind of them. The grace is that of the successor.
func successions(t *testing.T, grace time.Duration) map[string]func(t *testing.T) succession {
	return map[string]func(t *testing.T) succession{
		"restart": func(t *testing.T) succession {
			dir := t.TempDir()
			o := ServerOptions{Host: loopback.Own(), Port: DefaultPort, Log: openLog(t, dir), ExpiryGrace: grace}
			s, stop := serveUntil(t, o)
			return succession{[]string{s.Endpoints().Snapshot}, s, func() *Server {
				stop()
				o.Log = olderLog{openLog(t, dir), 2 * time.Hour}
				s, _ := serveUntil(t, o)
				return s
			}}
		},
		"takeover": func(t *testing.T) succession {
			po, bo := pairOptions(t)
			bo.ExpiryGrace = grace
			primary, backup := startPairServer(t, po), startPairServer(t, bo)
			eventually(t, "the primary is active", primary.active)
			return succession{[]string{bo.Pair.Peer, po.Pair.Peer}, primary.Server, func() *Server {
				eventually(t, "the backup follows", primary.inSync2)
				backup.runOut()
				primary.crash()
				eventually(t, "the backup is active", backup.active)
				return backup.Server
			}}
		},
	}
}

func (s succession) client(t *testing.T) *Client {
	t.Helper()
	c, err := NewClient(ClientOptions{Servers: s.servers, HeartbeatTimeout: hang, SyncTimeout: hang, Logger: quiet()})
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	return c
}

// Registrations outlive their server: no key expires, however long there was none, and none is
// set again, as the next server has it.
func TestGraceKeepsLeases(t *testing.T) {
	t.Parallel()
	const clients, each = 10, 10
	for what, begin := range successions(t, time.Hour) {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			s := begin(t)
			watcher := s.client(t)
			w := openWatch(t, watcher)
			var owners []*Client
			for i := range clients {
				c := s.client(t)
				owners = append(owners, c)
				for j := range each {
					_, err := c.KeepAlive(ctx, fmt.Sprintf("/services/%d/%d", i, j), []byte("here"), time.Hour)
					must(t, err)
				}
			}
			before := s.first.Sequence()
			next := s.successor()
			for _, c := range owners {
				renewed(t, c)
			}
			seq, err := watcher.SetSync(ctx, "/last", []byte("1"))
			must(t, err)
			if next.Len() != 2*clients*each+1 {
				t.Errorf("%d keys", next.Len())
			}
			for {
				e, err := w.Next(ctx)
				must(t, err)
				if e.Op == OpDelete {
					t.Errorf("%s is gone: %v", e.Key, e.Cause)
				}
				if e.Op == OpSet && e.Sequence >= seq {
					break
				}
				if e.Op == OpSet && e.Sequence > before {
					t.Errorf("%s is set again", e.Key)
				}
			}
			if n := next.Stats().Expired; n > 0 {
				t.Errorf("%d keys have expired", n)
			}
		})
	}
}

// The key of an owner that does not come back expires after the grace, once, for everybody.
func TestGraceEnds(t *testing.T) {
	t.Parallel()
	const grace = 300 * time.Millisecond
	for what, begin := range successions(t, grace) {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			s := begin(t)
			c := s.client(t)
			w := openWatch(t, c)
			owner := s.client(t)
			_, err := owner.SetSync(ctx, "/services/a", []byte("here"), WithTTL(time.Hour))
			must(t, err)
			must(t, owner.Close())
			begun := time.Now()
			next := s.successor()
			eventually(t, "the key expires", func() bool { return next.Stats().Expired > 0 && next.Len() == 0 })
			if d := time.Since(begun); d < grace {
				t.Errorf("the key has expired %v after the end of its server", d)
			}
			seq, err := c.SetSync(ctx, "/last", []byte("1"))
			must(t, err)
			deletions := 0
			for {
				e, err := w.Next(ctx)
				must(t, err)
				if e.Op == OpDelete {
					deletions++
					// A client that is back only after that finds the key gone.
					if e.Cause != CauseExpired && e.Cause != CauseResync {
						t.Errorf("%s is gone: %v", e.Key, e.Cause)
					}
				}
				if e.Op == OpSet && e.Sequence >= seq {
					break
				}
			}
			if n := next.Stats().Expired; deletions != 1 || n != 1 {
				t.Errorf("%d deletions, and %d expired keys; want one", deletions, n)
			}
		})
	}
}

// Until it ends, the grace is the time to live that the server, its clients and the next
// checkpoint have for a key whose time is over. A key that is set after it has begun
// expires as always.
func TestGraceIsTheTimeToLive(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	dir := t.TempDir()
	s, stop := serveUntil(t, ServerOptions{Log: openLog(t, dir)})
	must(t, s.Set(ctx, "/brief", []byte("1"), WithTTL(time.Minute)))
	must(t, s.Set(ctx, "/long", []byte("1"), WithTTL(24*time.Hour)))
	stop()

	s, stop = serveUntil(t, ServerOptions{Log: olderLog{openLog(t, dir), 2 * time.Hour}, ExpiryGrace: time.Hour})
	c := startClient(t, s, ClientOptions{})
	must(t, c.WaitActive(ctx))
	check := func(what string, lookup func(string) (Entry, Presence)) {
		t.Helper()
		if e, _ := lookup("/brief"); e.TTL < time.Minute || e.TTL > time.Hour {
			t.Errorf("%s: the key whose time is over has %v", what, e.TTL)
		}
		if e, _ := lookup("/long"); e.TTL < 21*time.Hour || e.TTL > 22*time.Hour {
			t.Errorf("%s: the other one has %v", what, e.TTL)
		}
	}
	check("server", s.Lookup)
	check("client", c.Lookup)
	must(t, s.Set(ctx, "/new", []byte("1"), WithTTL(50*time.Millisecond)))
	eventually(t, "a new key expires", func() bool { return s.Stats().Expired == 1 })
	check("server, after an expiry", s.Lookup)
	must(t, s.sequencer.Checkpoint(ctx))
	stop()

	s, _ = serveUntil(t, ServerOptions{Log: openLog(t, dir), ExpiryGrace: -1})
	check("the next server", s.Lookup)
}

// The wall clock may have been set back since a log was written: after a restart no key
// has more than its time to live, which clients would otherwise take for none.
func TestReplayClockSetBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, stop := serveUntil(t, ServerOptions{Log: openLog(t, dir)})
	must(t, s.Set(testContext(t), "/k", []byte("1"), WithTTL(time.Hour)))
	stop()
	s, _ = serveUntil(t, ServerOptions{Log: olderLog{openLog(t, dir), -50 * 365 * 24 * time.Hour}})
	if e, p := s.Lookup("/k"); p != PresenceFound || e.TTL <= 0 || e.TTL > time.Hour {
		t.Errorf("%v, TTL %v", p, e.TTL)
	}
}
