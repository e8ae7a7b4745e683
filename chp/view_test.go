package chp

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"clustermap/internal/testenv"
	"clustermap/internal/wake"
)

type toggle struct {
	On   bool
	Note string
}

// newView returns a view that has its first state, and closes it with the test.
func newView[T any](t testing.TB, source Source, prefix string, o ViewOptions[T]) *View[T] {
	t.Helper()
	v, err := NewView(source, prefix, o)
	must(t, err)
	t.Cleanup(func() { must(t, v.Close()) })
	must(t, v.WaitSynced(testContext(t)))
	return v
}

// viewLog is a text for each change.
func viewLog[T any](log chan string) func(ViewChange[T]) {
	return func(c ViewChange[T]) {
		text := func(p *T) string {
			if p == nil {
				return "none"
			}
			return fmt.Sprint(*p)
		}
		log <- fmt.Sprintf("%s: %s to %s, %v", c.Key, text(c.Old), text(c.New), c.Cause)
	}
}

func wantLog(t *testing.T, log chan string, want ...string) {
	t.Helper()
	for _, text := range want {
		select {
		case got := <-log:
			if got != text {
				t.Errorf("the view reports %q, want %q", got, text)
			}
		case <-testContext(t).Done():
			t.Fatalf("no report of %q", text)
		}
	}
}

func TestViewFollowsClient(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	c := startClient(t, s, ClientOptions{})
	must(t, c.Set(ctx, "/flags/a", []byte(`{"On":true,"Note":"first"}`)))
	must(t, c.Set(ctx, "/other", []byte("no JSON")))
	must(t, c.Flush(ctx))
	log := make(chan string, 100)
	v := newView(t, c, "/flags/", ViewOptions[toggle]{OnChange: viewLog[toggle](log), OnError: func(err *DecodeError) { t.Error(err) }})
	wantLog(t, log, "/flags/a: none to {true first}, set")
	if f, ok := v.Get("/flags/a"); !ok || f != (toggle{true, "first"}) || v.Len() != 1 {
		t.Errorf("Get = %v, %v; %d keys", f, ok, v.Len())
	}
	for _, key := range []string{"/flags/b", "/other", ""} {
		if f, ok := v.Get(key); ok || f != (toggle{}) {
			t.Errorf("Get(%q) = %v, %v", key, f, ok)
		}
	}
	must(t, v.Set(ctx, "/flags/a", toggle{Note: "second"}))
	must(t, v.Set(ctx, "/flags/a", toggle{Note: "second"})) // the same value again
	must(t, v.Delete(ctx, "/flags/a"))
	must(t, v.Set(ctx, "/flags/b", toggle{Note: "x"}, WithTTL(50*time.Millisecond)))
	wantLog(t, log, "/flags/a: {true first} to {false second}, set", "/flags/a: {false second} to none, deleted",
		"/flags/b: none to {false x}, set", "/flags/b: {false x} to none, expired")
	if v.Len() != 0 {
		t.Errorf("%d keys", v.Len())
	}
	must(t, v.Set(ctx, "/flags/a", toggle{Note: "third"}))
	wantLog(t, log, "/flags/a: none to {false third}, set")
	if got := maps.Collect(v.All()); !maps.Equal(got, map[string]toggle{"/flags/a": {Note: "third"}}) {
		t.Errorf("All has %v", got)
	}
	for _, err := range []error{v.Set(ctx, "/other", toggle{}), v.Delete(ctx, "/flags")} {
		outside, ok := errors.AsType[*OutsideViewError](err)
		if !ok || outside.Prefix != "/flags/" || !errors.Is(err, ErrOutsideSubtrees) {
			t.Errorf("a key outside of the view: %v", err)
		}
	}
	if st := v.Stats(); st != (ViewStats{Keys: 1, Changes: 6}) {
		t.Errorf("%+v", st)
	}
}

