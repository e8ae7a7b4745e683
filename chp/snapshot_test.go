package chp

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"clustermap/chp/internal/subtree"
	"clustermap/chp/internal/wire"
	"clustermap/internal/kvmsg"
	"clustermap/internal/testenv"
	"clustermap/internal/wake"
	"clustermap/sockets"
)

// asker is the snapshot connection of a client, which reads only on demand of the test.
type asker struct {
	t      testing.TB
	ctx    context.Context
	dealer *sockets.Dealer
	gone   chan struct{} // closed when the server has disconnected it
}

// newAsker connects an asker. It announces itself as one of ours, or not. A
// stoppable one has small buffers, so that it soon takes nothing if the test does not
// read.
func newAsker(t testing.TB, endpoint string, ours, stoppable bool) *asker {
	t.Helper()
	a := &asker{t: t, ctx: testContext(t), gone: make(chan struct{})}
	o := sockets.Options{Linger: sockets.LingerNone, ReconnectInterval: -1, MaxMessageSize: 1 << 30, Monitor: func(e sockets.Event) {
		if e.Kind == sockets.EventDisconnected {
			close(a.gone)
		}
	}}
	if ours {
		o.Metadata = wire.Properties()
	}
	if stoppable {
		o.RecvHWM, o.RecvHWMBytes, o.RecvBuffer = 1, 1, 16<<10
	}
	var err error
	a.dealer, err = sockets.NewDealer(o)
	must(t, err)
	t.Cleanup(func() { a.dealer.Close() })
	must(t, a.dealer.Connect(endpoint))
	return a
}

func (a *asker) ask(subtrees ...string) {
	a.t.Helper()
	for _, subtree := range subtrees {
		must(a.t, a.dealer.Send(a.ctx, []byte("ICANHAZ?"), []byte(subtree)))
	}
}

// answered reports whether a part of an answer has come, or the connection has ended.
func (a *asker) answered() bool {
	select {
	case <-a.gone:
		return true
	default:
	}
	peers := a.dealer.Peers()
	return len(peers) > 0 && peers[0].MessagesIn > 0
}

// answer reads one snapshot. An error means that it ended before KTHXBAI.
func (a *asker) answer() (state map[string]string, bye kv, err error) {
	state = map[string]string{}
	ctx, cancel := context.WithCancel(a.ctx)
	defer cancel()
	go func() {
		select {
		case <-a.gone:
			cancel()
		case <-ctx.Done():
		}
	}()
	for {
		m, err := a.dealer.Recv(ctx)
		if err != nil {
			return state, bye, err
		}
		one := toKV(a.t, m)
		if one.key == kvmsg.KeyKTHXBAI {
			return state, one, nil
		}
		if _, twice := state[one.key]; twice {
			return state, bye, fmt.Errorf("%q came twice", one.key)
		}
		state[one.key] = one.value
	}
}

// want reads one snapshot and compares.
func (a *asker) want(subtree string, keys int) {
	a.t.Helper()
	state, bye, err := a.answer()
	if err != nil || bye.value != subtree || len(state) != keys {
		a.t.Fatalf("%q: %d keys and KTHXBAI of %q, want %d keys; error %v", subtree, len(state), bye.value, keys, err)
	}
}

// put sets a key, or deletes it if the value is empty.
func put(t testing.TB, s *Server, key, value string) {
	t.Helper()
	if value == "" {
		must(t, s.Delete(t.Context(), key))
		return
	}
	must(t, s.Set(t.Context(), key, []byte(value)))
}

// idle waits until a server holds nothing for snapshots.
func idle(t testing.TB, s *Server) {
	t.Helper()
	eventually(t, "nothing is held for snapshots", func() bool {
		h := s.snapshots.Held()
		return h.Clients+h.Cuts+h.Bytes+h.Lists == 0
	})
}

// More distinct subtrees at once than there is memory for parcels of the usual
// size. Nobody reads before all have asked, and everybody is served.
func TestManyDistinctSubtrees(t *testing.T) {
	t.Parallel()
	const each = 12
	clients := testenv.Rounds(250)
	s := startServer(t, ServerOptions{SnapshotMemory: 1 << 20, SnapshotTimeout: 20 * time.Second})
	value := strings.Repeat("x", 2000)
	tree := func(i int) string { return fmt.Sprintf("/tree/%d/", i) }
	for i := range clients * each {
		for k := range 3 {
			put(t, s, fmt.Sprint(tree(i), k), value)
		}
	}
	var all []*asker
	for c := range clients {
		a := newAsker(t, s.Endpoints().Snapshot, c%2 == 0, false)
		all = append(all, a)
		for i := range each {
			a.ask(tree(c*each + i))
		}
	}
	for c, a := range all {
		for i := range each {
			a.want(tree(c*each+i), 3)
		}
	}
	if n := s.snapshots.Counted.Walks.Load(); n > uint64(clients*each/10) {
		t.Errorf("%d walks through the map", n)
	}
	idle(t, s)
}

