//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"clustermap/chp"
)

// replica is a client that comes back after it was closed, each time as another
// life.
type replica struct {
	t        testing.TB
	history  *history
	name     string
	subtrees []string
	servers  []string
	routes   []*route // nil for one that is not disturbed
	log      *os.File

	rejoining sync.Mutex

	mu    sync.Mutex
	lives []*life
}

// life is one client, and all that its watch has reported.
type life struct {
	name     string
	subtrees []string
	client   *chp.Client
	watch    *chp.Watch
	cancel   context.CancelFunc
	reader   sync.WaitGroup
	ended    atomic.Bool // the client is closed, or about to be

	mu       sync.Mutex
	events   []event           // all that the watch has reported
	content  map[string]uint64 // the map that follows from them
	installs []install         // the client's new snapshots
	report   *stretch          // the same as events, with the marks
	failed   error             // why the watch ended
	sequence int64             // the client's in the end, which the watch may not have reached
}

// Times of the clients: so short that a replica notices a fault soon.
const (
	heartbeatTimeout = 800 * time.Millisecond
	syncTimeout      = 1500 * time.Millisecond
)

// install is a new snapshot of a client.
type install struct {
	at   time.Duration
	upto int64 // sequence of the replica then; 0 for the first one
}

func newReplica(t testing.TB, h *history, name string, subtrees, servers []string, routes []*route, dir string) *replica {
	log, err := os.OpenFile(dir+"/"+name+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	r := &replica{t: t, history: h, name: name, subtrees: subtrees, servers: servers, routes: routes, log: log}
	r.begin()
	t.Cleanup(func() {
		r.end()
		log.Close()
	})
	return r
}

// begin makes a client and watches all that it has.
func (r *replica) begin() {
	h := r.history
	r.mu.Lock()
	defer r.mu.Unlock()
	l := &life{name: fmt.Sprintf("%s.%d", r.name, len(r.lives)), subtrees: r.subtrees, content: map[string]uint64{}}
	var err error
	var client atomic.Pointer[chp.Client] // nil while NewClient has not returned
	syncs := uint64(0)
	l.client, err = chp.NewClient(chp.ClientOptions{
		Servers:          r.servers,
		Subtrees:         r.subtrees,
		HeartbeatTimeout: heartbeatTimeout,
		SyncTimeout:      syncTimeout,
		Logger:           slog.New(slog.NewTextHandler(r.log, nil)),
		OnState: func(s chp.State, _ string) {
			if s != chp.StateActive {
				return
			}
			before, c, upto := syncs, client.Load(), int64(0)
			if c != nil {
				syncs, upto = c.Stats().Syncs, c.Sequence()
			}
			if c == nil || syncs != before { // it did not resume
				l.mu.Lock()
				l.installs = append(l.installs, install{h.now(), upto})
				l.mu.Unlock()
			}
		},
	})
	if err == nil {
		client.Store(l.client)
		l.report = &stretch{client: l}
		l.watch, err = l.client.WatchWith(context.Background(), chp.WatchOptions{Bookmarks: true})
	}
	if err != nil {
		r.t.Error(err) // the options are at fault
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	l.reader.Go(func() {
		err := l.follow(ctx, h)
		if ctx.Err() == nil {
			l.mu.Lock()
			l.failed = err
			l.mu.Unlock()
			h.violate("watch", "%s: the watch ended: %v", l.name, err)
		}
	})
	r.lives = append(r.lives, l)
}

// end closes the client. It may be called again.
func (r *replica) end() {
	l := r.now()
	l.ended.Store(true)
	l.cancel()
	l.reader.Wait()
	l.watch.Close()
	l.client.Close()
	l.sequence = l.client.Sequence()
}

// rejoin closes the client and makes another. Two faults may do so at a time, and each
// must close the client that the other has made.
func (r *replica) rejoin() {
	r.rejoining.Lock()
	defer r.rejoining.Unlock()
	r.end()
	r.begin()
}

// now returns the present life.
func (r *replica) now() *life {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lives[len(r.lives)-1]
}

// follow records the events of the watch.
func (l *life) follow(ctx context.Context, h *history) error {
	synced := false
	for batch := 1; ; batch++ {
		var fault error
		err := l.watch.NextBatch(ctx, func(e chp.Event) bool {
			now := h.now()
			l.mu.Lock()
			defer l.mu.Unlock()
			id, bad := l.report.note(e, batch, now)
			if bad != nil {
				fault = fmt.Errorf("%s: %q at %d: %w", l.name, e.Key, e.Sequence, bad)
				return false
			}
			if e.Op == chp.OpSynced || e.Op == chp.OpBookmark {
				synced = true
				return true
			}
			x := event{seq: e.Sequence, key: string(e.Key), cause: e.Cause, ttl: e.TTL != 0, at: now, transaction: e.Transaction}
			copy(x.uuid[:], e.UUID)
			if e.Op == chp.OpSet {
				x.value = id
				l.content[x.key] = x.value
			} else {
				delete(l.content, x.key)
			}
			x.live = synced && e.Cause != chp.CauseResync
			l.events = append(l.events, x)
			return true
		})
		if fault != nil {
			h.violate("mangled", "%v", fault)
		} else if err == nil && holds(l.subtrees, condSubtree) {
			l.checkAccounts(h)
		}
		if err != nil {
			return err
		}
	}
}

// holds tells whether a key is in one of the subtrees.
func holds(subtrees []string, key string) bool {
	for _, s := range subtrees {
		if s == "" || s == key || strings.HasSuffix(s, "/") && strings.HasPrefix(key, s) {
			return true
		}
	}
	return len(subtrees) == 0
}

// state returns the map of a client.
func state(c *chp.Client) (content map[string]uint64, err error) {
	content = map[string]uint64{}
	c.Range(func(key, value []byte) bool {
		id, bad := valueOf(string(key), value)
		if bad != nil {
			err = errors.Join(err, fmt.Errorf("%q: %w", key, bad))
		}
		content[string(key)] = id
		return true
	})
	return content, err
}

// told returns the map that follows from the watch's events so far.
func (l *life) told() map[string]uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	content := make(map[string]uint64, len(l.content))
	for k, v := range l.content {
		content[k] = v
	}
	return content
}
