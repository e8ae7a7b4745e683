package recipes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"sync"

	"clustermap/chp"
)

// Pool shares a number of shards among the workers that there are: each shard is worked on by
// one of them, or by none for a moment, never by two. When a worker comes, it gets its
// share, and few other shards move; when one dies, the others get its shards after the time to
// live.
//
// A worker has a lock for each of its shards, all with one lease.
type Pool struct {
	queue  *queue
	shards int
}

// NewPool returns the pool of a name, as NewMutex does, with shards from 0 to shards-1, at most MaxShards. All workers must give the
// same number.
func NewPool(c *chp.Client, name string, shards int, o Options) (*Pool, error) {
	if shards < 1 || shards > MaxShards {
		return nil, fmt.Errorf("chp/recipes: %d shards; there must be 1 to %d", shards, MaxShards)
	}
	q, err := newQueue(c, name, o)
	if err != nil {
		return nil, err
	}
	return &Pool{q, shards}, nil
}

// Close ends Run and gives all shards back. It returns nil.
func (p *Pool) Close() error { return p.queue.close() }

// Run makes this program a worker until the context ends or the pool is closed: it calls f for each of its
// shards, in a goroutine. The context of f ends when the shard is another's; then f must return, and the
// next worker begins when it has. If f returns before, it is called again when the shard
// comes back to this worker. If f returns an error while its context has not ended, Run ends and returns it.
// held has the fencing token, see [Lock].
func (p *Pool) Run(ctx context.Context, f func(ctx context.Context, shard int, held *Lock) error) error {
	ctx, fail := context.WithCancelCause(ctx)
	var working sync.WaitGroup
	defer working.Wait()
	defer fail(nil)
	for ctx.Err() == nil {
		member, err := p.queue.acquire(ctx, p.members(), everybody, nil, false)
		if err != nil {
			return cmp.Or(context.Cause(ctx), err)
		}
		p.work(ctx, member, fail, &working, f)
		leaving, done := context.WithTimeout(context.WithoutCancel(ctx), goodbye)
		err = member.Unlock(leaving)
		done()
		if errors.Is(err, ErrClosed) {
			return err
		}
	}
	return context.Cause(ctx)
}

func (p *Pool) members() string { return p.queue.root + "members/" }

// work works on shards while this program is a member.
func (p *Pool) work(ctx context.Context, member *Lock, fail context.CancelCauseFunc, working *sync.WaitGroup, f func(context.Context, int, *Lock) error) {
	stops := make([]context.CancelFunc, p.shards) // of those that are this one's
	ended := make([]chan struct{}, p.shards)      // of those that were
	defer func() {
		for _, stop := range stops {
			if stop != nil {
				stop()
			}
		}
	}()
	var owners []string
	var known []Holder
	for {
		members, changed := p.queue.holders(p.members(), everybody)
		if !slices.EqualFunc(members, known, func(a, b Holder) bool { return a.Token == b.Token }) {
			owners, known = assign(members, p.shards), members
		}
		for shard, owner := range owners {
			switch mine := owner == member.Key(); {
			case mine && stops[shard] == nil:
				within, stop := context.WithCancel(ctx)
				before, over := ended[shard], make(chan struct{})
				stops[shard], ended[shard] = stop, over
				working.Go(func() {
					defer close(over)
					if before != nil {
						<-before
					}
					if err := p.shard(within, shard, f); err != nil && within.Err() == nil {
						fail(err)
					}
				})
			case !mine && stops[shard] != nil:
				stops[shard]()
				stops[shard] = nil
			}
		}
		select {
		case <-changed:
		case <-member.Done():
			return
		case <-ctx.Done():
			return
		}
	}
}

// shard works on a shard until the context ends, or f returns.
func (p *Pool) shard(ctx context.Context, shard int, f func(context.Context, int, *Lock) error) error {
	for {
		held, err := p.queue.acquire(ctx, p.queue.root+"shards/"+strconv.Itoa(shard)+"/", 1, nil, false)
		if err != nil {
			return err
		}
		err = held.do(ctx, func(ctx context.Context, held *Lock) error {
			if err := f(ctx, shard, held); err != nil && ctx.Err() == nil {
				return err
			}
			return nil
		})
		if !errors.Is(err, ErrLost) {
			return err
		}
	}
}

// assign returns the key of the member for each shard: each member gets its share, rounded up at most,
// and each shard the member that it prefers among those with room (rendezvous hashing). All members
// compute the same.
func assign(members []Holder, shards int) []string {
	owners := make([]string, shards)
	if len(members) == 0 {
		return owners
	}
	room := map[string]int{}
	for _, m := range members {
		room[m.Key] = (shards + len(members) - 1) / len(members)
	}
	for shard := range owners {
		free := slices.DeleteFunc(slices.Clone(members), func(m Holder) bool { return room[m.Key] == 0 })
		best := slices.MaxFunc(free, func(a, b Holder) int {
			return cmp.Or(cmp.Compare(preference(shard, a.Key), preference(shard, b.Key)), cmp.Compare(a.Key, b.Key))
		})
		owners[shard] = best.Key
		room[best.Key]--
	}
	return owners
}

func preference(shard int, member string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(strconv.Itoa(shard) + member))
	n := h.Sum64() // its high bits hardly depend on the last bytes
	n ^= n >> 33
	n *= 0xff51afd7ed558ccd
	return n ^ n>>33
}
