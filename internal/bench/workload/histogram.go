package workload

import (
	"math"
	"math/bits"
)

// Histogram counts durations in nanoseconds in buckets 1/32 of their value wide:
// percentiles are right to 3 % at any size. The zero value is empty.
type Histogram struct {
	counts [buckets]uint64
	total  uint64
	max    int64
}

const (
	fineBits = 5 // 32 buckets for each power of two
	buckets  = (64 - fineBits) << fineBits
)

// Add counts a duration n times.
func (h *Histogram) Add(nanoseconds int64, n uint64) {
	nanoseconds = max(nanoseconds, 0)
	h.counts[bucket(nanoseconds)] += n
	h.total += n
	h.max = max(h.max, nanoseconds)
}

func bucket(v int64) int {
	if v < 1<<fineBits {
		return int(v)
	}
	shift := bits.Len64(uint64(v)) - fineBits - 1
	return shift<<fineBits + int(v>>shift)
}

// middle is the duration in the middle of a bucket.
func middle(b int) float64 {
	if b < 1<<fineBits {
		return float64(b)
	}
	shift := b>>fineBits - 1
	return (float64(b-shift<<fineBits) + 0.5) * float64(uint64(1)<<shift)
}

// Merge adds the counts of another histogram.
func (h *Histogram) Merge(s Sparse) {
	for _, c := range s.Counts {
		if b := c[0]; b < buckets {
			h.counts[b] += c[1]
			h.total += c[1]
		}
	}
	h.max = max(h.max, s.Max)
}

// Percentile returns the duration, in nanoseconds, that a share of p (0 to 1) of
// those counted do not exceed.
func (h *Histogram) Percentile(p float64) float64 {
	want := uint64(math.Ceil(p * float64(h.total)))
	seen := uint64(0)
	for b, n := range h.counts {
		if seen += n; seen >= want && n > 0 {
			return min(middle(b), float64(h.max))
		}
	}
	return 0
}

// Max returns the longest duration, in nanoseconds.
func (h *Histogram) Max() int64 { return h.max }

// Sparse is the form of a histogram sent to another process: number and count of each
// bucket that is not empty.
type Sparse struct {
	Counts [][2]uint64 `json:"counts"`
	Max    int64       `json:"max"`
}

// Sparse returns the counts.
func (h *Histogram) Sparse() Sparse {
	s := Sparse{Max: h.max}
	for b, n := range h.counts {
		if n > 0 {
			s.Counts = append(s.Counts, [2]uint64{uint64(b), n})
		}
	}
	return s
}
