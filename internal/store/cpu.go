package store

import "github.com/klauspost/cpuid/v2"

// padLine is the cache line that the paddings of this package are made for: they
// keep what is written by different cores 128 bytes apart, two lines, since
// cores fetch lines in pairs.
const padLine = 64

// wideLines says how many padded elements lie between two that must not share a
// line, as a power of two: 0 where lines are of the size that the paddings
// assume, more on processors with longer ones.
func wideLines() (shift uint) {
	for padLine<<shift < cpuid.CPU.CacheLine {
		shift++
	}
	return shift
}