// slowLink forwards a connection to endpoint. It carries the bytes that come back at the
// given rate, in bytes a second, or as fast as the machine can if that is less.
func slowLink(t testing.TB, endpoint string, rate int) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	var running sync.WaitGroup
	running.Go(func() {
		near, err := l.Accept()
		if err != nil {
			return
		}
		defer near.Close()
		far, err := net.Dial("tcp", strings.TrimPrefix(endpoint, "tcp://"))
		if err != nil {
			t.Error(err)
			return
		}
		defer far.Close()
		_ = far.(*net.TCPConn).SetReadBuffer(16 << 10)
		running.Go(func() { _, _ = io.Copy(far, near); _ = far.Close() })
		b := make([]byte, 32<<10)
		begun, sum := time.Now(), 0
		for {
			n, err := far.Read(b)
			sum += n
			if _, failed := near.Write(b[:n]); err != nil || failed != nil {
				return
			}
			time.Sleep(time.Until(begun.Add(time.Second * time.Duration(sum) / time.Duration(rate))))
		}
	})
	t.Cleanup(running.Wait)
	t.Cleanup(func() { l.Close() })
	return "tcp://" + l.Addr().String()
}

// A client that reads all the time is served to the end, though that takes
// several times SnapshotTimeout and the snapshot does not fit SnapshotMemory.
func TestSteadySlowReader(t *testing.T) {
	t.Parallel()
	s := startServer(t, ServerOptions{SnapshotMemory: 1 << 20, SnapshotTimeout: 4 * time.Second})
	const keys = 192
	value := strings.Repeat("x", 64<<10)
	for i := range keys {
		put(t, s, fmt.Sprint("/k/", i), value)
	}
	// Not one of ours: a snapshot for one of ours comes from the log and needs no memory.
	a := newAsker(t, slowLink(t, s.Endpoints().Snapshot, 1200<<10), false, false)
	begun := time.Now()
	a.ask("")
	a.want("", keys)
	if took := time.Since(begun); took < 2*s.opts.SnapshotTimeout {
		t.Errorf("it took only %v: the test does not test", took)
	}
}

// stopped makes clients that ask for everything and never read, each of a map of
// its own, and waits until the server makes no progress with them.
func stopped(t testing.TB, s *Server, clients int, ours bool) (all []*asker) {
	t.Helper()
	for i := range clients {
		put(t, s, "/stopped", fmt.Sprint(i)) // another state, so another cut
		a := newAsker(t, s.Endpoints().Snapshot, ours, true)
		a.ask("", "", "", "")
		all = append(all, a)
	}
	eventually(t, "the clients are stuck", func() bool {
		for _, a := range all {
			if !a.answered() {
				return false
			}
		}
		for _, p := range s.router.Peers() {
			if p.MessagesIn == 0 {
				return false // it has not asked yet
			}
		}
		h := s.snapshots.Held()
		return h.Slow == h.Clients
	})
	return all
}

// Clients that ask for a large map and stop do not hold up others: not one key, not
// a subtree, not the whole map, and not each other.
func TestStoppedReadersHoldUpNobody(t *testing.T) {
	t.Parallel()
	const keys, clients = 1200, 8
	s := startServer(t, ServerOptions{SnapshotMemory: 512 << 10, SnapshotTimeout: 2 * hang})
	value := strings.Repeat("x", 5000)
	for i := range keys {
		put(t, s, fmt.Sprintf("/k/%d/%d", i%10, i), value)
	}
	all := append(stopped(t, s, clients, false), stopped(t, s, 2*clients, true)...)
	for range 3 {
		put(t, s, "/k/0/0", value)
		for _, ours := range []bool{true, false} {
			a := newAsker(t, s.Endpoints().Snapshot, ours, false)
			a.ask("/k/3/", "")
			a.want("/k/3/", keys/10)
			a.want("", keys+1)
		}
		one := newAsker(t, s.Endpoints().Snapshot, true, false)
		one.ask("/k/3/3", "/none")
		one.want("/k/3/3", 1)
		one.want("/none", 0)
	}
	h := s.snapshots.Held()
	if h.Clients < len(all) {
		t.Errorf("only %d of %d clients are still stopped: the test does not test", h.Clients, len(all))
	}
	if h.Bytes > s.opts.SnapshotMemory {
		t.Errorf("%d bytes are held, more than SnapshotMemory", h.Bytes)
	}
	for _, a := range all {
		a.dealer.Close()
	}
	idle(t, s)
}

