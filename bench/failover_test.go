//go:build unix

package bench

import (
	"context"
	"flag"
	"fmt"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"clustermap/chp"
	"clustermap/internal/testenv"
)

var failoverLoad = flag.Float64("failover.load", 10_000, "updates a second of a second client during BenchmarkHandover")

// failoverSettings are those of the servers of a pair.
var failoverSettings = []struct {
	name  string
	flags []string
	again time.Duration // between two handovers, at least: four times --bstar-interval
}{
	{"default", nil, 4 * time.Second},
	{"50ms", []string{"--hugz", "50ms", "--bstar-interval", "50ms"}, 200 * time.Millisecond},
}

// acked is one SetSync that has returned.
type acked struct {
	at     time.Time
	server string        // that the client follows
	pause  time.Duration // since the one before
}

// setter calls SetSync again and again, and reports each call's return.
type setter struct {
	tb   testing.TB
	acks chan acked
	stop context.CancelFunc
	done sync.WaitGroup
	last int // the last value that came back; to be read when done
}

const setterKey = "/failover/n"

// rest is how long the pair and its client are left alone before each failover. A
// client that loses its server within a second of becoming ACTIVE waits before it tries
// again, longer each time: that is for a pair which never comes to rest, and is not
// measured here.
const rest = 1200 * time.Millisecond

// startSetter starts a setter that waits for a time between two updates.
func startSetter(tb testing.TB, c *cluster, wait time.Duration) *setter {
	ctx, cancel := context.WithCancel(context.Background())
	s := &setter{tb: tb, acks: make(chan acked), stop: cancel}
	client := c.client(chp.ClientOptions{})
	s.done.Go(func() {
		defer close(s.acks)
		last := time.Now()
		for i := 0; ; i++ {
			_, err := client.SetSync(ctx, setterKey, strconv.AppendInt(nil, int64(i), 10))
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				tb.Errorf("SetSync: %v", err)
				return
			}
			now := time.Now()
			s.last = i
			select {
			case s.acks <- acked{now, client.Server(), now.Sub(last)}:
			case <-ctx.Done():
				return
			}
			last = now
			time.Sleep(wait)
		}
	})
	return s
}

// through returns the first update that came back through a server, and the longest
// time between two updates until then. The updates are taken as they come, so that
// the setter never waits.
func (s *setter) through(server string) (first acked, pause time.Duration) {
	s.tb.Helper()
	timeout := time.After(limit)
	for {
		select {
		case a, ok := <-s.acks:
			if !ok {
				s.tb.Fatal("the client has given up")
			}
			pause = max(pause, a.pause)
			if a.server == server {
				return a, pause
			}
		case <-timeout:
			s.tb.Fatalf("no update through %s within %v", server, limit)
		}
	}
}

// end ends the setter, and fails unless both servers and a new client have the same in
// the end, and the key the value that came back last or, if another update was in flight,
// the one after it.
func (s *setter) end(c *cluster) {
	s.tb.Helper()
	s.stop()
	for range s.acks {
	}
	s.done.Wait()
	c.inSync()
	client := c.client(chp.ClientOptions{})
	// A server that has taken over counts from a later sequence. The other one has that of
	// the last update until there is another one.
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if _, err := client.SetSync(ctx, "/end", []byte("1")); err != nil {
		s.tb.Fatal(err)
	}
	testenv.Eventually(s.tb, fmt.Sprintf("all have the same, with the value %d", s.last), func() bool {
		all := c.status()
		text, _ := client.Get(setterKey)
		n, _ := strconv.Atoi(string(text))
		return all[0].Keys == all[1].Keys && all[0].Sequence == all[1].Sequence && client.Len() == all[0].Keys && (n == s.last || n == s.last+1)
	})
}

