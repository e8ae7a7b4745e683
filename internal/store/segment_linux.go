//go:build !portable

package store

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// allocate returns size bytes for a segment. For the biggest ones it asks for huge
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

// release gives the memory of a segment that nobody will look at again back to the
// system at once. The garbage collector would do so as well, but it takes its time:
// in a server that does not allocate it runs every two minutes.
//
// Only whole pages go, which are the segment's alone. Their contents are lost: they
// are zero when they are used again. Nothing is wrong if the system refuses.
func release(b []byte) {
	page := uintptr(os.Getpagesize())
	start := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	first, end := (start+page-1)&^(page-1), (start+uintptr(len(b)))&^(page-1)
	if len(b) < releaseFrom || first >= end {
		return
	}
	_ = unix.Madvise(b[first-start:end-start], unix.MADV_DONTNEED)
}

// releaseFrom is the size from which a segment is worth a system call.
const releaseFrom = 64 << 10
