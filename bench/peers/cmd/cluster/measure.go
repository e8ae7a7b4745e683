package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"clustermap/bench/peers/internal/systems"
	"clustermap/internal/bench/pipeline"
	"clustermap/internal/bench/workload"
	"clustermap/internal/wake"
)

const valueSize = systems.ValueSize

// figure is the result of one measurement.
type figure struct {
	value  float64 // in the mode's unit
	p99    float64 // of mode put, in its unit
	failed int     // calls
}

// measure starts a cluster and measures it once.
func (c *config) measure(ctx context.Context, s *system, mode string) (f figure, err error) {
	dir, err := os.MkdirTemp(c.dir, "cluster-")
	if err != nil {
		return f, err
	}
	defer os.RemoveAll(dir) // its processes have ended by then
	args, err := s.servers(dir, c.election)
	if err != nil {
		return f, err
	}
	r := &pipeline.Run{
		Pipeline: s.Name, Label: s.name, Spec: s.Spec(c.keys, c.updates), ServerArgs: args, Publishers: 1, Replicas: 1, Patience: c.patience,
		Order: func(ctx context.Context, servers []string) ([]string, error) {
			return s.order(ctx, servers, c.patience)
		},
	}
	if s.check != nil {
		r.Check = func(ctx context.Context, servers []string) error { return s.check(ctx, servers, c.patience) }
	}
	if mode == modeRate {
		o, err := r.Do(ctx)
		if err != nil {
			return f, err
		}
		all, err := systems.FigureOf(r, o)
		return figure{value: all.Rate}, err
	}
	err = r.Serve(ctx, func(servers *pipeline.Servers) error {
		ctx, cancel := context.WithTimeout(ctx, 2*c.time+c.patience)
		defer cancel()
		switch mode {
		case modePut:
			f, err = c.puts(ctx, s, servers.Endpoints[:1], 1)
		case modePuts:
			f, err = c.puts(ctx, s, servers.Endpoints[:1], c.callers)
		case modeReads:
			f, err = c.reads(ctx, s, servers.Endpoints)
		case modeFailover:
			f, err = failover(ctx, s, servers)
		}
		return err
	})
	return f, err
}

// connections is how many clients share the callers of mode puts.
const connections = 4

// dialAll connects a client to each list of servers. end closes those that are connected.
func dialAll(ctx context.Context, s *system, lists ...[]string) (clients []caller, end func(), err error) {
	end = func() {
		for _, c := range clients {
			c.close()
		}
	}
	for _, servers := range lists {
		c, err := s.dial(ctx, servers)
		if err != nil {
			end()
			return nil, nil, err
		}
		clients = append(clients, c)
	}
	return clients, end, nil
}

var value = bytes.Repeat([]byte{'v'}, valueSize)

func keyOf(i int) string { return fmt.Sprint(systems.Prefix, i) }

// puts measures callers that put, each a key of its own.
func (c *config) puts(ctx context.Context, s *system, leader []string, callers int) (f figure, err error) {
	lists := make([][]string, min(callers, connections))
	for i := range lists {
		lists[i] = leader
	}
	clients, end, err := dialAll(ctx, s, lists...)
	if err != nil {
		return f, err
	}
	defer end()
	l, err := c.load(ctx, callers, func(ctx context.Context, i int) error {
		return clients[i%len(clients)].put(ctx, keyOf(i), value)
	})
	f.value, f.failed = float64(l.calls)/l.took.Seconds(), l.failed
	if callers == 1 {
		us := func(share float64) float64 { return l.latency.Percentile(share) / float64(time.Microsecond) }
		f.value, f.p99 = us(0.5), us(0.99)
	}
	return f, err
}

