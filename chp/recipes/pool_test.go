package recipes

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Each member has its share, and a new one takes little more than that from others.
func TestAssign(t *testing.T) {
	t.Parallel()
	const shards = 64
	var members []Holder
	var before []string
	for n := 1; n <= 10; n++ {
		members = append(members, Holder{Key: fmt.Sprint("member ", n), Token: int64(n)})
		now := assign(members, shards)
		share, moved := map[string]int{}, 0
		for i, owner := range now {
			share[owner]++
			if before != nil && before[i] != owner {
				moved++
			}
		}
		for _, m := range members {
			if most := (shards + n - 1) / n; share[m.Key] > most {
				t.Errorf("%d of %d shards are one's of %d", share[m.Key], shards, n)
			}
		}
		if moved > 3*shards/n {
			t.Errorf("%d of %d shards moved to the %d. member", moved, shards, n)
		}
		before = now
	}
	if len(assign(nil, 3)) != 3 {
		t.Error("shards without members")
	}
}

// Each shard is one worker's at a time, while workers come and go, and in the end each has one.
func TestPool(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t)
	const shards, workers = 12, 4
	var mu sync.Mutex
	var owner [shards]int // 0 for none
	var tokens [shards]int64
	work := func(worker int) func(context.Context, int, *Lock) error {
		return func(ctx context.Context, shard int, held *Lock) error {
			mu.Lock()
			if owner[shard] != 0 {
				t.Errorf("shard %d is one of two workers", shard)
			}
			if held.Token() <= tokens[shard] {
				t.Errorf("token %d after %d", held.Token(), tokens[shard])
			}
			owner[shard], tokens[shard] = worker, held.Token()
			mu.Unlock()
			<-ctx.Done()
			mu.Lock()
			owner[shard] = 0
			mu.Unlock()
			return nil
		}
	}
	shared := func(among int) func() bool { // each of so many has its share
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			share := map[int]int{}
			for _, w := range owner {
				share[w]++
			}
			for w, n := range share {
				if w == 0 || n > (shards+among-1)/among {
					return false
				}
			}
			return len(share) == among
		}
	}
	var running sync.WaitGroup
	var stops []func()
	for i := range workers {
		// A time to live that no test is long enough for: what moves, moves without it.
		p, err := NewPool(startClient(t, s.Endpoints().Snapshot), "/l/p", shards, Options{TTL: time.Minute})
		must(t, err)
		t.Cleanup(func() { must(t, p.Close()) })
		within, stop := context.WithCancel(ctx)
		stops = append(stops, stop)
		running.Go(func() {
			if err := p.Run(within, work(i+1)); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		eventually(t, "the shards are shared", shared(i+1))
	}
	stops[0]()
	eventually(t, "the others have them", shared(workers-1))
	for _, stop := range stops {
		stop()
	}
	running.Wait()
	eventually(t, "no key is left", func() bool { return places(s) == 0 })

	// An error of the work ends the worker.
	p, err := NewPool(startClient(t, s.Endpoints().Snapshot), "/l/p", shards, Options{})
	must(t, err)
	defer p.Close()
	broken := errors.New("broken")
	if err := p.Run(ctx, func(context.Context, int, *Lock) error { return broken }); err != broken {
		t.Error(err)
	}
}

// The shards of a worker that has died are the others' when its time to live has ended.
func TestPoolAfterDeath(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(testContext(t))
	s := startServer(t)
	const shards = 5
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	source := &mortal{source: &clientSource{startClient(t, s.Endpoints().Snapshot), "/l/p/"}}
	q, err := startQueue(source, "/l/p/", Options{TTL: 2 * time.Second})
	must(t, err)
	dead := &Pool{q, shards}
	begun := make(chan int, 100)
	running.Go(func() {
		dead.Run(ctx, func(ctx context.Context, shard int, _ *Lock) error {
			begun <- shard
			<-ctx.Done()
			return nil
		})
	})
	for range shards {
		<-begun
	}
	source.die(q)
	p, err := NewPool(startClient(t, s.Endpoints().Snapshot), "/l/p", shards, Options{TTL: 2 * time.Second})
	must(t, err)
	all := make(chan int, 100)
	running.Go(func() {
		p.Run(ctx, func(ctx context.Context, shard int, _ *Lock) error {
			all <- shard
			<-ctx.Done()
			return nil
		})
	})
	seen := map[int]bool{}
	for len(seen) < shards {
		seen[<-all] = true
	}
	stop()
	running.Wait()
	must(t, dead.Close())
	must(t, p.Close())
}

// mortal is a source that does nothing any more when it is dead.
type mortal struct {
	source
	dead atomic.Bool
}

// mortalLease is a lease of a mortal source.
type mortalLease struct {
	lease
	of *mortal
}

func (s *mortal) die(q *queue) {
	s.dead.Store(true)
	q.mu.Lock()
	t := q.now
	q.mu.Unlock()
	t.Close() // ends the renewals
}

func (s *mortal) grant(ctx context.Context, ttl time.Duration) (lease, error) {
	if s.dead.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	l, err := s.source.grant(ctx, ttl)
	return mortalLease{l, s}, err
}

func (l mortalLease) Revoke(ctx context.Context) error {
	if l.of.dead.Load() {
		return nil
	}
	return l.lease.Revoke(ctx)
}

func (s *mortal) create(ctx context.Context, key string, value []byte, with lease) (int64, error) {
	return s.source.create(ctx, key, value, with.(mortalLease).lease)
}

func (s *mortal) remove(ctx context.Context, key string) error {
	if s.dead.Load() {
		return nil
	}
	return s.source.remove(ctx, key)
}
