package queue

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"clustermap/zmtp"
)

// side is an inbox in TestRunsCannotBeTold, with what can be seen of it from outside.
type side struct {
	in     *Inbox
	queues []*Inqueue
	from   []*Conn
	links  []*receipts
	kept   Batch // taken and not put back yet
	of     int   // the queue that kept is of
}

// receipts are those of a link, in order.
type receipts struct{ told []string }

func (r *receipts) Fetch() bool { return true }
func (r *receipts) Consumed(n HWM, empty bool) {
	r.told = append(r.told, fmt.Sprint(n.Messages, n.Bytes, empty))
}

// newSide makes an inbox with some queues, of which the first links are those of links.
func newSide(queues, links, report int) *side {
	s := &side{in: newInbox(HWM{Messages: 40, Bytes: 4000})}
	for i := range queues {
		q := newInqueue()
		s.queues, s.from = append(s.queues, q), append(s.from, &Conn{Of: i})
		if i < links {
			s.links = append(s.links, new(receipts))
			s.in.Connect(q, s.links[i], report)
		}
	}
	return s
}

// waits has somebody wait for room in a queue, until it is below the given size.
func (s *side) waits(i int, until HWM) {
	s.in.lock()
	defer s.in.mu.Unlock()
	q := s.queues[i]
	q.room.token, q.room.waiters, q.until = make(chan struct{}, 1), 1, until
}

// goes has the one who waits go, if it was woken.
func (s *side) goes(i int) {
	if q := s.queues[i]; len(q.room.token) > 0 {
		s.in.lock()
		defer s.in.mu.Unlock()
		<-q.room.token
		q.room.waiters = 0
	}
}

// do performs an operation, and returns what it has brought.
func (s *side) do(op int, rng *rand.Rand) string {
	i := rng.IntN(len(s.queues))
	q := s.queues[i]
	switch op {
	case 0, 1, 2: // of several sizes, some of them large
		n := 1 + rng.IntN(12)
		var texts []string
		for j := range n {
			text := fmt.Sprintf("%d/%d ", rng.Uint32(), j)
			if rng.IntN(200) == 0 {
				text += string(make([]byte, LargeMessage))
			}
			texts = append(texts, text)
		}
		b := batchOf(s.from[i], texts...)
		s.in.Put(q, &b, nil)
	case 3:
		err := s.in.TakeBatch(NoWait, nil, &s.kept)
		if err != nil {
			return err.Error()
		}
		s.of = s.kept.From.Of.(int)
		got := fmt.Sprint(s.of, bodies(&s.kept))
		s.kept.Spans = s.kept.Spans[rng.IntN(len(s.kept.Spans)+1):]
		s.in.PutBack(s.queues[s.of], &s.kept)
		s.kept.Release()
		return got
	case 4:
		m, err := s.in.TakeQueued()
		if err != nil {
			return err.Error()
		}
		defer m.Chunk.Release()
		return string(m.Wire())
	case 5:
		size, full, waiting := s.in.Look(q)
		return fmt.Sprint(size, full, waiting)
	case 6:
		return fmt.Sprintf("%+v %v", s.in.Status(), s.in.Waiting())
	case 7:
		s.waits(i, HWM{Messages: rng.IntN(30), Bytes: rng.IntN(600)})
	case 8:
		s.goes(i)
	case 9:
		if rng.IntN(10) == 0 {
			s.in.Leave(q)
		}
	case 10:
		if rng.IntN(10) == 0 {
			s.in.Cut(q)
		}
	case 11:
		if rng.IntN(20) == 0 {
			s.in.Discard()
		}
	case 12:
		if c := s.in.watch.readable; c == nil && rng.IntN(20) == 0 {
			s.in.Readable()
		} else if c != nil {
			select {
			case <-c:
				return "a value"
			default:
			}
		}
	case 13:
		if rng.IntN(100) == 0 && !s.in.over {
			s.in.Close()
		}
	case 14:
		if i < len(s.links) {
			s.in.Report(q, 1+rng.IntN(8))
		}
	}
	return ""
}

// take takes one message.
func (s *side) take() string {
	m, copied, err := s.in.Take(NoWait, nil, nil)
	if err != nil {
		return err.Error()
	}
	if m.Chunk == nil {
		return fmt.Sprintf("%v %q", m.From.Of, copied)
	}
	defer m.Chunk.Release()
	body, _ := m.Wire().Next()
	return fmt.Sprintf("%v %q", m.From.Of, [][]byte{body})
}