// A value that does not decode is reported once, and the key keeps the last one that did.
func TestViewKeepsLastValidValue(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	c := startClient(t, s, ClientOptions{})
	log := make(chan string, 100)
	v := newView(t, c, "/n/", ViewOptions[int]{OnChange: viewLog[int](log), OnError: func(err *DecodeError) {
		log <- fmt.Sprintf("%s is invalid: %v", err.Key, errors.Unwrap(err) == err.Err && err.Sequence > 0)
	}})
	for _, value := range []string{"1", "one", "one", "2"} {
		must(t, c.Set(ctx, "/n/a", []byte(value)))
	}
	must(t, c.Set(ctx, "/n/b", []byte("two")))
	must(t, c.Delete(ctx, "/n/b"))
	wantLog(t, log, "/n/a: none to 1, set", "/n/a is invalid: true", "/n/a: 1 to 2, set", "/n/b is invalid: true")
	must(t, c.Set(ctx, "/n/a", []byte("x")))
	must(t, c.Set(ctx, "/n/b", []byte("3")))
	wantLog(t, log, "/n/a is invalid: true", "/n/b: none to 3, set")
	if a, ok := v.Get("/n/a"); !ok || a != 2 || v.Len() != 2 {
		t.Errorf("/n/a = %d, %v; %d keys", a, ok, v.Len())
	}
	must(t, c.Delete(ctx, "/n/a"))
	wantLog(t, log, "/n/a: 2 to none, deleted")
	if n := v.Stats().Undecoded; n != 3 {
		t.Errorf("%d values did not decode, want 3", n)
	}
}

// A view whose callback is slow skips changes, and then has the present state: no present
// key is missing, and deleted keys are gone.
func TestViewCatchesUp(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	c := startClient(t, s, ClientOptions{WatchQueue: 4 << 10})
	for i := range 20 {
		must(t, c.Set(ctx, fmt.Sprintf("/n/%d", i), []byte("0")))
	}
	must(t, c.Flush(ctx))
	var hold atomic.Bool
	release := make(chan struct{})
	reported := map[string]int{}
	causes := map[Cause]int{}
	v := newView(t, c, "/n/", ViewOptions[int]{OnChange: func(change ViewChange[int]) {
		old, had := reported[change.Key]
		if had != (change.Old != nil) || had && old != *change.Old || !had && change.New == nil {
			t.Errorf("%s had %d, %v; the view says %v", change.Key, old, had, change.Old)
		}
		if change.New == nil {
			delete(reported, change.Key)
		} else {
			reported[change.Key] = *change.New
		}
		causes[change.Cause]++
		if hold.Load() {
			<-release
		}
	}})
	hold.Store(true)
	must(t, c.Set(ctx, "/n/0", []byte("-1")))
	eventually(t, "the view waits in a callback", func() bool { return v.Stats().Changes == 21 })
	// Its watch overflows.
	for round := 1; c.Stats().Lagged == 0; round++ {
		for i := range 10 {
			must(t, c.Set(ctx, fmt.Sprintf("/n/%d", i), []byte(strconv.Itoa(round))))
		}
		must(t, c.Flush(ctx))
	}
	for i := 10; i < 15; i++ {
		must(t, c.Delete(ctx, fmt.Sprintf("/n/%d", i)))
	}
	must(t, c.Set(ctx, "/n/new", []byte("7")))
	must(t, c.Flush(ctx))
	hold.Store(false)
	close(release)
	want := map[string]int{}
	for e := range c.All() {
		n, err := strconv.Atoi(string(e.Value))
		must(t, err)
		want[string(e.Key)] = n
	}
	eventually(t, "the view has caught up", func() bool { return maps.Equal(maps.Collect(v.All()), want) && v.Len() == len(want) })
	if v.Len() != 16 || v.Stats().Rescans != 1 {
		t.Errorf("%d keys after %d rescans", v.Len(), v.Stats().Rescans)
	}
	must(t, v.Close())
	if !maps.Equal(reported, want) || causes[CauseResync] != 16 {
		t.Errorf("the callback has %v and causes %v, want %v", reported, causes, want)
	}
}

