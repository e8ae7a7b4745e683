package timer

import (
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
)

// expireAll returns what expires up to a time.
func expireAll(d *Deadlines, now time.Duration) (hashes []uint64) {
	for d.Expire(now, 1000, func(hash uint64, _ int64) (bool, time.Duration) { hashes = append(hashes, hash); return false, 0 }) {
	}
	return hashes
}

// A grace is not for keys that are set, or set again, after it has begun, and ends.
func TestDeadlinesSpare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Minute)
		var d Deadlines
		begin := Now()
		for seq := range int64(8) {
			d.Set(uint64(4*seq), seq, begin)
		}
		d.Spare(5, time.Hour)
		d.Set(4, 8, begin)
		if got := expireAll(&d, begin+time.Minute); len(got) != 3 {
			t.Errorf("%v expire", got)
		}
		record := kvmsg.Record(kvmsg.AppendRecord(nil, []byte("k"), 5, nil, []byte("ttl=1\n"), []byte("v")))
		d.Set(kvmsg.HashKey([]byte("k")), 5, begin)
		if left := d.Remaining(record); left != time.Hour {
			t.Errorf("%v are left of a spared key", left)
		}
		if got := expireAll(&d, begin+time.Hour+wheelTick); len(got) != 6 || d.Len() != 0 {
			t.Errorf("%v expire at the end of the grace, %d are left", got, d.Len())
		}
		d.Spare(5, math.MaxInt64)
		d.Set(kvmsg.HashKey([]byte("k")), 5, begin)
		if left := d.Remaining(record); left != kvmsg.MaxTTL {
			t.Errorf("the longest grace is %v", left)
		}
		d.Spare(5, -1)
		if left := d.Remaining(record); left != 1 {
			t.Errorf("%v are left without a grace", left)
		}
	})
}

// Of the updates of a key the one with the highest sequence decides, in whatever order
// they arrive.
func TestDeadlinesInAnyOrder(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var wire []byte
		var spans []buf.Span
		for _, seq := range rng.Perm(6) {
			r := wire
			tag := kvmsg.HashKey([]byte("k"))
			switch seq % 3 {
			case 0:
				wire = kvmsg.AppendRecord(r, []byte("k"), int64(seq+1), nil, []byte("ttl=9\n"), []byte("v"))
				tag |= kvmsg.TagProperties
			case 1:
				wire = kvmsg.AppendRecord(r, []byte("k"), int64(seq+1), nil, nil, []byte("v"))
			case 2:
				continue // the last one is a set: deletions are not remembered
			}
			spans = append(spans, buf.Span{Start: uint32(len(r)), End: uint32(len(wire)), Tag: tag})
		}
		var d Deadlines
		at := Now()
		d.Apply(wire, spans, 0, at)
		last := kvmsg.Record(kvmsg.AppendRecord(nil, []byte("k"), 4, nil, []byte("ttl=9\n"), []byte("v")))
		if left := d.Remaining(last); d.Len() != 1 || left > 9*time.Second || d.wheel.find(kvmsg.HashKey([]byte("k"))).seq != 4 {
			t.Fatalf("seed %d: %d deadlines, %v left", seed, d.Len(), left)
		}
		d.Remove(kvmsg.HashKey([]byte("k")), 3) // older
		if d.Len() != 1 {
			t.Fatalf("seed %d: an older deletion counts", seed)
		}
		d.Remove(kvmsg.HashKey([]byte("k")), 5)
		if d.Len() != 0 {
			t.Fatalf("seed %d: a later deletion does not count", seed)
		}
	}
}

// BenchmarkDeadlinesApply looks for times to live and deletions in batches that have none.
func BenchmarkDeadlinesApply(b *testing.B) {
	var d Deadlines
	spans := make([]buf.Span, 1000)
	for i := range spans {
		spans[i].Tag = kvmsg.HashKey([]byte{byte(i), byte(i >> 8)})
	}
	for b.Loop() {
		d.Apply(nil, spans, 1, 0)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(spans)), "ns/update")
}
