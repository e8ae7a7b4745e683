package submit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"clustermap/chp/internal/ledger"
	"clustermap/chp/internal/subtree"
	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
	"clustermap/internal/testenv"
)

// fakeServer is a session and an uplink that notes what is sent.
type fakeServer struct {
	opened int
	known  bool
	tried  int // calls of Send that did not wait
	sent   []kvmsg.Record
	asked  []int // how many were sent before each question
	failed error
	over   chan struct{}

	sending  func()        // called by Send
	deaf     chan struct{} // requests wait for it
	mu       sync.Mutex
	requests int
	wire     []byte // of requests
}

func (f *fakeServer) Open() (Uplink, error) {
	f.opened++
	return f, nil
}
func (f *fakeServer) Fail(err error)        { f.failed = err }
func (f *fakeServer) Over() <-chan struct{} { return f.over }
func (f *fakeServer) Ready() error          { return nil }
func (f *fakeServer) Known() bool           { return f.known }
func (f *fakeServer) GiveUp()               {}

func (f *fakeServer) Leave(done <-chan struct{}) { <-done }

func (f *fakeServer) Request(_ bool, wire []byte, messages int) error {
	if f.deaf != nil {
		<-f.deaf
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests += messages
	f.wire = append(f.wire, wire...)
	return nil
}

func (f *fakeServer) Send(wait bool, wire []byte, messages int, _ *buf.Chunk, ask bool) error {
	if !wait {
		f.tried++
	}
	if f.sending != nil {
		f.sending()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for rest := kvmsg.Record(append([]byte(nil), wire...)); len(rest) > 0; rest = rest[rest.Size():] {
		f.sent = append(f.sent, rest[:rest.Size()])
	}
	if ask {
		f.asked = append(f.asked, len(f.sent))
	}
	return nil
}

// questions returns the number of questions.
func (f *fakeServer) questions() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.asked)
}

func newWriter() *Writer {
	return New(Options{
		SendQueue: 1 << 20, MaxValue: 1 << 20, Subtrees: subtree.New(nil),
		Sequence: func() int64 { return 0 },
		Wait:     func(context.Context) error { return context.DeadlineExceeded },
	})
}

// A session that becomes ACTIVE while Close waits for the writer gets no updates: Close
// bounds its wait only for the session that it found.
func TestNoServerAfterClose(t *testing.T) {
	t.Parallel()
	w := newWriter()
	w.add(1, 1)
	w.Close()
	w.Begin(&Server{Uplink: &fakeServer{}})
	defer w.clear()
	if s := w.next(); s != nil {
		t.Error("a closed writer would send to a new session")
	}
}

// A server of another implementation gets no numbers, and a time to live of 0.
func TestUpdatesForServersOfOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, w := &fakeServer{}, newWriter()
		w.Begin(&Server{Session: f})
		for _, value := range []string{"v", ""} {
			if err := w.Put(t.Context(), []byte("/k"), []byte(value), nil, nil); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if len(f.sent) != 2 || f.sent[0].Seq() != 0 || string(f.sent[0].Props()) != "ttl=0\n" || len(f.sent[1].Props()) != 0 {
			t.Errorf("sent %q", f.sent)
		}
		w.Close()
	})
}

// The goroutine that puts an update which comes alone sends it itself, and leaves those that
// follow to the writer's.
func TestUpdateThatComesAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, w := &fakeServer{known: true}, newWriter()
		w.Begin(&Server{Session: f, Ours: true})
		put := func() {
			t.Helper()
			if err := w.Put(t.Context(), []byte("/k"), []byte("v"), nil, nil); err != nil {
				t.Fatal(err)
			}
		}
		w.alone.Over() // the bubble's clock is not that of before
		put()          // opens the uplink, and starts run
		synctest.Wait()
		time.Sleep(time.Second)
		put()
		if f.tried != 1 || len(f.sent) != 2 || !w.asleep {
			t.Errorf("alone: %d sent, %d by the caller", len(f.sent), f.tried)
		}
		put() // at once
		if f.tried != 1 {
			t.Error("the second of two was sent by the caller")
		}
		synctest.Wait()
		if len(f.sent) != 3 {
			t.Errorf("%d sent", len(f.sent))
		}
		f.known = false // the caller would have to wait
		time.Sleep(time.Second)
		put()
		synctest.Wait()
		if f.tried != 1 || len(f.sent) != 4 {
			t.Errorf("not ready: %d sent, %d by the caller", len(f.sent), f.tried)
		}
		w.Close()
	})
}

