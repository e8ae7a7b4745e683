package submit

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"clustermap/chp/internal/ledger"
	"clustermap/chp/internal/txn"
	"clustermap/internal/closed"
	"clustermap/internal/kvmsg"
)

// judged returns answers with the sequence 10.
func judged(numbers ...uint64) (all []byte) {
	for _, n := range numbers {
		all = (&txn.Answer{Number: n, Sequence: 10}).Append(all)
	}
	return all
}

// judge begins a session with a server that judges requests.
func (f *fakeServer) judge(w *Writer, mapID byte) {
	reply := new(ledger.Clients).Reply(ledger.ID{}, [ledger.MapIDSize]byte{mapID})
	w.Begin(&Server{Session: f, Uplink: f, Ours: true, Transactions: true, Reply: &reply})
}

// newRequest returns a request in a group of its own.
func newRequest(shown bool) *Request {
	wire := (&txn.Request{Updates: kvmsg.AppendRecord(nil, []byte("key"), 0, make([]byte, kvmsg.UUIDSize), nil, make([]byte, 100))}).Append(nil)
	g := &Group{Requests: []Request{{Wire: wire, Shown: shown}}}
	g.Requests[0].group = g
	return &g.Requests[0]
}

// ask starts requests, which the session takes, and returns them.
func ask(t *testing.T, w *Writer, n int, shown bool) (all []*Request) {
	t.Helper()
	for range n {
		r := newRequest(shown)
		if err := w.Requests.Start(t.Context(), r.group); err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	synctest.Wait()
	return all
}

// result returns the error of a request that has ended.
func result(t *testing.T, r *Request) error {
	t.Helper()
	select {
	case <-r.group.Done:
	default:
		t.Fatal("a request has not ended")
	}
	_, err := r.Result()
	return err
}

// A server answers what it refuses before what came before and is not committed. Whatever ends
// then, each request ends once.
func TestAnswersInAnyOrder(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(w *Writer) error{
		"close":       func(w *Writer) error { w.Finish(); return closed.CHP },
		"no server":   func(w *Writer) error { w.Fail(errTooLarge); return ledger.ErrUncertain },
		"another map": func(w *Writer) error { w.End(); new(fakeServer).judge(w, 2); return ledger.ErrUncertain },
		"same map": func(w *Writer) error {
			w.End()
			f := new(fakeServer)
			f.judge(w, 1)
			synctest.Wait()
			if f.requests != 2 {
				return errors.New("what was answered is sent again")
			}
			w.Requests.Answered(f, judged(3, 1, 1, 2))
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, w := new(fakeServer), newWriter()
				f.judge(w, 1)
				some := ask(t, w, 3, false)
				w.Requests.Answered(f, judged(2))
				want := end(w)
				for i, r := range some {
					if err := result(t, r); i == 1 && err != nil || i != 1 && err != want {
						t.Error(i, err)
					}
				}
				if w.Requests.bytes != 0 || w.Requests.queue.Len() != 0 {
					t.Error(w.Requests.bytes, "bytes of", w.Requests.queue.Len(), "requests are left")
				}
				w.Finish()
				w.Close()
				w.Requests.Wait()
			})
		})
	}
}

// A request may be given up when it has ended, when it waits for the replica, and when it was
// not sent: the next one is sent in any case.
func TestRequestIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, w := &fakeServer{deaf: make(chan struct{})}, newWriter()
		f.judge(w, 1)
		unsent := append(ask(t, w, 1, true), ask(t, w, 2, true)...) // the first one is being sent
		w.Requests.Forget(unsent[1].group, context.Canceled)
		close(f.deaf)
		synctest.Wait()
		if f.requests != 2 {
			t.Error(f.requests, "requests sent")
		}
		w.Requests.Answered(f, judged(1, 3))
		for _, r := range unsent { // the replica has not come as far as 10
			w.Requests.Forget(r.group, context.Canceled)
		}
		if n := len(w.Requests.await); n > 0 || w.Requests.awaits.Load() {
			t.Error(n, "wait for the replica")
		}
		failed := &fakeServer{deaf: make(chan struct{})}
		w.End()
		failed.judge(w, 1)
		for _, r := range ask(t, w, 2, true) {
			w.Fail(errTooLarge)
			w.Requests.Forget(r.group, context.Canceled)
		}
		close(failed.deaf)
		w.End()
		f = new(fakeServer)
		f.judge(w, 1)
		if r := ask(t, w, 1, false)[0]; f.requests != 1 || r.number != 6 || w.Requests.unsent != 0 {
			t.Error(f.requests, "requests sent, ", w.Requests.unsent, "not")
		}
		w.Finish()
		w.Close()
		w.Requests.Wait()
	})
}

