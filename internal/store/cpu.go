package store

import "github.com/klauspost/cpuid/v2"

// padLine is the cache line size that the paddings of this package assume. They keep
// fields that different cores write two lines (128 bytes) apart, because cores fetch
// lines in pairs.
const padLine = 64

// wideLines returns the logarithm of the distance, in padded elements, between two
// elements that must not share a line: 0 on most processors, more if their lines are
// longer than padLine.
func wideLines() (shift uint) {
	for padLine<<shift < cpuid.CPU.CacheLine {
		shift++
	}
	return shift
}
