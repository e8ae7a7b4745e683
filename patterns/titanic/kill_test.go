package titanic

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var (
	kills    = flag.Int("kills", 10, "number of kills of TestKill; each takes about 0.2 s")
	requests = flag.Int("requests", 400, "least number of acknowledged requests of TestKill")
)

// A ledger is TestKill's record of the requests.
type ledger struct {
	mu       sync.Mutex
	all      map[UUID]*record // acknowledged requests
	executed map[string]int   // number of executions, by the text of the request
	closing  map[string]bool  // texts of requests for which a close was sent
}

type record struct {
	text   string // of the request
	reply  string // the first one fetched
	closed bool   // a close was acknowledged
}

// check compares the store of a killed server with the ledger.
func (l *ledger) check(t *testing.T, dir string) (waiting, done int) {
	t.Helper()
	// The ledger as of the kill: workers may still execute requests of the server.
	s := testStore(t, dir, func(o *Options) { o.MaxRequests = 1 << 30 })
	defer s.close()
	agree(t, s)
	stored := map[string]bool{}
	for id, e := range s.index {
		_, body, err := s.read(e)
		if err != nil || len(body) != 1 {
			t.Fatalf("%v: %q %v", id, body, err)
		}
		text, _, _ := strings.Cut(string(body[0]), "#")
		stored[text] = true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, r := range l.all {
		e := s.index[id]
		switch {
		case r.closed && e != nil:
			t.Errorf("%s was closed and is stored", r.text)
		case r.closed:
		case e == nil && !l.closing[r.text]:
			t.Errorf("%s was acknowledged and is not stored", r.text)
		case e != nil && r.reply != "" && e.kind != kindReply:
			t.Errorf("%s was answered and has no reply", r.text)
		}
	}
	for text := range l.executed {
		if !stored[text] && !l.closing[text] {
			t.Errorf("%s was executed and is not stored", text)
		}
	}
	return s.waiting.Len(), s.done.Len()
}

// TestKill repeatedly kills a server with kill -9 at random instants while clients submit,
// fetch and close. After each kill the file has every request that was acknowledged and not
// closed, no closed request, and every request that a worker has got. In the end each has
// its reply, and fetched replies have not changed.
func TestKill(t *testing.T) {
	dir := t.TempDir()
	y := &system{t: t, endpoint: startBroker(t, "tcp://127.0.0.1:0")}
	ctx, cancel := context.WithCancel(testContext(t))
	l := &ledger{all: map[UUID]*record{}, executed: map[string]int{}, closing: map[string]bool{}}

	y.work("echo", func(_ context.Context, body [][]byte) ([][]byte, error) {
		text, _, _ := strings.Cut(string(body[0]), "#")
		l.mu.Lock()
		l.executed[text]++
		n := l.executed[text]
		l.mu.Unlock()
		return [][]byte{fmt.Appendf(nil, "%s#%d", text, n)}, nil
	})

	var stop atomic.Bool
	var number, submitted, failed atomic.Int64
	var submitters sync.WaitGroup
	defer submitters.Wait()
	defer cancel()
	for range 8 {
		c := newClient(t, y.endpoint)
		submitters.Go(func() {
			for !stop.Load() || submitted.Load() < int64(*requests) {
				// A failed attempt may have been stored, so each has its own text.
				text := fmt.Sprint("request ", number.Add(1))
				id, err := c.Submit(ctx, "echo", []byte(text+"#"+strings.Repeat("x", rand.IntN(2000))))
				if err != nil {
					switch ctx.Err() {
					case context.DeadlineExceeded:
						t.Error("the system stands still:", err)
						return
					case context.Canceled: // the test has failed
						return
					}
					failed.Add(1) // MaxDeliveries workers were lost
					continue
				}
				submitted.Add(1)
				r := &record{text: text}
				l.mu.Lock()
				l.all[id] = r
				l.mu.Unlock()
				switch rand.IntN(4) {
				case 0: // close it in any state
					l.mu.Lock()
					l.closing[text] = true
					l.mu.Unlock()
					if err := c.Discard(ctx, id); err == nil {
						l.mu.Lock()
						r.closed = true
						l.mu.Unlock()
					}
				case 1:
					reply, err := c.Fetch(ctx, id)
					if err == nil {
						l.mu.Lock()
						r.reply = string(reply[0])
						l.mu.Unlock()
					}
				}
			}
		})
	}

	var mid int
	for range *kills {
		p := startProcess(t, childOptions{Broker: y.endpoint, Dir: dir, Concurrency: 8})
		if rand.IntN(4) > 0 {
			<-p.ready
			before := submitted.Load() + int64(rand.IntN(2**requests / *kills))
			for end := time.Now().Add(time.Duration(rand.IntN(300)) * time.Millisecond); submitted.Load() < before && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
		}
		time.Sleep(time.Duration(rand.IntN(30_000)) * time.Microsecond)
		p.Kill()
		waiting, _ := l.check(t, dir)
		if waiting > 0 {
			mid++
		}
		if t.Failed() {
			return
		}
	}
	// Another one, which is not killed.
	startProcess(t, childOptions{Broker: y.endpoint, Dir: dir, Concurrency: 8})
	stop.Store(true)
	submitters.Wait()
	c := newClient(t, y.endpoint)
	repeated, open := 0, 0
	for id, r := range l.all {
		reply, err := c.Wait(ctx, id)
		switch {
		case r.closed:
			if err != ErrUnknown {
				t.Errorf("%s was closed: %q %v", r.text, reply, err)
			}
			continue
		case l.closing[r.text] && err == ErrUnknown:
			continue
		case err != nil:
			t.Errorf("%s: %v", r.text, err)
			continue
		}
		open++
		text, n, _ := strings.Cut(string(reply[0]), "#")
		if text != r.text || r.reply != "" && string(reply[0]) != r.reply {
			t.Errorf("%s has the reply %q, and had %q", r.text, reply[0], r.reply)
		}
		if n != "1" {
			repeated++
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	more := 0
	for _, n := range l.executed {
		if n > 1 {
			more++
		}
	}
	t.Logf("%d kills, of which %d left requests that waited; %d requests acknowledged, %d submissions failed; %d replies fetched in the end; %d requests executed more than once, %d replies of a later execution",
		*kills, mid, len(l.all), failed.Load(), open, more, repeated)
}