// TestUpdateThatIsWaitedForIsSentByItsCaller: however soon it comes, unless others wait, too.
func TestUpdateThatIsWaitedForIsSentByItsCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, w := &fakeServer{known: true}, newWriter()
		w.Begin(&Server{Session: f, Ours: true, Reply: &ledger.Reply{Runs: []ledger.Run{}}})
		put := func(wait *ledger.Wait, tried int) {
			t.Helper()
			if err := w.Put(t.Context(), []byte("/k"), []byte("v"), nil, wait); err != nil {
				t.Fatal(err)
			}
			if f.tried != tried {
				t.Errorf("update %d: %d were sent by their callers, want %d", len(f.sent), f.tried, tried)
			}
			synctest.Wait() // run sends the others
		}
		settle := func() {
			_, n := w.account.Open()
			w.Reply(f, &ledger.Reply{Known: true, Counter: n, Runs: []ledger.Run{{Last: n}}})
		}
		put(nil, 0) // opens the uplink, and starts run
		settle()
		for i := range 3 {
			put(ledger.NewWait(), i+1)
			settle()
		}
		put(nil, 3)
		put(ledger.NewWait(), 4)
		put(ledger.NewWait(), 4)
		settle()
		put(ledger.NewWait(), 5)
		if len(f.sent) != 8 {
			t.Errorf("%d were sent, want 8", len(f.sent))
		}
		w.Close()
	})
}

// A writer asks the server for its progress when something waits for that, or to free memory,
// and not for each update: a reply that nobody waits for takes both ends a system call, and the
// publisher a processor from those who do.
func TestWriterAsksOnlyForWhatIsWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, w := &fakeServer{known: true}, newWriter()
		w.Begin(&Server{Session: f, Ours: true, Reply: &ledger.Reply{Runs: []ledger.Run{}}})
		put := func(size int, wait *ledger.Wait) {
			t.Helper()
			if err := w.Put(t.Context(), []byte("/k"), make([]byte, size), nil, wait); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		asked := func(when string, at ...int) {
			t.Helper()
			synctest.Wait()
			if !slices.Equal(f.asked, at) {
				t.Errorf("%s: the writer asked behind updates %d, want %d", when, f.asked, at)
			}
		}
		put(1, nil)
		put(1, nil)
		asked("nothing waits")
		put(1, ledger.NewWait())
		asked("an update is waited for", 3)
		put(1, nil)
		flush := func() {
			t.Helper()
			if wait, err := w.Flush(); wait == nil || err != nil {
				t.Fatal(wait, err)
			}
		}
		flush()
		asked("a flush", 3, 4)
		flush()
		asked("another for the same", 3, 4)
		_, last := w.account.Open()
		w.Reply(f, &ledger.Reply{Known: true, Counter: last, Runs: []ledger.Run{{Last: last}}})
		put(1, nil)
		asked("after a reply", 3, 4)
		put(stageSize, nil)
		asked("more than a stage is kept", 3, 4, 6)
		put(1, nil)
		asked("its reply has not come yet", 3, 4, 6)
		w.End()
		w.Begin(&Server{Session: f, Uplink: f, Ours: true, Reply: &ledger.Reply{Known: true, Counter: 5, Runs: []ledger.Run{}}})
		asked("a new session sends two again", 3, 4, 6, 9)
		w.Close()
	})
}

// A writer asks for the room that an update needs, although nothing waits for those that are
// kept; and for those that were sent between a question and its reply, when this has come.
func TestWriterAsksForRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, w := &fakeServer{known: true}, newWriter()
		w.Begin(&Server{Session: f, Ours: true, Reply: &ledger.Reply{Runs: []ledger.Run{}}})
		put := func(size int) {
			go func() {
				if err := w.Put(t.Context(), []byte("/k"), make([]byte, size), nil, nil); err != nil {
					t.Error(err)
				}
			}()
			synctest.Wait()
		}
		reply := func(n uint64) {
			w.Reply(f, &ledger.Reply{Known: true, Counter: n, Runs: []ledger.Run{{Last: n}}})
			synctest.Wait()
		}
		asked := func(when string, at ...int) {
			t.Helper()
			if !slices.Equal(f.asked, at) {
				t.Errorf("%s: the writer asked behind updates %d, want %d", when, f.asked, at)
			}
		}
		put(1)
		asked("nothing waits")
		put(w.opts.SendQueue)
		asked("an update waits for all room", 1)
		reply(1)
		asked("it was sent, and keeps much", 1, 2)
		reply(2)
		put(stageSize)
		put(stageSize)
		asked("two are sent before a reply", 1, 2, 3)
		reply(3)
		asked("the second one keeps much", 1, 2, 3, 4)
		reply(4)
		if bytes, _ := w.Pending(); bytes > 0 {
			t.Errorf("%d bytes are kept", bytes)
		}
		w.Close()
	})
}