// A request that was answered does not wait for a replica of another map, whose sequences may
// be lower.
func TestAnswerOfAFormerMap(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*Writer){
		"another map": func(w *Writer) { new(fakeServer).judge(w, 2) },
		"no server":   func(w *Writer) { w.Fail(errTooLarge) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, w := new(fakeServer), newWriter()
				f.judge(w, 1)
				r := ask(t, w, 1, true)[0]
				w.Requests.Answered(f, judged(1))
				w.End()
				end(w)
				if err := result(t, r); err != nil {
					t.Error(err)
				}
				w.Finish()
				w.Close()
				w.Requests.Wait()
			})
		})
	}
}

// group starts requests in one group, which the session takes, and returns it.
func group(t *testing.T, w *Writer, n int) *Group {
	t.Helper()
	g := new(Group)
	for range n {
		g.Requests = append(g.Requests, Request{Wire: newRequest(true).Wire, Shown: true})
	}
	if err := w.Requests.Start(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return g
}

// A group does not wait for what a former replica would have had to show.
func TestGroupAcrossSessions(t *testing.T) {
	t.Parallel()
	for mapID, want := range map[byte]error{1: nil, 2: ledger.ErrUncertain} {
		synctest.Test(t, func(t *testing.T) {
			f, w := new(fakeServer), newWriter()
			f.judge(w, 1)
			g := group(t, w, 3)
			w.Requests.Answered(f, judged(1)) // with a sequence that the replica never has
			w.End()
			f = new(fakeServer)
			f.judge(w, mapID)
			synctest.Wait()
			if want == nil {
				if f.requests != 2 {
					t.Errorf("%d are sent again, want 2", f.requests)
				}
				w.Requests.Answered(f, (&txn.Answer{Number: 3}).Append((&txn.Answer{Number: 2}).Append(nil)))
			}
			g.Requests[0].group = g
			if err := result(t, &g.Requests[0]); err != nil {
				t.Error(err)
			}
			for i := range g.Requests {
				if _, err := g.Requests[i].Result(); i > 0 && err != want || g.Requests[i].Failed() != (err != nil) {
					t.Error(i, err)
				}
			}
			w.Finish()
			w.Close()
			w.Requests.Wait()
		})
	}
}

// What was sent of a group that was given up is sent again in a new session, whatever has become of
// the memory of the group.
func TestGroupIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, w := new(fakeServer), newWriter()
		f.judge(w, 1)
		g := group(t, w, 3)
		w.Requests.Answered(f, judged(2)) // and the group waits for the others
		w.Requests.Forget(g, context.Canceled)
		for i := range g.Requests {
			if _, err := g.Requests[i].Result(); (err == nil) != (i == 1) {
				t.Error(i, err)
			}
			clear(g.Requests[i].Wire)
		}
		clear(g.Requests)
		w.End()
		f = new(fakeServer)
		f.judge(w, 1)
		synctest.Wait()
		var numbers []uint64
		for wire := f.wire; len(wire) > 0; {
			size := txn.SizeOf(wire)
			var r txn.Request
			if size == 0 || !r.Parse(wire[:size]) || r.Flags&txn.FlagAgain == 0 {
				t.Fatalf("%q", wire)
			}
			numbers, wire = append(numbers, r.Number), wire[size:]
		}
		if !slices.Equal(numbers, []uint64{1, 3}) {
			t.Errorf("requests %d are sent again, want 1 and 3", numbers)
		}
		w.Requests.Answered(f, judged(1, 3))
		if w.Requests.bytes != 0 || w.Requests.queue.Len() != 0 {
			t.Error(w.Requests.bytes, "bytes of", w.Requests.queue.Len(), "requests are left")
		}
		w.Finish()
		w.Close()
		w.Requests.Wait()
	})
}

// A group that has ended may be started again, even if its answers came before those to earlier requests: what
// waited in its memory is sent once.
func TestGroupIsStartedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, w := new(fakeServer), newWriter()
		f.judge(w, 1)
		ask(t, w, 1, false)
		g := group(t, w, 2)
		w.Requests.Answered(f, (&txn.Answer{Number: 3, Status: txn.StatusRefused}).Append((&txn.Answer{Number: 2, Status: txn.StatusRefused}).Append(nil)))
		if err := result(t, &g.Requests[0]); err != nil {
			t.Error(err)
		}
		w.End()
		w.Requests.mu.Lock() // as if the session ended when the requests were queued, and before they were sent
		w.Requests.server = &Server{Session: f, Transactions: true}
		w.Requests.runs = true
		w.Requests.mu.Unlock()
		if err := w.Requests.Start(t.Context(), g); err != nil {
			t.Fatal(err)
		}
		w.Requests.mu.Lock()
		w.Requests.runs = false
		w.Requests.mu.Unlock()
		w.End()
		f = new(fakeServer)
		f.judge(w, 1)
		synctest.Wait()
		if f.requests != 3 {
			t.Errorf("%d requests are sent, want 3", f.requests)
		}
		w.Requests.Answered(f, judged(1, 4, 5))
		if w.Requests.bytes != 0 || w.Requests.queue.Len() != 0 {
			t.Error(w.Requests.bytes, "bytes of", w.Requests.queue.Len(), "requests are left")
		}
		w.Finish()
		w.Close()
		w.Requests.Wait()
	})
}

