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

// A large log stays below its limit, with the free segments, however its keys change. The
// test is not parallel, because readers of other tests would delay the end of grace periods.
func TestCompactionBoundsALargeLog(t *testing.T) {
	testenv.Alone(t)
	for _, batch := range []int{1000, 25_000} { // 80 kB, and the size of two segments
		boundsALargeLog(t, batch)
	}
}

// boundsALargeLog overwrites keys in calls of so many.
func boundsALargeLog(t *testing.T, batch int) {
	const keys = 250_000
	s := New(Options{})
	rng := rand.New(rand.NewPCG(1, 20))
	n := 0
	var out []Piece
	for range 4 {
		for _, b := range fill(t, keys/batch, batch, func() int {
			if n++; n <= keys {
				return n - 1
			}
			return rng.IntN(keys)
		}) {
			out = s.Apply(b.wire, b.spans, 1, out[:0])
			// The victim, what its records are copied to, and segments that have just retired.
			st := s.Stats()
			if used, most := st.LogBytes+st.IdleBytes, s.log.limit()+6*maxSegment; used > most {
				t.Fatalf("%d bytes in use and %d idle, of %d; %d live", st.LogBytes, st.IdleBytes, most, st.LiveBytes)
			}
		}
	}
	if limit := s.log.limit(); s.count != keys || limit > 80*keys*3/2+maxSlack/2 {
		t.Errorf("%d keys, and the limit is %d", s.count, limit)
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

// BenchmarkOverwrite overwrites the keys of a large map, in batches of 128 KiB as a
// server gets them: uniformly, or each key once before any is overwritten again. It
// reports the most bytes of the log, with the idle ones, for each live byte, and how many
// records compaction copies for each update.
func BenchmarkOverwrite(b *testing.B) {
	const keys, per, size = 1_000_000, 1600, 80
	for _, order := range []string{"uniform", "shuffled"} {
		b.Run("order="+order, func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 19))
			all := make([]int, keys)
			for i := range all {
				all[i] = i
			}
			next := 0
			key := func() int {
				if order == "uniform" && next >= keys {
					return rng.IntN(keys)
				}
				if next%keys == 0 {
					rng.Shuffle(keys, func(i, j int) { all[i], all[j] = all[j], all[i] })
				}
				next++
				return all[(next-1)%keys]
			}
			s := New(Options{})
			var out []Piece
			most := 0
			update := func(n int) {
				for n > 0 {
					b.StopTimer()
					batches := fill(b, 64, per, key)
					b.StartTimer()
					for i := range batches {
						out = s.Apply(batches[i].wire, batches[i].spans, 1, out[:0])
						st := s.Stats()
						most = max(most, st.LogBytes+st.IdleBytes)
					}
					n -= 64 * per
				}
			}
			update(6 * keys)
			before := s.Stats().Moved
			most = 0
			b.ResetTimer()
			update(b.N)
			st := s.Stats()
			b.ReportMetric(float64(most)/float64(st.LiveBytes), "log/live")
			b.ReportMetric(float64(st.Moved-before)/size/float64(b.N), "moved/update")
		})
	}
}

// Values above the size of a segment are overwritten by smaller ones, in segments that are
// recycled. Compaction must not move them to a segment that other records share.
func TestCompactionLeavesLargeValues(t *testing.T) {
	testenv.Alone(t)
	t.Parallel()
	rng := rand.New(rand.NewPCG(4, 11))
	s := New(Options{})
	model := map[string]int{}
	value := make([]byte, 7<<20)
	for i := range 400 {
		key, n := fmt.Sprint(rng.IntN(10)), 1<<20+rng.IntN(6<<20)
		value[n-1] = byte(n)
		s.Put([]byte(key), int64(i+1), nil, nil, value[:n])
		value[n-1] = 0
		model[key] = n
		for j := range 20 { // each call does a share of compaction
			s.Put(fmt.Append(nil, "small", j), int64(i+1), nil, nil, []byte{1})
		}
		for key, n := range model {
			if !s.View([]byte(key), func(r kvmsg.Record) {
				if v := r.Value(); len(v) != n || v[n-1] != byte(n) {
					t.Fatalf("%q has %d bytes, want %d", key, len(v), n)
				}
			}) {
				t.Fatalf("%q is lost", key)
			}
		}
		if st := s.Stats(); st.LogBytes > s.log.limit() {
			t.Fatalf("%d bytes of log for %d live bytes", st.LogBytes, st.LiveBytes)
		}
	}
	if s.log.recycled == 0 {
		t.Error("no segment was recycled")
	}
}

// A log of small values becomes one of values a little larger than half a segment, each of
// which would fill half of a recycled one. Compaction must free the rest, and then end.
func TestCompactionEnds(t *testing.T) {
	testenv.Alone(t)
	t.Parallel()
	for _, size := range []int{1030 << 10, 1200 << 10} {
		s := New(Options{})
		const small, per = 120_000, 2200
		key := func(i int) []byte { return fmt.Append(nil, "small", i) }
		for i := range small {
			s.Put(key(i), int64(i+1), nil, nil, make([]byte, 1000))
		}
		for i := range small {
			s.Delete(kvmsg.HashKey(key(i)), key(i))
			if i%per == 0 {
				s.Put(fmt.Append(nil, "large", i), int64(small+i), nil, nil, make([]byte, size))
			}
		}
		moved := s.log.victim.moved
		for s.Tidy(1 << 20) {
			if st := s.Stats(); st.Moved-moved > uint64(4*st.LogBytes) {
				t.Fatalf("values of %d bytes: compaction goes on after %d bytes, in a log of %d, of which %d are live",
					size, st.Moved-moved, st.LogBytes, st.LiveBytes)
			}
		}
		if st := s.Stats(); st.LogBytes > s.log.limit() {
			t.Errorf("values of %d bytes: %d bytes of log for %d live bytes", size, st.LogBytes, st.LiveBytes)
		}
	}
}