// A server that does not acknowledge is not asked: it would not understand.
func TestOnlyServersThatAcknowledgeAreAsked(t *testing.T) {
	t.Parallel()
	for _, s := range []*Server{{}, {Ours: true}, {Ours: true, Reply: &ledger.Reply{}}} {
		synctest.Test(t, func(t *testing.T) {
			f, w := &fakeServer{known: true}, newWriter()
			s.Session = f
			w.Begin(s)
			if err := w.Put(t.Context(), []byte("/k"), []byte("v"), nil, ledger.NewWait()); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Flush(); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if len(f.sent) != 1 || len(f.asked) > 0 {
				t.Errorf("%d sent, asked behind %d", len(f.sent), f.asked)
			}
			w.Close()
		})
	}
}

// Whatever comes between, every wait ends once the server has answered what it was asked: no
// question is missing. So do the waits of Put for room, and no more than a stage is kept then.
// Sessions end with any part of what was sent accepted, replies are lost with them, waits are
// given up, and some keys are outside of the client's subtrees.
func TestEveryWaitIsAskedFor(t *testing.T) {
	t.Parallel()
	for seed := range uint64(testenv.Rounds(3000)) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			var log strings.Builder
			w := newWriter()
			w.size, w.opts.SendQueue, w.opts.Subtrees = 16<<10, 64<<10, subtree.New([]string{"/in/"})
			w.opts.Wait = func(context.Context) error { time.Sleep(time.Second); return nil } // for the next session
			var waits []*ledger.Wait
			var putting atomic.Int64
			accepted := uint64(0)
			var f *fakeServer
			answered := 0
			begin := func() {
				f, answered = &fakeServer{known: true}, 0
				w.Begin(&Server{Session: f, Uplink: f, Ours: true, MaxValue: 1 << 20, Reply: &ledger.Reply{Known: true, Counter: accepted, Runs: []ledger.Run{}}})
				synctest.Wait()
			}
			arrived := func(n int) { // the first n updates of the session
				if n > 0 {
					accepted = max(accepted, uint64(f.sent[n-1].Seq()))
				}
			}
			answer := func() {
				arrived(f.asked[answered])
				answered++
				w.Reply(f, &ledger.Reply{Known: true, Counter: accepted, Runs: []ledger.Run{{Last: accepted}}})
				synctest.Wait()
			}
			begin()
			w.mu.Lock()
			_ = w.open()
			w.mu.Unlock()
			for range 1 + r.IntN(12) {
				op := r.IntN(6)
				fmt.Fprintf(&log, " %d", op)
				switch {
				case op < 2:
					var wait *ledger.Wait
					key := "/in/k"
					if op == 1 {
						wait = ledger.NewWait()
						waits = append(waits, wait)
					} else if r.IntN(3) == 0 {
						key = "/out/k"
					}
					value := make([]byte, 1<<r.IntN(18))
					putting.Add(1)
					go func() {
						defer putting.Add(-1)
						if err := w.Put(t.Context(), []byte(key), value, nil, wait); err != nil {
							t.Error(err)
						}
					}()
				case op == 2:
					_, err := w.Flush()
					testenv.Must(t, err)
				case op == 3:
					if synctest.Wait(); answered < f.questions() {
						answer()
					}
				case op == 4 && len(waits) > 0:
					w.GiveUp(waits[r.IntN(len(waits))])
				case op == 5:
					w.End()
					arrived(r.IntN(len(f.sent) + 1))
					begin()
				}
				if r.IntN(2) == 0 {
					synctest.Wait()
				}
			}
			for range 2 { // also for those that have waited for a session
				synctest.Wait()
				for answered < f.questions() {
					answer()
				}
				time.Sleep(time.Minute)
			}
			if bytes, _ := w.Pending(); bytes > w.size || putting.Load() > 0 {
				t.Errorf("seed %d, after%s: %d bytes are kept, and %d updates wait for room", seed, &log, bytes, putting.Load())
			}
			if n := w.account.Waits(); n > 0 {
				t.Errorf("seed %d, after%s: %d waits for which the server was not asked", seed, &log, n)
			}
			w.Close()
		})
	}
}