// seen is what others see without the lock: wake-ups, receipts, and the discarded messages.
func (s *side) seen() string {
	var all []any
	for i, q := range s.queues {
		all = append(all, len(q.room.token), s.from[i].Discarded.Load())
	}
	for _, l := range s.links {
		all = append(all, l.told)
	}
	return fmt.Sprint(append(all, len(s.in.watch.readable), len(s.in.some.token)))
}

// TestRunsCannotBeTold: in any order of operations, each of them brings the same from an
// inbox whose Take hands out runs as from one in which every message is counted when it is
// taken; and readers are woken, and receipts sent, at the same message.
func TestRunsCannotBeTold(t *testing.T) {
	t.Parallel()
	seeds, runs := 4000, 0
	if testing.Short() {
		seeds = 500
	}
	for seed := range uint64(seeds) {
		rng := rand.New(rand.NewPCG(seed, 1))
		queues := 1 + rng.IntN(3)
		links, report := rng.IntN(queues+1), 1+rng.IntN(8)
		with, without := newSide(queues, links, report), newSide(queues, links, report)
		for step := range 200 {
			var got, want string
			if rng.IntN(2) == 0 {
				for range 1 + rng.IntN(10) {
					without.in.lock() // which ends a run
					without.in.mu.Unlock()
					got, want = with.take(), without.take()
					if got != want || with.seen() != without.seen() {
						break
					}
					if with.in.run.next > 0 {
						runs++
					}
				}
			} else {
				op, part := rng.IntN(15), rng.Uint64()
				got = with.do(op, rand.New(rand.NewPCG(part, 2)))
				want = without.do(op, rand.New(rand.NewPCG(part, 2)))
			}
			if got != want {
				t.Fatalf("seed %d, step %d: %.200q, want %.200q", seed, step, got, want)
			}
			if got, want := with.seen(), without.seen(); got != want {
				t.Fatalf("seed %d, step %d: seen %s, want %s", seed, step, got, want)
			}
		}
	}
	if runs < seeds {
		t.Errorf("only %d messages of runs", runs)
	}
}

// TestTakeReleases: the bytes of messages that were handed out of runs are released with the
// last of their batch.
func TestTakeReleases(t *testing.T) {
	t.Parallel()
	in, q := newInbox(HWM{Messages: 100, Bytes: 1 << 20}), newInqueue()
	b := batchOf(nil, numbers(0, 20)...)
	chunk := b.Chunk
	chunk.Retain()
	in.Put(q, &b, alive)
	for i := range 20 {
		if chunk.Unique() {
			t.Fatalf("released with %d messages left", 20-i)
		}
		if s, err := takeText(context.Background(), in); err != nil || s != fmt.Sprint(i) {
			t.Fatal(s, err)
		}
	}
	if !chunk.Unique() {
		t.Error("not released")
	}
	chunk.Release()
}

// TestTakeLead: a copy begins with the frame of its connection, which is the application's too.
func TestTakeLead(t *testing.T) {
	t.Parallel()
	in, q := &Inbox{}, newInqueue()
	in.Init(HWM{Messages: 100, Bytes: 1 << 20}, Unbounded, false, func(c *Conn) []byte { return c.Of.([]byte) })
	id := []byte("me")
	b := batchOf(&Conn{Of: id}, numbers(0, 9)...)
	in.Put(q, &b, alive)
	var own [][]byte
	for i := range 9 {
		_, m, err := in.Take(NoWait, nil, own)
		must(t, err)
		if len(m) != 2 || string(m[0]) != "me" || string(m[1]) != fmt.Sprint(i) {
			t.Fatalf("%q", m)
		}
		for _, f := range m {
			clear(f)
			_ = append(f, "overwritten"...)
		}
		_ = append(m, []byte("overwritten"))
		if i > 5 {
			own = m
		}
	}
	if string(id) != "me" {
		t.Errorf("the identity is now %q", id)
	}
}

// TestRefill: a message fits into the frames of any other one.
func TestRefill(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 1))
	var m [][]byte
	for range 10_000 {
		var frames [][]byte
		var lead []byte
		want := [][]byte(nil)
		if rng.IntN(2) == 0 {
			lead = []byte("lead")
			want = append(want, lead)
		}
		for range 1 + rng.IntN(4) {
			frames = append(frames, bytes.Repeat([]byte{byte(rng.Uint32())}, rng.IntN(300)*rng.IntN(2)))
		}
		want = append(want, frames...)
		m = Refill(m, zmtp.AppendMessage(nil, frames...), lead)
		if len(m) != len(want) {
			t.Fatalf("%d frames, want %d", len(m), len(want))
		}
		for i := range m {
			if m[i] == nil || !bytes.Equal(m[i], want[i]) {
				t.Fatalf("frame %d: %q, want %q", i, m[i], want[i])
			}
		}
	}
}
