package store

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"clustermap/internal/kvmsg"
	"clustermap/internal/testenv"
)

// A few keys that never change, each among many that do, would each keep a whole
// segment in use.
func TestCompactionFreesWhatFewKeysHold(t *testing.T) {
	t.Parallel()
	s := New(Options{MinSegment: 4096})
	model := map[string]string{}
	for i := range 50_000 {
		key := "/hot"
		if i%100 == 0 {
			key = fmt.Sprint("/cold/", i)
		}
		value := fmt.Sprint("value ", i)
		s.Put([]byte(key), int64(i+1), nil, nil, []byte(value))
		model[key] = value
	}
	st := s.Stats()
	if st.Moved == 0 || st.LogBytes > 2*st.LiveBytes+(slackSegments+2)*s.log.segmentSize(0) {
		t.Errorf("%+v", st)
	}
	s.check(t, model)
	// Moved records keep their sequences.
	for i := 0; i < 50_000; i += 100 {
		if _, seq, _ := s.Get(fmt.Appendf(nil, "/cold/%d", i), nil); seq != int64(i+1) {
			t.Fatalf("key %d is #%d", i, seq)
		}
	}
}

// No call of the writer may do much more work than it brings.
func TestCompactionGoesInSmallSteps(t *testing.T) {
	testenv.Alone(t)
	t.Parallel()
	s := New(Options{})
	value := make([]byte, 100)
	key := func(i int) []byte { return fmt.Appendf(nil, "/key/%d", i) }
	const keys = 50_000
	for i := range keys {
		s.Put(key(i), int64(i+1), nil, nil, value)
	}
	rng := rand.New(rand.NewPCG(1, 17))
	for i := range 6 * keys {
		before := s.log.victim.moved
		// Every tenth key stays: the old segments have little that lives.
		n := rng.IntN(keys - 1)
		if n%10 == 0 {
			n++
		}
		p := s.Put(key(n), int64(i+1), nil, nil, value)
		size := p.end - p.off
		if moved := s.log.victim.moved - before; moved > uint64(compactPace*size+blockSize+size) {
			t.Fatalf("moved %d bytes for %d", moved, size)
		}
	}
	if s.log.victim.moved == 0 {
		t.Error("compaction never ran")
	}
}

// The victim may die by itself while compaction is in the middle of it.
func TestCompactionOfADyingSegment(t *testing.T) {
	t.Parallel()
	s := New(Options{MinSegment: 4096})
	model := map[string]string{}
	set := func(key string, i int) {
		value := fmt.Sprint("value ", i)
		s.Put([]byte(key), int64(i+1), nil, nil, []byte(value))
		model[key] = value
	}
	died := 0
	rng := rand.New(rand.NewPCG(1, 18))
	for i := range 50_000 {
		set(fmt.Sprint("/key/", rng.IntN(3000)), i)
		if v := s.log.victim.seg; v != nil && i%10 == 0 {
			var keys []string
			for n := range v.blocks {
				v.records(v.blocks, n, func(r kvmsg.Record, _ uint32) bool {
					keys = append(keys, string(r.Key()))
					return true
				})
			}
			for _, key := range keys {
				s.Put([]byte(key), 0, nil, nil, nil)
				delete(model, key)
			}
			if s.log.victim.seg == v {
				t.Fatal("the victim is dead and still the victim")
			}
			died++
		}
	}
	if died == 0 {
		t.Error("no victim was met")
	}
	s.check(t, model)
}