// reads measures callers that read at all nodes.
func (c *config) reads(ctx context.Context, s *system, servers []string) (f figure, err error) {
	var lists [][]string
	for i := range servers {
		lists = append(lists, servers[i:i+1])
	}
	clients, end, err := dialAll(ctx, s, lists...)
	if err != nil {
		return f, err
	}
	defer end()
	for i := range c.callers {
		if err := clients[0].put(ctx, keyOf(i), value); err != nil {
			return f, err
		}
	}
	l, err := c.load(ctx, c.callers*len(clients), func(ctx context.Context, i int) error {
		return clients[i%len(clients)].get(ctx, keyOf(i/len(clients)))
	})
	return figure{value: float64(l.calls) / l.took.Seconds(), failed: l.failed}, err
}

// load is what callers did.
type load struct {
	calls, failed int
	took          time.Duration
	latency       workload.Histogram
}

// load has callers call for the time of the flag, each one call after the other, after they have warmed up.
// A call that fails is counted by itself: a system may elect another leader meanwhile.
func (c *config) load(ctx context.Context, callers int, call func(ctx context.Context, caller int) error) (*load, error) {
	if _, err := loadFor(ctx, c.time/5, callers, call); err != nil {
		return &load{took: 1}, err
	}
	return loadFor(ctx, c.time, callers, call)
}

func loadFor(ctx context.Context, d time.Duration, callers int, call func(ctx context.Context, caller int) error) (*load, error) {
	var mu sync.Mutex
	all := &load{}
	var last error
	var running sync.WaitGroup
	begin := time.Now()
	for i := range callers {
		running.Go(func() {
			var mine load
			var why error
			for mine.calls+mine.failed == 0 || time.Since(begin) < d {
				start := time.Now()
				if err := call(ctx, i); err == nil {
					mine.latency.Add(int64(time.Since(start)), 1)
					mine.calls++
				} else if mine.failed, why = mine.failed+1, err; ctx.Err() != nil {
					break
				}
			}
			mu.Lock()
			defer mu.Unlock()
			all.calls += mine.calls
			all.failed += mine.failed
			all.latency.Merge(mine.latency.Sparse())
			if why != nil {
				last = why
			}
		})
	}
	running.Wait()
	all.took = time.Since(begin)
	if all.failed > all.calls || ctx.Err() != nil {
		return all, fmt.Errorf("%d of %d calls failed: %w", all.failed, all.calls+all.failed, last)
	}
	return all, nil
}

const (
	before = 100                  // puts of the caller before the kill
	every  = 5 * time.Millisecond // between the puts that begin after it
)

// failover kills the leader under a caller, and returns the time to the next put.
func failover(ctx context.Context, s *system, servers *pipeline.Servers) (f figure, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	client, err := s.dial(ctx, servers.Endpoints)
	if err != nil {
		return f, err
	}
	defer client.close()
	var calling sync.WaitGroup
	defer func() {
		cancel()
		calling.Wait()
	}()
	done := make(chan struct{}) // closed when the caller has called often enough
	calling.Go(func() {
		for n := 0; ctx.Err() == nil; {
			if client.put(ctx, keyOf(0), value) != nil {
				wake.Pause(ctx, every)
				continue
			}
			if n++; n == before {
				close(done)
			}
		}
	})
	select {
	case <-done:
	case <-ctx.Done():
		return f, ctx.Err()
	}
	begin := time.Now()
	if err := servers.Kill(ctx, servers.Endpoints[0]); err != nil {
		return f, err
	}
	answered := make(chan time.Duration, 1)
	var why atomic.Pointer[error]
	put := func(key string) {
		err := client.put(ctx, key, value)
		if err != nil {
			why.Store(&err)
			return
		}
		select {
		case answered <- time.Since(begin):
		default:
		}
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := 1; ; n++ {
		calling.Go(func() { put(keyOf(n)) })
		select {
		case took := <-answered:
			return figure{value: float64(took) / float64(time.Millisecond)}, nil
		case <-tick.C:
		case <-ctx.Done():
			err := ctx.Err()
			if p := why.Load(); p != nil {
				err = errors.Join(err, *p)
			}
			return f, fmt.Errorf("no put succeeds after the kill: %w", err)
		}
	}
}
