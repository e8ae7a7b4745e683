package chp

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// allocate returns size octets for a segment. For the biggest ones it asks for huge
// pages, since in a big map every look-up goes to another page, and finding that
// page takes as long as the look-up.
//
// A segment need not begin at a boundary of huge pages. The request is therefore
// rounded outwards: segments that were allocated one after the other lie side by
// side, and what one has of a huge page at its end the next one has at its
// beginning. It is a request only, about addresses that are ours anyway; whatever
// comes of it, nothing is wrong, so its error is not looked at.
func allocate(size int) []byte {
	b := make([]byte, size)
	if size == maxSegment {
		start := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
		first, end := start&^(maxSegment-1), (start+maxSegment+maxSegment-1)&^(maxSegment-1)
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, first, end-first, unix.MADV_HUGEPAGE)
	}
	return b
}
