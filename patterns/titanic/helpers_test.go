package titanic

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"clustermap/internal/testenv"

	"go.uber.org/goleak"
)

var (
	testContext = testenv.Context
	eventually  = testenv.Eventually
)

func TestMain(m *testing.M) {
	if child() {
		return
	}
	goleak.VerifyTestMain(m)
}

func frames(text ...string) (all [][]byte) {
	for _, s := range text {
		all = append(all, []byte(s))
	}
	return all
}

func same(a, b [][]byte) bool {
	return slices.EqualFunc(a, b, slices.Equal[[]byte])
}

// testStore returns a store with default options and no callbacks.
func testStore(t testing.TB, dir string, change func(*Options)) *store {
	t.Helper()
	o := Options{Dir: dir, MaxRequests: 1000, MaxBytes: 64 << 20}
	if change != nil {
		change(&o)
	}
	s, err := openStore(o, func(*entry) {}, func(*entry) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.close() })
	return s
}

func mustPut(t testing.TB, s *store, service string, body ...string) UUID {
	t.Helper()
	id, err := s.put(service, frames(body...))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// entryOf returns the entry of a UUID, which must exist.
func entryOf(t testing.TB, s *store, id UUID) *entry {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.index[id]
	if e == nil {
		t.Fatal("not in the index")
	}
	return e
}

// agree fails the test if the counters of the store differ from its content.
func agree(t testing.TB, s *store) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var bytes, replies int64
	for _, e := range s.index {
		bytes += int64(e.size)
		if e.kind != kindRequest {
			replies += int64(e.size)
		}
	}
	if s.entries != len(s.index) || s.waiting.Len()+s.done.Len() != len(s.index) || s.bytes != bytes || s.replies != replies {
		t.Fatalf("%d entries, %d waiting, %d done, %d in the index; %d bytes of %d, of replies %d of %d",
			s.entries, s.waiting.Len(), s.done.Len(), len(s.index), s.bytes, bytes, s.replies, replies)
	}
}

func databaseOf(dir string) string { return filepath.Join(dir, fileName) }

// fakeBroker is a broker whose services are functions.
type fakeBroker struct {
	mu       sync.Mutex
	services map[string]func(ctx context.Context, body [][]byte) ([][]byte, error)
	probes   map[string]int
}

func newFakeBroker() *fakeBroker {
	return &fakeBroker{services: map[string]func(context.Context, [][]byte) ([][]byte, error){}, probes: map[string]int{}}
}

func (b *fakeBroker) serve(name string, f func(ctx context.Context, body [][]byte) ([][]byte, error)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if f == nil {
		delete(b.services, name)
	} else {
		b.services[name] = f
	}
}

func (b *fakeBroker) available(ctx context.Context, service string) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.probes[service]++
	return b.services[service] != nil, ctx.Err()
}

func (b *fakeBroker) probed(service string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.probes[service]
}

func (b *fakeBroker) execute(ctx context.Context, service string, body [][]byte) ([][]byte, error) {
	b.mu.Lock()
	f := b.services[service]
	b.mu.Unlock()
	if f == nil {
		return nil, errUnavailable
	}
	return f(ctx, body)
}

func echo(_ context.Context, body [][]byte) ([][]byte, error) { return body, nil }

// testServer is a server at a fake broker, with short times.
func testServer(t testing.TB, b broker, change func(*Options)) *Server {
	t.Helper()
	o := Options{Broker: "none", Dir: t.TempDir(), RetryMin: time.Millisecond, RetryMax: 20 * time.Millisecond}
	if change != nil {
		change(&o)
	}
	o, err := o.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	s, err := openServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.start(b)
	t.Cleanup(func() { s.Close() })
	return s
}

// call calls a service of the server.
func call(t testing.TB, service func(context.Context, [][]byte) ([][]byte, error), request ...string) (status string, content [][]byte) {
	t.Helper()
	answer, err := service(context.Background(), frames(request...))
	if err != nil || len(answer) == 0 {
		t.Fatal(answer, err)
	}
	return string(answer[0]), answer[1:]
}

// submit stores a request and returns its UUID.
func submit(t testing.TB, s *Server, request ...string) string {
	t.Helper()
	status, content := call(t, s.request, request...)
	if status != "200" || len(content) != 1 {
		t.Fatal(status, content)
	}
	return string(content[0])
}

// answered waits for an answer other than 300.
func answered(t testing.TB, s *Server, id string) (status string, content [][]byte) {
	t.Helper()
	eventually(t, "a reply of "+id, func() bool {
		status, content = call(t, s.reply, id)
		return status != "300"
	})
	return status, content
}

func wantAnswer(t testing.TB, status string, content [][]byte, wantStatus string, want ...string) {
	t.Helper()
	if status != wantStatus || !same(content, frames(want...)) {
		t.Errorf("answered %s %q, want %s %q", status, content, wantStatus, want)
	}
}

var errTest = errors.New("a test's error")

func number(i int) string { return fmt.Sprintf("request %d", i) }