// Values larger than a parcel, which our clients are sent from the log and
// others by copy.
func TestLargeValues(t *testing.T) {
	t.Parallel()
	const keys = 12
	s := startServer(t, ServerOptions{SnapshotMemory: 1 << 20, SnapshotTimeout: 2 * hang})
	value := strings.Repeat("x", 700<<10)
	for i := range keys {
		put(t, s, fmt.Sprint("/k/", i), value)
	}
	stopped(t, s, 5, true)
	for _, ours := range []bool{true, false} {
		a := newAsker(t, s.Endpoints().Snapshot, ours, false)
		a.ask("/k/", "")
		a.want("/k/", keys)
		a.want("", keys+1)
	}
}

// A client of a hundred subtrees does not make the server walk a hundred times
// through the map.
func TestManySubtreesOfOneClient(t *testing.T) {
	t.Parallel()
	const trees = 100
	s := startServer(t, ServerOptions{})
	for i := range 100 * trees {
		put(t, s, fmt.Sprintf("/d/%d/k", i), "v")
	}
	var list []string
	for i := range trees {
		list = append(list, fmt.Sprintf("/d/%d/", i))
	}
	c := startClient(t, s, ClientOptions{Subtrees: list})
	must(t, c.WaitActive(testContext(t)))
	if c.Len() != trees {
		t.Errorf("%d keys, want %d", c.Len(), trees)
	}
	if n := s.snapshots.Counted.Walks.Load(); n > trees/5 {
		t.Errorf("the server walked %d times through its map for %d subtrees", n, trees)
	}
}

// Keys that are deleted while a snapshot comes are remembered up to a bound,
// beyond which the client begins anew.
func TestDeletionsDuringJoin(t *testing.T) {
	t.Parallel()
	s := newScripted(t, asOurs)
	c := followScripted(t, ClientOptions{deletedBytes: 100 * (64 + len("/key/100"))}, s)
	id, _ := s.ask()
	seq := int64(0)
	remove := func(keys int) {
		for i := range keys {
			seq++
			s.kvpub(pub{fmt.Sprint("/key/", 100+i), seq, ""})
		}
	}
	for range 5 {
		remove(90) // the same keys: within the bound
	}
	s.kvsync(id, pub{"/key/100", 0, "deleted since"})
	s.kvsync(id, pub{"/key/200", 0, "stays"})
	remove(90)
	remove(105)
	id, _ = s.ask()
	remove(10)
	s.kvsync(id, pub{"/key/100", 0, "deleted since"})
	s.kvsync(id, pub{"/key/300", 0, "stays"})
	s.kthxbai(id, seq-10, "")
	wantContents(t, c, seq, map[string]string{"/key/300": "stays"})
	if st := c.Stats(); st.Syncs != 1 || st.Gaps != 0 {
		t.Errorf("%d snapshots and %d gaps", st.Syncs, st.Gaps)
	}
}

// The deletions during a join do not need more memory than a map may, however many keys
// there are.
func TestDeletionsDuringJoinOfTinyKeys(t *testing.T) {
	t.Parallel()
	const most = 12 << 10
	s := newScripted(t, asOurs)
	followScripted(t, ClientOptions{deletedBytes: 1, MaxMapBytes: most}, s)
	id, _ := s.ask()
	for i := range 200 {
		s.kvsync(id, pub{fmt.Sprint("/", i), 0, "v"})
	}
	for i := range most / 64 {
		s.kvpub(pub{fmt.Sprint("/x", i), int64(i + 1), ""})
	}
	s.ask() // it begins anew
}

