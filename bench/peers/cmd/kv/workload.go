package main

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// workload is the updates of one publisher: first one of each key, which are not
// measured, then updates of random keys. Everything follows from it, so each process
// computes its own part.
type workload struct {
	Keys    int
	Updates int // measured
	// Lanes is how many updates the publisher has under way at a time in no order. Those
	// of a lane keep their order, and so do those of a key, which is of one lane.
	Lanes int
}

// prefix is the prefix of every key.
const prefix = "/bench/"

// names returns the keys, all of one length and side by side in memory: the measurement
// is not to include cache misses of the source.
func (w workload) names() []string {
	digits := max(5, len(strconv.Itoa(w.Keys-1)))
	size := len(prefix) + digits
	var all strings.Builder
	all.Grow(size * w.Keys)
	for i := range w.Keys {
		fmt.Fprintf(&all, "%s%0*d", prefix, digits, i)
	}
	names := make([]string, w.Keys)
	for i := range names {
		names[i] = all.String()[i*size : (i+1)*size]
	}
	return names
}

// total is the number of all updates.
func (w workload) total() int { return w.Keys + w.Updates }

// lane returns the lane of update n, from 0.
func (w workload) lane(n int) int { return n % w.Lanes }

// key returns the number of the key of update n.
func (w workload) key(n int) int {
	if n < w.Keys {
		return n
	}
	lane := w.lane(n)
	keys := (w.Keys - lane + w.Lanes - 1) / w.Lanes // of the lane
	// Multiply and shift maps 32 random bits to the range without a division.
	return lane + w.Lanes*int(mix(uint64(n))>>32*uint64(keys)>>32)
}

// finals returns the number of each key's last update.
func (w workload) finals() []int {
	last := make([]int, w.Keys)
	for n := range w.total() {
		last[w.key(n)] = n
	}
	return last
}

// mix is SplitMix64: each bit of x reaches each bit of the result.
func mix(x uint64) uint64 {
	x += 0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// valueSize is the bytes of a value:
//
//	bytes 0..7    number of the update
//	bytes 8..15   when it was sent, by now, or 0
//	bytes 16..23  number of the key
//	bytes 24..31  mix of the number of the update
const valueSize = 32

// fill makes the value of update n.
func fill(value []byte, n, key int, sent int64) {
	_ = value[valueSize-1]
	binary.LittleEndian.PutUint64(value, uint64(n))
	binary.LittleEndian.PutUint64(value[8:], uint64(sent))
	binary.LittleEndian.PutUint64(value[16:], uint64(key))
	binary.LittleEndian.PutUint64(value[24:], mix(uint64(n)))
}

// parse takes a value apart. It is not ok if no publisher has sent it.
func (w workload) parse(value []byte) (n, key int, sent int64, ok bool) {
	if len(value) != valueSize {
		return 0, 0, 0, false
	}
	number, index := binary.LittleEndian.Uint64(value), binary.LittleEndian.Uint64(value[16:])
	if binary.LittleEndian.Uint64(value[24:]) != mix(number) || number >= uint64(w.total()) || index != uint64(w.key(int(number))) {
		return 0, 0, 0, false
	}
	return int(number), int(index), int64(binary.LittleEndian.Uint64(value[8:])), true
}