// A group ends also if its last request, which cannot be sent, ends after the others were answered.
func TestGroupWhoseLastRequestIsNotSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, w := new(fakeServer), newWriter()
		f.judge(w, 1)
		numbers := make([]uint64, atOnce)
		g := &Group{Requests: make([]Request, atOnce+1)}
		for i := range g.Requests {
			g.Requests[i] = Request{Wire: newRequest(true).Wire, Shown: true, Leases: i == atOnce}
		}
		for i := range numbers {
			numbers[i] = uint64(i + 1)
		}
		looks := 0
		w.opts.Sequence = func() int64 {
			if looks++; looks == 2 { // before the last one: all others are answered meanwhile
				synctest.Wait()
				w.Requests.Answered(f, judged(numbers...))
			}
			return 10
		}
		if err := w.Requests.Start(t.Context(), g); !errors.Is(err, ErrNoLeases) {
			t.Error(err)
		}
		if err := result(t, &g.Requests[0]); err != nil {
			t.Error(err)
		}
		w.Finish()
		w.Close()
		w.Requests.Wait()
	})
}

// Requests with leases do not go on to a server without: neither what was given up, nor what was not sent, which
// learns that there are none, whatever else that server does not know.
func TestLeasesAtTheNextServer(t *testing.T) {
	t.Parallel()
	for name, transactions := range map[string]bool{"no leases": true, "no transactions": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWriter()
				reply := new(ledger.Clients).Reply(ledger.ID{}, [ledger.MapIDSize]byte{1})
				f := &fakeServer{deaf: make(chan struct{})}
				w.Begin(&Server{Session: f, Uplink: f, Ours: true, Transactions: true, Leases: true, Reply: &reply})
				given, unsent := newRequest(true), newRequest(true)
				for _, r := range []*Request{given, unsent} { // the first one is being sent
					r.Leases = true
					if err := w.Requests.Start(t.Context(), r.group); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
				}
				w.Requests.Forget(given.group, context.Canceled)
				w.End()
				close(f.deaf)
				synctest.Wait()
				f = new(fakeServer)
				w.Begin(&Server{Session: f, Uplink: f, Ours: true, Transactions: transactions, Reply: &reply})
				synctest.Wait()
				if err := result(t, unsent); !errors.Is(err, ErrNoLeases) {
					t.Error(err)
				}
				if f.requests != 0 || w.Requests.bytes != 0 {
					t.Errorf("%d requests are sent, and %d bytes are left", f.requests, w.Requests.bytes)
				}
				w.Finish()
				w.Close()
				w.Requests.Wait()
			})
		})
	}
}

// A request waits for the updates before it, and not for all that follow.
func TestRequestBetweenUpdates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, w := new(fakeServer), newWriter()
		put := func() {
			if err := w.Put(context.Background(), []byte("k"), []byte("v"), nil, nil); err != nil {
				t.Error(err)
			}
		}
		f.judge(w, 1)
		w.Inspect(func(s *Server) { s.Uplink = nil })
		put() // opens it, and starts the writer
		synctest.Wait()
		const most = 1000
		puts := 0
		f.sending = func() {
			time.Sleep(time.Nanosecond) // until the request's goroutine has done what it can
			f.mu.Lock()
			asked := f.requests > 0
			f.mu.Unlock()
			if !asked && puts < most { // so there are always more
				puts++
				put()
			}
		}
		put()
		ask(t, w, 1, false)
		time.Sleep(time.Second)
		synctest.Wait()
		if puts == most || f.requests == 0 {
			t.Error("the request was not sent while there were updates")
		}
		w.Finish()
		w.Close()
		w.Requests.Wait()
	})
}

// Updates may open the uplink while a request is sent.
func TestRequestBesideTheFirstUpdate(t *testing.T) {
	t.Parallel()
	for range 100 {
		f, w := &fakeServer{known: true}, newWriter()
		f.judge(w, 1)
		w.Inspect(func(s *Server) { s.Uplink = nil })
		var both sync.WaitGroup
		both.Go(func() {
			if err := w.Put(context.Background(), []byte("k"), []byte("v"), nil, nil); err != nil {
				t.Error(err)
			}
		})
		both.Go(func() {
			for range 10 {
				err := w.Requests.Start(context.Background(), newRequest(false).group)
				if err != nil {
					t.Error(err)
				}
			}
		})
		both.Wait()
		w.Finish()
		w.Close()
		w.Requests.Wait()
	}
}
