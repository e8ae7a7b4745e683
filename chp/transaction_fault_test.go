package chp

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"clustermap/chp/commit"
	"clustermap/internal/testenv"
)

// After any number of broken connections each transaction was made once, in the order in which a
// client started them, and its outcome is known.
func TestTransactionsExactlyOnce(t *testing.T) {
	t.Parallel()
	cuts := 400
	if testing.Short() || raceDetector {
		cuts = 120
	}
	ctx := testContext(t)
	server := startServer(t, ServerOptions{HeartbeatInterval: 20 * time.Millisecond})
	const clients, ahead = 4, 50
	var added atomic.Int64
	var running sync.WaitGroup
	for i := range clients {
		c, proxies := throughProxies(t, server, ClientOptions{})
		var over atomic.Bool
		running.Go(func() {
			faults(t, c, proxies, cuts/clients, rand.New(rand.NewPCG(uint64(i), 1)))
			over.Store(true)
		})
		running.Go(func() {
			for !over.Load() {
				if _, err := c.Add(ctx, "sum", 1); err != nil {
					t.Errorf("Add: %v", err)
					return
				}
				added.Add(1)
			}
		})
		running.Go(func() {
			key := fmt.Sprint("chain", i)
			var b Batch
			var outcomes []*Outcome
			last := int64(0)
			wait := func(left int) bool {
				for len(outcomes) > left {
					first, err := outcomes[0].Wait(ctx)
					if err != nil || first <= last {
						t.Errorf("a transaction: %v, sequence %d after %d", err, first, last)
						return false
					}
					last, outcomes = first, outcomes[1:]
				}
				return true
			}
			for n := 0; !over.Load() && wait(ahead-1); n++ {
				b.Reset()
				b.Set(key, strconv.AppendInt(nil, int64(n+1), 10))
				b.Set(key+"/copy", strconv.AppendInt(nil, int64(n+1), 10))
				condition := IfAbsent()
				if n > 0 {
					condition = IfValue(strconv.AppendInt(nil, int64(n), 10))
				}
				o, err := c.StartIf(ctx, &b, condition.On(key))
				if err != nil {
					t.Errorf("StartIf: %v", err)
					return
				}
				outcomes = append(outcomes, o)
			}
			wait(0)
		})
	}
	running.Wait()
	if v, _ := server.Get("sum"); string(v) != fmt.Sprint(added.Load()) {
		t.Errorf("%d were added, and the sum is %s", added.Load(), v)
	}
	if added.Load() == 0 {
		t.Error("nothing was added")
	}
}

// TestIncrementsAcrossFailovers: a thousand concurrent increments through a pair whose active
// server is killed three times end at a thousand.
func TestIncrementsAcrossFailovers(t *testing.T) {
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
			const clients, increments, failovers = 5, 1000, 3
			var done atomic.Int64
			turn := make(chan struct{}, increments) // so that the failovers come amid the increments
			var adding sync.WaitGroup
			for range clients {
				c := pairClient(t, po, bo)
				adding.Go(func() {
					for range increments / clients {
						<-turn
						if _, err := c.Add(ctx, "n", 1); err != nil {
							t.Error(err)
						}
						done.Add(1)
					}
				})
			}
			allow := func(n int) {
				for range n {
					turn <- struct{}{}
				}
			}
			// A server that starts again may have updates that the other one lacks, which then steps down.
			active := -1
			settled := func() bool {
				active = slices.IndexFunc(servers[:], pairServer.active)
				return active >= 0 && servers[active].inSync()
			}
			allowed := 0
			for range failovers {
				allow(increments / (failovers + 1))
				allowed += increments / (failovers + 1)
				testenv.Eventually(t, "some are made", func() bool { return done.Load() > int64(allowed-increments/(failovers+1)/2) })
				eventually(t, "one server follows the other", settled)
				crashed := active
				servers[crashed].crash()
				eventually(t, "the other server is active", servers[1-crashed].active)
				servers[crashed] = start(crashed)
			}
			allow(increments - allowed)
			adding.Wait()
			eventually(t, "one server follows the other", settled)
			if v, _ := servers[active].Get("n"); string(v) != fmt.Sprint(increments) {
				t.Errorf("the sum is %s", v)
			}
		})
	}
}

// After a conflict with a key that does not exist the replica shows that it does not, although
// its updates come late.
func TestReplicaShowsThatAKeyIsAbsentAfterAConflict(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	server := startServer(t, ServerOptions{HeartbeatInterval: hang})
	c, proxies := throughProxies(t, server, ClientOptions{HeartbeatTimeout: hang, Subtrees: []string{"/a/"}})
	for _, later := range []string{"", "/b/k", "/a/other"} { // what changes after it
		seq, err := c.SetIf(ctx, "/a/k", []byte("1"), IfAbsent())
		must(t, err)
		var updates *link
		proxies[1].each(func(l *link) { l.hold(); updates = l })
		_, err = server.DeleteIf(ctx, "/a/k")
		must(t, err)
		if later != "" {
			_, err = server.SetIf(ctx, later, []byte("x"))
			must(t, err)
		}
		done := make(chan error, 1)
		judged := server.sequencer.Counted.Conflicts.Load()
		go func() {
			_, err := c.SetIf(ctx, "/a/k", []byte("2"), IfSequence(seq))
			if c.has([]byte("/a/k")) {
				t.Errorf("SetIf returned %v, and the replica has the key", err)
			}
			done <- err
		}()
		eventually(t, "the server has judged it", func() bool { return server.sequencer.Counted.Conflicts.Load() > judged })
		_, err = c.ApplyIf(ctx, new(Batch), IfAbsent().On("/b/none")) // its answer comes behind the other
		must(t, err)
		updates.release()
		var conflict *ConflictError
		if err := <-done; !errors.As(err, &conflict) || conflict.Sequence != 0 || conflict.Key != "/a/k" {
			t.Errorf("%v, want a conflict with no key", err)
		}
	}
}
