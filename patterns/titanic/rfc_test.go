package titanic

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"clustermap/internal/loopback"
	"clustermap/patterns/majordomo"
)

// These tests show the requirements of RFC 9, in its order. They talk to the server
// through a broker, in frames.

// A system is a broker, a server and a client.
type system struct {
	t        testing.TB
	endpoint string
	server   *Server
	frames   *majordomo.Client // for requests frame by frame
	client   *Client
}

func newSystem(t testing.TB, change func(*Options)) *system {
	t.Helper()
	y := &system{t: t, endpoint: startBroker(t, "tcp://127.0.0.1:0")}
	y.server = y.serve(change)
	var err error
	if y.frames, err = majordomo.NewClient(majordomo.ClientOptions{Broker: y.endpoint}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { y.frames.Close() })
	y.client = newClient(t, y.endpoint)
	return y
}

func startBroker(t testing.TB, endpoint string) string {
	t.Helper()
	b, err := majordomo.NewBroker(majordomo.BrokerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	bound, err := b.Bind(context.Background(), endpoint)
	if err != nil {
		t.Fatal(err)
	}
	return bound
}

func newClient(t testing.TB, endpoint string) *Client {
	t.Helper()
	c, err := NewClient(ClientOptions{Broker: endpoint, PollMin: time.Millisecond, PollMax: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// testOptions are options of a server with short times.
func testOptions(endpoint, dir string) Options {
	return Options{Broker: endpoint, Dir: dir, Concurrency: 2, RetryMin: 5 * time.Millisecond, RetryMax: 50 * time.Millisecond}
}

// serve starts a server.
func (y *system) serve(change func(*Options)) *Server {
	y.t.Helper()
	o := testOptions(y.endpoint, y.t.TempDir())
	if change != nil {
		change(&o)
	}
	s, err := New(o)
	if err != nil {
		y.t.Fatal(err)
	}
	y.t.Cleanup(func() { s.Close() })
	return s
}

// work starts a worker.
func (y *system) work(service string, h majordomo.Handler) *majordomo.Worker {
	y.t.Helper()
	w, err := majordomo.NewWorker(service, h, majordomo.WorkerOptions{Broker: y.endpoint, Concurrency: 2})
	if err != nil {
		y.t.Fatal(err)
	}
	y.t.Cleanup(func() { w.Close() })
	return w
}

// ask sends a request of the given frames and returns the frames of the answer.
func (y *system) ask(service string, body ...string) [][]byte {
	y.t.Helper()
	answer, err := y.frames.Request(testContext(y.t), service, frames(body...)...)
	if err != nil {
		y.t.Fatalf("%s: %v", service, err)
	}
	return answer
}

// want compares an answer.
func (y *system) want(answer [][]byte, want ...string) {
	y.t.Helper()
	if !same(answer, frames(want...)) {
		y.t.Fatalf("answer %q, want %q", answer, want)
	}
}

// submit stores a request and returns its UUID as received.
func (y *system) submit(service string, body ...string) string {
	y.t.Helper()
	answer := y.ask("titanic.request", append([]string{service}, body...)...)
	if len(answer) != 2 || string(answer[0]) != "200" {
		y.t.Fatalf("answer %q", answer)
	}
	return string(answer[1])
}

// reply waits for an answer other than 300.
func (y *system) reply(id string) (answer [][]byte) {
	y.t.Helper()
	eventually(y.t, "an answer other than 300", func() bool {
		answer = y.ask("titanic.reply", id)
		return string(answer[0]) != "300"
	})
	return answer
}

// TestThreeServices: the server has the three services.
func TestThreeServices(t *testing.T) {
	t.Parallel()
	y := newSystem(t, nil)
	for _, service := range []string{"titanic.request", "titanic.reply", "titanic.close"} {
		eventually(t, service+" is there", func() bool {
			ok, err := y.frames.Available(testContext(t), service)
			return err == nil && ok
		})
	}
}

// TestRequestBody: a request is a printable name of a service and one or more frames,
// which the worker gets unchanged: any bytes, and empty frames. Other requests are
// answered 400 and not stored.
func TestRequestBody(t *testing.T) {
	t.Parallel()
	y := newSystem(t, func(o *Options) { o.MaxRequestBytes = 100_000 })
	y.work("été 1", func(_ context.Context, body [][]byte) ([][]byte, error) { return body, nil })
	body := []string{"", "\x00\xff binary", "", strings.Repeat("x", 70_000)}
	y.want(y.reply(y.submit("été 1", body...)), append([]string{"200"}, body...)...)
	for _, bad := range [][]string{
		{"echo"},
		{"", "x"},
		{"new\nline", "x"},
		{"nul\x00", "x"},
		{"\xff\xfe", "x"},
		{strings.Repeat("x", 256), "x"},
		{"echo", strings.Repeat("x", 100_001)},
		append([]string{"echo"}, make([]string, MaxFrames+1)...),
	} {
		y.want(y.ask("titanic.request", bad...), "400")
	}
	if st := y.server.Status(); st.Stored != 1 || st.Invalid != 8 {
		t.Errorf("%+v", st)
	}
}

// TestAcceptedRequestIsStored: the answer to a request is 200 and a UUID, and the request is then stored:
// a server that is started with a copy of the file has it.
func TestAcceptedRequestIsStored(t *testing.T) {
	t.Parallel()
	y := newSystem(t, nil)
	for i := range 5 {
		id, err := ParseUUID(y.submit("nobody's", number(i)))
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		copyStore(t, y.server.options.Dir, dir)
		s := testStore(t, dir, nil)
		h, body, err := s.read(entryOf(t, s, id))
		if err != nil || h.service != "nobody's" || !same(body, frames(number(i))) {
			t.Errorf("%+v %q %v", h, body, err)
		}
	}
}

// TestAnswersAreCodes: each of the three services always answers one of the four codes,
// as three digits without text.
func TestAnswersAreCodes(t *testing.T) {
	t.Parallel()
	y := newSystem(t, func(o *Options) { o.MaxRequests = 1 })
	id := y.submit("nobody's", "x") // and now the store is full
	codes := map[string]bool{}
	for _, service := range []string{"titanic.request", "titanic.reply", "titanic.close"} {
		for _, body := range [][]string{nil, {""}, {"x"}, {"echo", "x"}, {id}, {id, id}, {newUUID().String()}, {"../" + id}} {
			answer := y.ask(service, body...)
			code := string(answer[0])
			if code != "200" && code != "300" && code != "400" && code != "500" {
				t.Errorf("%s %q: %q", service, body, answer)
			}
			codes[code] = true
		}
	}
	if len(codes) != 4 {
		t.Errorf("only %v came up", codes)
	}
}

// TestUUIDForm: a UUID is 32 hexadecimal characters in upper or lower case, and no two are
// equal. Paths, shorter or longer text, and other letters are not accepted.
func TestUUIDForm(t *testing.T) {
	t.Parallel()
	y := newSystem(t, nil)
	form := regexp.MustCompile(`^[0-9a-f]{32}$`)
	seen := map[string]bool{}
	var id string
	for range 20 {
		id = y.submit("nobody's", "x")
		if !form.MatchString(id) || seen[id] {
			t.Errorf("UUID %q", id)
		}
		seen[id] = true
	}
	y.want(y.ask("titanic.reply", strings.ToUpper(id)), "300")
	for _, bad := range []string{"", id[1:], id + "0", id + "\n", " " + id[1:], "g" + id[1:], "Z" + id[1:], "../" + id[3:], id[:30] + "/x", "{" + id[2:] + "}", strings.Repeat("\x00", 32), strings.Repeat("٣", 16)} {
		y.want(y.ask("titanic.reply", bad), "400")
		y.want(y.ask("titanic.close", bad), "400")
		if _, err := ParseUUID(bad); !errors.Is(err, ErrUUID) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	y.want(y.ask("titanic.close", strings.ToUpper(id)), "200")
	y.want(y.ask("titanic.reply", id), "400")
}

// TestReplyBody: titanic.reply accepts one frame, a UUID; other requests are answered
// 400.
func TestReplyBody(t *testing.T) {
	t.Parallel()
	y := newSystem(t, nil)
	id := y.submit("nobody's", "x")
	y.want(y.ask("titanic.reply", id), "300")
	y.want(y.ask("titanic.reply", id, ""), "400")
	y.want(y.ask("titanic.reply", id, id), "400")
	y.want(y.ask("titanic.reply"), "400")
}

// TestReplyIsUnchanged: titanic.reply answers 200 and the unchanged frames of the worker's reply.
func TestReplyIsUnchanged(t *testing.T) {
	t.Parallel()
	y := newSystem(t, nil)
	y.work("make", func(context.Context, [][]byte) ([][]byte, error) { return frames("", "\x00\x01", "", "end"), nil })
	y.want(y.reply(y.submit("make", "x")), "200", "", "\x00\x01", "", "end")
}

// TestReplyCanBeFetchedAgain: a reply can be fetched repeatedly and is always the same; the request
// is executed once.
func TestReplyCanBeFetchedAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	y := newSystem(t, func(o *Options) { o.Dir = dir })
	var n atomic.Int64
	y.work("count", func(context.Context, [][]byte) ([][]byte, error) { return frames(fmt.Sprint(n.Add(1))), nil })
	id := y.submit("count", "x")
	y.want(y.reply(id), "200", "1")
	for range 5 {
		y.want(y.ask("titanic.reply", id), "200", "1")
	}
	if err := y.server.Close(); err != nil {
		t.Fatal(err)
	}
	y.serve(func(o *Options) { o.Dir = dir })
	y.want(y.ask("titanic.reply", id), "200", "1")
}

// TestCloseDeletes: titanic.close deletes the request and the reply permanently.
func TestCloseDeletes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	y := newSystem(t, func(o *Options) { o.Dir = dir })
	var executed atomic.Int64
	pending, done := y.submit("late", "x"), y.submit("echo", "x")
	y.work("echo", func(_ context.Context, body [][]byte) ([][]byte, error) { return body, nil })
	y.want(y.reply(done), "200", "x")
	y.want(y.ask("titanic.close", pending), "200")
	y.want(y.ask("titanic.close", done), "200")
	y.work("late", func(_ context.Context, body [][]byte) ([][]byte, error) {
		executed.Add(1)
		return body, nil
	})
	for range 2 {
		y.want(y.ask("titanic.reply", pending), "400")
		y.want(y.ask("titanic.reply", done), "400")
		y.want(y.reply(y.submit("late", "other")), "200", "other")
		if err := y.server.Close(); err != nil {
			t.Fatal(err)
		}
		y.server = y.serve(func(o *Options) { o.Dir = dir })
	}
	if n := executed.Load(); n != 2 {
		t.Errorf("%d requests were executed, want the two that were not closed", n)
	}
}

// TestCloseAnswer: titanic.close answers one frame.
func TestCloseAnswer(t *testing.T) {
	t.Parallel()
	y := newSystem(t, nil)
	for _, body := range [][]string{{y.submit("nobody's", "x")}, {newUUID().String()}, {"x"}, {"x", "y"}, nil} {
		if answer := y.ask("titanic.close", body...); len(answer) != 1 {
			t.Errorf("%q: answer %q", body, answer)
		}
	}
}

// TestCloseUnknown: closing an unknown or deleted request is answered 200.
func TestCloseUnknown(t *testing.T) {
	t.Parallel()
	y := newSystem(t, nil)
	y.want(y.ask("titanic.close", newUUID().String()), "200")
	id := y.submit("nobody's", "x")
	for range 3 {
		y.want(y.ask("titanic.close", id), "200")
	}
}

// TestRequestsWaitForTheirService: requests wait for their service, are executed when it has a worker,
// and go to another worker if one is lost.
func TestRequestsWaitForTheirService(t *testing.T) {
	t.Parallel()
	y := newSystem(t, nil)
	id := y.submit("late", "x")
	y.want(y.ask("titanic.reply", id), "300")
	begun := make(chan struct{}, 1)
	first := y.work("late", func(ctx context.Context, _ [][]byte) ([][]byte, error) {
		begun <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	})
	<-begun
	y.want(y.ask("titanic.reply", id), "300")
	go first.Close()
	y.work("late", func(_ context.Context, body [][]byte) ([][]byte, error) { return body, nil })
	y.want(y.reply(id), "200", "x")
}

// TestTextAfterTheCodeIsIgnored: a client ignores text after the code, and rejects codes that RFC 9 does not
// have.
func TestTextAfterTheCodeIsIgnored(t *testing.T) {
	t.Parallel()
	endpoint := startBroker(t, "tcp://127.0.0.1:0")
	y := &system{t: t, endpoint: endpoint}
	id := newUUID()
	var mu atomic.Pointer[[][]byte]
	for _, service := range []string{"titanic.request", "titanic.reply", "titanic.close"} {
		y.work(service, func(context.Context, [][]byte) ([][]byte, error) { return *mu.Load(), nil })
	}
	c := newClient(t, endpoint)
	ctx := testContext(t)
	for _, test := range []struct {
		status string
		want   error
	}{
		{"200", nil}, {"200 OK", nil}, {"200 500 PENDING", nil}, {"200 ", nil},
		{"300", ErrPending}, {"300 PENDING", ErrPending},
		{"400", ErrUnknown}, {"400 200 OK", ErrUnknown},
		{"500", ErrServer}, {"500 no\xff", ErrServer},
		{"201", ErrProtocol}, {"2000", ErrProtocol}, {"200OK", ErrProtocol}, {"20", ErrProtocol}, {"", ErrProtocol},
	} {
		answer := frames(test.status, id.String())
		mu.Store(&answer)
		got, err := c.Fetch(ctx, id)
		if !errors.Is(err, test.want) || err == nil && !same(got, answer[1:]) {
			t.Errorf("fetch with %q: %q %v", test.status, got, err)
		}
		want := test.want
		if want == ErrUnknown {
			want = ErrInvalid
		}
		if got, err := c.Submit(ctx, "echo", nil); !errors.Is(err, want) || err == nil && got != id {
			t.Errorf("submit with %q: %v %v", test.status, got, err)
		}
		if err := c.Discard(ctx, id); !errors.Is(err, test.want) {
			t.Errorf("discard with %q: %v", test.status, err)
		}
	}
	for _, answer := range [][][]byte{frames("200"), frames("200", "x"), frames("200", id.String()[1:])} {
		mu.Store(&answer)
		if _, err := c.Submit(ctx, "echo", nil); !errors.Is(err, ErrProtocol) {
			t.Errorf("submit with %q: %v", answer, err)
		}
	}
}

// TestMeaningOfCodes: 200 means that the request was executed; 300 that there is no reply yet;
// 400 that the UUID is unknown or invalid; 500 that the server cannot handle the request,
// or that the worker replied with an error.
func TestMeaningOfCodes(t *testing.T) {
	t.Parallel()
	y := newSystem(t, func(o *Options) { o.MaxRequests = 3 })
	y.work("refuse", func(context.Context, [][]byte) ([][]byte, error) {
		return nil, &majordomo.Error{Code: 418, Text: "no coffee here"}
	})
	y.work("echo", func(_ context.Context, body [][]byte) ([][]byte, error) { return body, nil })
	refused, pending, done := y.submit("refuse", "x"), y.submit("nobody's", "x"), y.submit("echo", "x")
	y.want(y.reply(done), "200", "x")
	y.want(y.ask("titanic.reply", pending), "300")
	y.want(y.reply(refused), "500", "418", "no coffee here")
	y.want(y.ask("titanic.reply", newUUID().String()), "400")
	y.want(y.ask("titanic.reply", "x"), "400")
	y.want(y.ask("titanic.request", "echo", "x"), "500") // the store is full

	id, err := ParseUUID(refused)
	if err != nil {
		t.Fatal(err)
	}
	_, err = y.client.Fetch(testContext(t), id)
	if e, ok := errors.AsType[*RefusedError](err); !ok || e.Code != 418 || e.Text != "no coffee here" {
		t.Error(err)
	}
	y.want(y.ask("titanic.close", refused), "200")
	if st := y.server.Status(); st.Refused != 1 || st.Attempts != 2 {
		t.Errorf("a refused request is not tried again: %+v", st)
	}
}

// TestClient: submit, wait, fetch, discard.
func TestClient(t *testing.T) {
	t.Parallel()
	y := newSystem(t, nil)
	ctx := testContext(t)
	c := y.client
	id, err := c.Submit(ctx, "echo", []byte("hello"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Fetch(ctx, id); !errors.Is(err, ErrPending) {
		t.Error(err)
	}
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if _, err := c.Wait(short, id); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	y.work("echo", func(_ context.Context, body [][]byte) ([][]byte, error) { return body, nil })
	if reply, err := c.Wait(ctx, id); err != nil || !same(reply, frames("hello", "")) {
		t.Error(reply, err)
	}
	for range 2 {
		if err := c.Discard(ctx, id); err != nil {
			t.Error(err)
		}
	}
	if _, err := c.Wait(ctx, id); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
	for _, service := range []string{"", "two\nlines", strings.Repeat("x", 256)} {
		if _, err := c.Submit(ctx, service, nil); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", service, err)
		}
	}
	if _, err := c.Submit(ctx, "echo"); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if _, err := c.Fetch(ctx, id); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

// TestBrokerRestart: a broker is killed and restarted; the server and the client continue,
// and every request gets its reply.
func TestBrokerRestart(t *testing.T) {
	t.Parallel()
	b, err := majordomo.NewBroker(majordomo.BrokerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	y := &system{t: t}
	if y.endpoint, err = b.Bind(context.Background(), "tcp://"+loopback.Own()+":*"); err != nil {
		t.Fatal(err)
	}
	y.server = y.serve(nil)
	c := newClient(t, y.endpoint)
	begun := make(chan struct{}, 100)
	var wait atomic.Bool
	wait.Store(true)
	y.work("echo", func(ctx context.Context, body [][]byte) ([][]byte, error) {
		if wait.Load() {
			begun <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return body, nil
	})
	ctx := testContext(t)
	var ids []UUID
	for i := range 10 {
		id, err := c.Submit(ctx, "echo", []byte(number(i)))
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	<-begun // requests are in flight
	wait.Store(false)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	startBroker(t, y.endpoint)
	for i, id := range ids {
		reply, err := c.Wait(ctx, id)
		if err != nil || !same(reply, frames(number(i))) {
			t.Errorf("%q %v", reply, err)
		}
	}
}

// copyStore copies the file of a store that is in use. The copy may or may not contain a
// transaction in progress.
func copyStore(t testing.TB, from, to string) {
	t.Helper()
	content, err := os.ReadFile(databaseOf(from))
	if err == nil {
		err = os.WriteFile(databaseOf(to), content, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