// BenchmarkFailover kills the active server of a pair and takes the time from the kill
// to the first SetSync that comes back, which the other server has acknowledged. The
// servers are processes, and the client follows both. In each iteration the server
// that was killed is started again, and the pair is in sync again. For a
// distribution:
//
//	go test -run '^$' -bench Failover -benchtime 50x ./bench
func BenchmarkFailover(b *testing.B) {
	command := buildCommand(b)
	for _, c := range failoverSettings {
		b.Run("settings="+c.name, func(b *testing.B) {
			pair := startPair(b, command, c.flags...)
			s := startSetter(b, pair, 0)
			var all times
			for b.Loop() {
				active := drain(s, pair.inSync)
				s.through(pair.servers[active].endpoint)
				drain(s, func() struct{} { time.Sleep(rest); return struct{}{} })
				begun := time.Now()
				pair.servers[active].kill()
				a, _ := s.through(pair.servers[1-active].endpoint)
				all = append(all, a.at.Sub(begun))
				pair.servers[active].start()
			}
			drain(s, pair.inSync)
			s.end(pair)
			b.ReportMetric(0, "ns/op")
			all.report(b, "")
		})
	}
}

// BenchmarkHandover has the active server of a pair hand over, with chp failover, while
// a second client sets keys, and takes the longest time that a client's SetSync calls,
// one after the other, had to wait meanwhile.
//
//	go test -run '^$' -bench Handover -benchtime 50x ./bench -failover.load 10000
func BenchmarkHandover(b *testing.B) {
	command := buildCommand(b)
	for _, c := range failoverSettings {
		b.Run("settings="+c.name, func(b *testing.B) {
			pair := startPair(b, command, c.flags...)
			s := startSetter(b, pair, 0)
			load := startLoad(b, pair, *failoverLoad)
			var pauses, took times
			for b.Loop() {
				active := drain(s, pair.inSync)
				s.through(pair.servers[active].endpoint)
				drain(s, func() struct{} { time.Sleep(max(rest, c.again)); return struct{}{} })
				begun := time.Now()
				done := make(chan error, 1)
				go func() {
					out, err := exec.Command(command, "failover", "--server", pair.servers[0].endpoint, "--server", pair.servers[1].endpoint).CombinedOutput()
					took = append(took, time.Since(begun))
					if err != nil {
						err = fmt.Errorf("%w: %s", err, out)
					}
					done <- err
				}()
				_, pause := s.through(pair.servers[1-active].endpoint)
				pauses = append(pauses, pause)
				if err := drain(s, func() error { return <-done }); err != nil {
					b.Fatal(err)
				}
			}
			drain(s, pair.inSync)
			b.ReportMetric(load(), "updates/s")
			s.end(pair)
			b.ReportMetric(0, "ns/op")
			pauses.report(b, "pause-")
			took.report(b, "command-")
		})
	}
}

// drain calls f while the setter goes on.
func drain[T any](s *setter, f func() T) T {
	end := make(chan struct{})
	var draining sync.WaitGroup
	draining.Go(func() {
		for {
			select {
			case <-s.acks:
			case <-end:
				return
			}
		}
	})
	defer draining.Wait()
	defer close(end)
	return f()
}

// startLoad has a client of its own set keys at a rate. The function returned ends
// that, makes sure of every update, and returns the rate.
func startLoad(tb testing.TB, c *cluster, rate float64) func() float64 {
	client := c.client(chp.ClientOptions{})
	ctx, cancel := context.WithCancel(context.Background())
	var setting sync.WaitGroup
	begun := time.Now()
	n := 0
	setting.Go(func() {
		value := make([]byte, 32)
		for ; rate > 0; time.Sleep(time.Millisecond) {
			for due := int(time.Since(begun).Seconds() * rate); n < due; n++ {
				if err := client.Set(ctx, fmt.Sprintf("/load/%d", n%10_000), value); err != nil {
					if ctx.Err() == nil {
						tb.Errorf("Set: %v", err)
					}
					return
				}
			}
			if ctx.Err() != nil {
				return
			}
		}
	})
	tb.Cleanup(cancel)
	return func() float64 {
		tb.Helper()
		cancel()
		setting.Wait()
		took := time.Since(begun)
		flush, end := context.WithTimeout(context.Background(), limit)
		defer end()
		if err := client.Flush(flush); err != nil {
			tb.Errorf("Flush: %v", err)
		}
		return float64(n) / took.Seconds()
	}
}