// After a new snapshot of a server with another map, the view has that map.
func TestViewFollowsResync(t *testing.T) {
	t.Parallel()
	s := newScripted(t, asOurs)
	log := make(chan string, 100)
	c := followScripted(t, ClientOptions{}, s)
	v, err := NewView(c, "", ViewOptions[int]{OnChange: viewLog[int](log)})
	must(t, err)
	defer v.Close()
	var inactive *NotActiveError
	if err := v.WaitSynced(wake.Ended); !errors.As(err, &inactive) {
		t.Errorf("before the first snapshot: %v", err)
	}
	s.answer(5, pub{"/a", 1, "1"}, pub{"/b", 2, "2"})
	must(t, v.WaitSynced(testContext(t)))
	if v.Len() != 2 || len(log) != 2 {
		t.Errorf("%d keys, %d changes", v.Len(), len(log))
	}
	<-log
	<-log
	s.kvpub(pub{"/c", 8, "3"}) // a gap, after which the client asks again
	s.answer(9, pub{"/a", 1, "1"}, pub{"/b", 9, "4"})
	wantLog(t, log, "/b: 2 to 4, resync")
	eventually(t, "the view has the new snapshot", func() bool { return maps.Equal(maps.Collect(v.All()), map[string]int{"/a": 1, "/b": 4}) })
}

func TestViewErrors(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	c := startClient(t, s, ClientOptions{Subtrees: []string{"/a/"}})
	var malformed *SubtreeError
	if _, err := NewView(c, "a/", ViewOptions[int]{}); !errors.As(err, &malformed) {
		t.Errorf("a malformed prefix: %v", err)
	}
	if _, err := NewView(c, "/b/", ViewOptions[int]{}); !errors.Is(err, ErrOutsideSubtrees) {
		t.Errorf("a prefix outside: %v", err)
	}
	text := newView(t, c, "/a/", ViewOptions[string]{Codec: TextCodec[string]{}})
	if err := text.Set(ctx, "/a/1", ""); !errors.Is(err, ErrEmptyValue) {
		t.Errorf("an empty value: %v", err)
	}
	must(t, text.Set(ctx, "/a/1", "plain"))
	eventually(t, "the text", func() bool { got, _ := text.Get("/a/1"); return got == "plain" })
	if err := newView(t, c, "/a/2", ViewOptions[func()]{}).Set(ctx, "/a/2", func() {}); err == nil {
		t.Error("a function was encoded")
	}
	idle := idleClient(t, ClientOptions{})
	early, err := NewView(idle, "", ViewOptions[int]{})
	must(t, err)
	must(t, early.Close())
	must(t, early.Close())
	if err := early.WaitSynced(ctx); !errors.Is(err, ErrClosed) {
		t.Errorf("WaitSynced after Close: %v", err)
	}
	must(t, c.Close())
	if got, _ := text.Get("/a/1"); got != "plain" {
		t.Errorf("after Close of the client the value is %q", got)
	}
	if _, err := NewView(c, "/a/", ViewOptions[int]{}); !errors.Is(err, ErrClosed) {
		t.Errorf("NewView of a closed client: %v", err)
	}
}

// Close waits for the callback, and none follows.
func TestViewCloseAwaitsCallback(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	c := startClient(t, s, ClientOptions{})
	var running, calls atomic.Int32
	began, release := make(chan struct{}), make(chan struct{})
	v, err := NewView(c, "", ViewOptions[int]{OnChange: func(ViewChange[int]) {
		running.Store(1)
		if calls.Add(1) == 1 {
			close(began)
		}
		<-release
		running.Store(0)
	}})
	must(t, err)
	for i := range 10 {
		must(t, c.Set(ctx, fmt.Sprint(i), []byte("1")))
	}
	<-began
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		must(t, v.Close())
	}()
	eventually(t, "Close has begun", func() bool { return v.ctx.Err() != nil })
	close(release)
	<-closed
	if running.Load() != 0 || calls.Load() != 1 {
		t.Errorf("%d callbacks; one is running: %d", calls.Load(), running.Load())
	}
}