// Clients that ask for the same at once are sent the same bytes.
func TestSnapshotIsEncodedOnce(t *testing.T) {
	t.Parallel()
	const clients, keys = 40, 500
	s := startServer(t, ServerOptions{})
	for i := range keys {
		put(t, s, fmt.Sprint("/k/", i), strings.Repeat("x", 1000))
	}
	var all []*asker
	for range clients {
		all = append(all, newAsker(t, s.Endpoints().Snapshot, false, false))
	}
	var sent int64
	for _, subtree := range []string{"", "/k/"} {
		// Those who come late are sent what is encoded for them, and a busy machine can make
		// that many.
		eventually(t, fmt.Sprintf("%q is encoded for several clients at once", subtree), func() bool {
			before := s.Status().EncodedBytes
			for _, a := range all {
				a.ask(subtree)
			}
			for _, a := range all {
				a.want(subtree, keys)
			}
			sent += clients * keys * 1000
			made := s.Status().EncodedBytes - before
			return made >= keys*1000 && made <= clients/2*keys*1000
		})
	}
	eventually(t, "all of it counts as sent", func() bool { return s.Status().SnapshotBytes > sent })
	idle(t, s)
}

// TestSnapshotIsLentFromTheLog: to clients of this module records that follow each other in
// the log are sent from there. Those with a time to live are not, nor is the end.
func TestSnapshotIsLentFromTheLog(t *testing.T) {
	t.Parallel()
	const keys = 60_000
	s := startServer(t, ServerOptions{})
	for i := range keys {
		put(t, s, fmt.Sprint("/k/", i), strings.Repeat("x", 100))
	}
	must(t, s.Set(t.Context(), "/timed", []byte("x"), WithTTL(time.Hour)))
	a := newAsker(t, s.Endpoints().Snapshot, true, false)
	a.ask("")
	a.want("", keys+1)
	eventually(t, "all of it counts as sent", func() bool { return s.Status().SnapshotBytes > keys*100 })
	if st := s.Status(); st.EncodedBytes > st.SnapshotBytes/2 {
		t.Errorf("%d bytes of snapshots were encoded, and %d sent", st.EncodedBytes, st.SnapshotBytes)
	}
	idle(t, s)
}

// A client that stops is disconnected after SnapshotTimeout, and its memory is released,
// also if its whole snapshot was in flight already.
func TestStoppedSnapshotEnds(t *testing.T) {
	t.Parallel()
	for _, size := range []int{5000, 300} {
		s := startServer(t, ServerOptions{SnapshotTimeout: time.Second})
		for i := range 3000 {
			put(t, s, fmt.Sprint("/k/", i), strings.Repeat("x", size))
		}
		a := newAsker(t, s.Endpoints().Snapshot, true, true)
		a.ask("")
		for range 127 {
			if a.dealer.Send(wake.Ended, []byte("ICANHAZ?"), nil) != nil {
				break // on a slow machine it is disconnected already
			}
		}
		eventually(t, "the client asks", func() bool { return s.Status().SnapshotBytes > 0 })
		eventually(t, "a client that reads nothing is disconnected", func() bool { return len(s.router.Peers()) == 0 })
		idle(t, s)
	}
}

// Memory that only the cuts of stopped clients hold is bounded, however often the map is
// overwritten; the cuts of clients that go on reading are not given up.
func TestCutsAreBounded(t *testing.T) {
	t.Parallel()
	const keys, most = 800, 40
	s := startServer(t, ServerOptions{SnapshotMemory: 256 << 10, SnapshotTimeout: 2 * hang})
	overwrite := func(value string) {
		for i := range keys {
			put(t, s, fmt.Sprint("/k/", i), strings.Repeat(value, 5000))
		}
	}
	overwrite("a")
	// How many it takes depends on how far compaction lags behind at the cuts.
	clients := 0
	for clients < 8 || clients < most && len(s.router.Peers()) == clients {
		stopped(t, s, 1, true)
		clients++
		overwrite(string(rune('b' + clients%20)))
		eventually(t, "the memory of cuts is bounded", func() bool {
			h := s.snapshots.Held()
			return h.Outlived <= h.Limit
		})
	}
	eventually(t, "those that were stopped first are disconnected", func() bool { return len(s.router.Peers()) < clients })
	if len(s.router.Peers()) == 0 {
		t.Error("all clients were disconnected")
	}
	a := newAsker(t, s.Endpoints().Snapshot, true, false)
	a.ask("")
	a.want("", keys+1)
}

