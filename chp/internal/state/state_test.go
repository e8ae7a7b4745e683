package state

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"clustermap/chp/internal/ledger"
	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
	"clustermap/internal/timer"
)

// written returns what a state writes.
func written(t *testing.T, s *State) []byte {
	t.Helper()
	c := s.Image()
	defer c.Release()
	var b bytes.Buffer
	n, err := c.WriteTo(&b)
	if err != nil || n != int64(b.Len()) {
		t.Fatalf("%d of %d bytes, %v", n, b.Len(), err)
	}
	return b.Bytes()
}

// contents returns the records of a state, sorted, with the remaining times to live, and the
// other sections.
func contents(t *testing.T, s *State) (all []string) {
	t.Helper()
	c := s.Image()
	defer c.Release()
	for p := range c.Sections(1 << 10) {
		if p.Kind != KindRecords {
			all = append(all, fmt.Sprintf("%d %x", p.Kind, p.Body))
		}
	}
	c.Records(func(r kvmsg.Record) bool {
		all = append(all, fmt.Sprintf("%x %v", []byte(r[:r.Size()]), c.Deadlines.Remaining(r)))
		return true
	})
	slices.Sort(all)
	return all
}

// maker makes random entries.
type maker struct {
	rng      *rand.Rand
	counters [4]uint64
	term     uint64
	last     int64
}

func (m *maker) next() *Entry {
	e := &Entry{Head: Head{At: timer.Now()}}
	if m.rng.IntN(40) == 0 {
		m.term += 1 << ReignBits
		m.last += m.rng.Int64N(1000)
	}
	e.Reign, e.First = m.term, m.last+1
	for range 1 + m.rng.IntN(8) {
		key := fmt.Appendf(nil, "/%d/%d", m.rng.IntN(4), m.rng.IntN(60))
		tag := kvmsg.HashKey(key)
		var props, value []byte
		switch m.rng.IntN(6) {
		case 0:
			tag |= kvmsg.TagDelete
		case 1, 2:
			props = fmt.Appendf(nil, "ttl=%d\n", 1+m.rng.IntN(100))
			fallthrough
		default:
			value = bytes.Repeat([]byte{byte(m.rng.Uint32())}, 1+m.rng.IntN(400))
		}
		if len(props) > 0 {
			tag |= kvmsg.TagProperties
		}
		start := len(e.Wire)
		e.Wire = kvmsg.AppendRecord(e.Wire, key, 0, nil, props, value)
		e.Spans = append(e.Spans, buf.Span{Start: uint32(start), End: uint32(len(e.Wire)), Tag: tag})
		e.Count++
	}
	if who := m.rng.IntN(8); who < len(m.counters) {
		m.counters[who] += uint64(e.Count) + uint64(m.rng.IntN(20)/19)
		e.Client, e.Counter = ledger.ID{byte(who)}, m.counters[who]
	}
	m.last = e.Last()
	return e
}

// stamped returns the entry as another server or a log has it.
func stamped(e *Entry) *Entry {
	s := *e
	s.Stamped, s.Wire = true, slices.Clone(e.Wire)
	for i, span := range s.Spans {
		kvmsg.Record(s.Wire[span.Start:]).SetSeq(e.First + int64(i))
	}
	return &s
}

// expire returns the deletions of what has expired, as an entry.
func expire(m *maker, s *State) *Entry {
	e := &Entry{Head: Head{Reign: m.term, First: m.last + 1, At: timer.Now()}}
	for more := true; more; {
		e.Wire, e.Spans, more = s.Expired(timer.Now(), 100, e.Wire, e.Spans)
	}
	if e.Count = uint32(len(e.Spans)); e.Count == 0 {
		return nil
	}
	m.last = e.Last()
	return e
}

// TestStatesThatApplyTheSameEntriesAreEqual, byte for byte, whether the sequences are in the
// updates or not; and one that was written, read and has applied the rest has the same
// contents.
func TestStatesThatApplyTheSameEntriesAreEqual(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			m := &maker{rng: rand.New(rand.NewPCG(seed, 28)), last: 1000}
			first, second := New(1000), New(1000)
			first.ID = ledger.ID{byte(seed), 1}
			second.ID = first.ID
			var third *State
			apply := func(e *Entry) {
				if e == nil {
					return
				}
				after := stamped(e)
				first.Apply(e)
				second.Apply(after)
				if third != nil {
					third.Apply(after)
				}
			}
			for i := range 400 {
				apply(m.next())
				if m.rng.IntN(5) == 0 {
					time.Sleep(time.Duration(m.rng.IntN(20)) * time.Second)
					apply(expire(m, first))
					// The others learn what has expired from the first, as a passive server
					// does.
				}
				if i == 200 {
					var err error
					if third, err = Read(bytes.NewReader(written(t, first)), timer.Now()); err != nil {
						t.Fatal(err)
					}
				}
			}
			if first.Last() != m.last || first.Store.Len() == 0 {
				t.Fatalf("sequence %d of %d, %d keys", first.Last(), m.last, first.Store.Len())
			}
			if a, b := written(t, first), written(t, second); !bytes.Equal(a, b) {
				t.Errorf("seed %d: two states differ, %d and %d bytes", seed, len(a), len(b))
			}
			if a, b := contents(t, first), contents(t, third); !slices.Equal(a, b) {
				t.Errorf("seed %d: the state that was read differs: %d and %d", seed, len(a), len(b))
			}
		})
	}
}

// TestPartOfAStateIsNotAState: whatever is missing or damaged, there is an error and no panic,
// and a newer version says so.
func TestPartOfAStateIsNotAState(t *testing.T) {
	t.Parallel()
	m := &maker{rng: rand.New(rand.NewPCG(1, 1))}
	s := New(0)
	for range 20 {
		s.Apply(m.next())
	}
	whole := written(t, s)
	for n := range whole {
		if _, err := Read(bytes.NewReader(whole[:n]), 0); err == nil {
			t.Fatalf("%d of %d bytes are taken for a state", n, len(whole))
		}
	}
	for range 2000 {
		b := slices.Clone(whole)
		b[m.rng.IntN(len(b))] ^= 1 << m.rng.IntN(8)
		_, _ = Read(bytes.NewReader(b), 0)
	}
	b := slices.Clone(whole)
	b[len(magic)+3]++
	var newer *versionError
	if _, err := Read(bytes.NewReader(b), 0); !errors.As(err, &newer) || newer.version != version+1 {
		t.Errorf("a newer version: %v", err)
	}
	if _, err := s.Image().WriteTo(failing{}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("an error of the writer: %v", err)
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