func TestViewGetAllocatesNothing(t *testing.T) {
	c := idleClient(t, ClientOptions{})
	begin(t, c, 0, pub{"/some/key", 1, `{"On":true}`})
	v := newView(t, c, "", ViewOptions[toggle]{})
	if n := testenv.Allocs(0, 1000, func() {
		if f, ok := v.Get("/some/key"); !ok || !f.On {
			t.Fatal("not found")
		}
		if _, ok := v.Get("/other/key"); ok {
			t.Fatal("found")
		}
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

// The table has the content of a Go map after the same operations, while others read it.
func TestViewTable(t *testing.T) {
	t.Parallel()
	var table viewTable[int]
	table.init()
	model := map[string]int{}
	items := map[string]*viewItem[int]{}
	const keys = 2000
	ctx, stop := context.WithCancel(context.Background())
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for ctx.Err() == nil {
				i := rand.IntN(keys)
				if p := table.get(strconv.Itoa(i)); p != nil && *p%keys != i {
					t.Errorf("key %d has %d", i, *p)
				}
				if i == 0 {
					table.each(func(it *viewItem[int]) bool {
						if p := it.value.Load(); p != nil && strconv.Itoa(*p%keys) != it.key {
							t.Errorf("key %s has %d", it.key, *p)
						}
						return true
					})
				}
			}
		})
	}
	most := 0
	check := func() {
		t.Helper()
		n := 0
		table.each(func(it *viewItem[int]) bool {
			if p := it.value.Load(); p != nil {
				n++
			}
			return true
		})
		if n != len(model) || int(table.keys.Load()) != n || table.present != n {
			t.Fatalf("%d keys are counted, %d present, %d found, want %d", table.keys.Load(), table.present, n, len(model))
		}
		for key, want := range model {
			if p := table.get(key); p == nil || *p != want {
				t.Fatalf("key %s is missing or wrong", key)
			}
		}
		most = max(most, len(*table.slots.Load()))
	}
	for _, deletes := range []int{2, 5, 9, 2, 10} { // of ten operations
		for range 6000 {
			i := rand.IntN(keys)
			key := strconv.Itoa(i)
			if rand.IntN(10) < deletes {
				if it := items[key]; it != nil {
					if old := table.remove(it); old == nil || *old != model[key] {
						t.Fatalf("the old value of %s is wrong", key)
					}
					delete(items, key)
					delete(model, key)
				}
				continue
			}
			it, known := table.item(maphash.String(table.seed, key), key, func() string { return key })
			if known != (items[key] != nil) || known && it != items[key] {
				t.Fatalf("key %s is known: %v", key, known)
			}
			value := i + keys*rand.IntN(1000)
			table.set(it, &value)
			items[key], model[key] = it, value
		}
		check()
	}
	for key, it := range items {
		table.remove(it)
		delete(model, key)
	}
	check()
	stop()
	readers.Wait()
	if n := len(*table.slots.Load()); n != leastViewSlots || most < keys {
		t.Errorf("the empty table has %d slots, the largest had %d", n, most)
	}
}

// Keys with the same hash have items of their own.
func TestViewTableCollides(t *testing.T) {
	t.Parallel()
	var table viewTable[int]
	table.init()
	for i := range 100 {
		it, known := table.item(7, strconv.Itoa(i), func() string { return strconv.Itoa(i) })
		if known {
			t.Errorf("key %d is known", i)
		}
		table.set(it, &i)
	}
	for i := range 101 {
		if it := table.find(7, strconv.Itoa(i)); (it != nil) != (i < 100) || it != nil && *it.value.Load() != i {
			t.Errorf("key %d: %v", i, it)
		}
	}
}

var (
	_ Source = (*Client)(nil)
	_ Source = (*Server)(nil)
)

// A server in the same process is a source, too.
func TestViewFollowsServer(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	log := make(chan string, 100)
	v := newView(t, s, "/n/", ViewOptions[int]{OnChange: viewLog[int](log)})
	must(t, v.Set(ctx, "/n/1", 7))
	c := startClient(t, s, ClientOptions{})
	must(t, c.Set(ctx, "/n/1", []byte("8")))
	must(t, c.Flush(ctx))
	must(t, v.Delete(ctx, "/n/1"))
	wantLog(t, log, "/n/1: none to 7, set", "/n/1: 7 to 8, set", "/n/1: 8 to none, deleted")
}