// TestSnapshotsAgainstModel lets clients of all kinds ask at random for keys,
// subtrees and everything while updates go on: fast ones, slow ones, and some that
// leave in the middle. Each snapshot is the state at the sequence of its KTHXBAI,
// no older than the request.
func TestSnapshotsAgainstModel(t *testing.T) {
	t.Parallel()
	for _, memory := range []int{16 << 10, 256 << 10, 64 << 20} {
		t.Run(fmt.Sprint(memory>>10, " KiB"), func(t *testing.T) {
			t.Parallel()
			snapshotsAgainstModel(t, memory)
		})
	}
}

func snapshotsAgainstModel(t *testing.T, memory int) {
	s := startServer(t, ServerOptions{SnapshotMemory: memory, SnapshotTimeout: 2 * hang})
	first := s.Sequence()
	type update struct{ key, value string }
	var mu sync.Mutex
	var history []update // that of sequence first+1 and so on
	key := func(rng *rand.Rand) string {
		return fmt.Sprintf("/%d/%d/%d", rng.IntN(3), rng.IntN(20), rng.IntN(30))
	}
	write := func(rng *rand.Rand) {
		u := update{key: key(rng)}
		if rng.IntN(4) > 0 {
			u.value = strings.Repeat(string(rune('a'+rng.IntN(26))), 1+rng.IntN(200))
		}
		if rng.IntN(200) == 0 {
			u.value = strings.Repeat("L", 20<<10+rng.IntN(150<<10))
		}
		mu.Lock()
		history = append(history, u)
		put(t, s, u.key, u.value)
		mu.Unlock()
	}
	rng := rand.New(rand.NewPCG(1, uint64(memory)))
	for range 3000 {
		write(rng)
	}
	stop := make(chan struct{})
	var writing, reading sync.WaitGroup
	writing.Go(func() {
		rng := rand.New(rand.NewPCG(2, uint64(memory)))
		for {
			select {
			case <-stop:
				return
			default:
				write(rng)
				if rng.IntN(10) == 0 {
					time.Sleep(time.Millisecond)
				}
			}
		}
	})
	type result struct {
		subtree string
		after   int64
		state   map[string]string
		seq     int64
	}
	var results []result
	for c := range 24 {
		reading.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(c), uint64(memory)))
			for range 4 {
				ours := rng.IntN(2) == 0
				a := newAsker(t, s.Endpoints().Snapshot, ours, rng.IntN(3) == 0)
				var asked []string
				after := s.Sequence()
				for range 1 + rng.IntN(6) {
					subtree := ""
					switch n := rng.IntN(8); {
					case n < 3:
						subtree = fmt.Sprintf("/%d/%d/", rng.IntN(4), rng.IntN(20))
					case n < 5:
						subtree = fmt.Sprintf("/%d/", rng.IntN(4))
					case n < 7 && ours:
						subtree = key(rng)
					}
					asked = append(asked, subtree)
				}
				a.ask(asked...)
				for _, subtree := range asked {
					switch rng.IntN(10) {
					case 0:
						a.dealer.Close()
					case 1:
						time.Sleep(time.Duration(rng.IntN(50)) * time.Millisecond)
					}
					state, bye, err := a.answer()
					if err != nil {
						break
					}
					if bye.value != subtree {
						t.Errorf("the answer to %q is one to %q", subtree, bye.value)
					}
					mu.Lock()
					results = append(results, result{subtree, after, state, bye.seq})
					mu.Unlock()
				}
				a.dealer.Close()
			}
		})
	}
	reading.Wait()
	close(stop)
	writing.Wait()
	idle(t, s)
	if len(results) < 24 {
		t.Errorf("only %d snapshots came", len(results))
	}
	// The model goes through the history once, and stops at each KTHXBAI.
	at := map[int64][]result{}
	for _, r := range results {
		if r.seq < r.after {
			t.Errorf("%q: the cut %d is older than the request, made at %d", r.subtree, r.seq, r.after)
		}
		at[r.seq] = append(at[r.seq], r)
	}
	model := map[string]string{}
	for i, u := range history {
		if model[u.key] = u.value; u.value == "" {
			delete(model, u.key)
		}
		for _, r := range at[first+int64(i)+1] {
			of := subtree.New([]string{r.subtree})
			want := map[string]string{}
			for k, v := range model {
				if of.Contains([]byte(k)) {
					want[k] = v
				}
			}
			if !maps.Equal(r.state, want) {
				t.Errorf("%q at %d: %d keys, want %d, or other values", r.subtree, r.seq, len(r.state), len(want))
			}
		}
		delete(at, first+int64(i)+1)
	}
	if len(at) > 0 {
		t.Errorf("%d cuts of no state", len(at))
	}
}
