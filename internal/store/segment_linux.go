//go:build !portable

package store

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// allocate returns size bytes for a segment. For segments of maxSegment it requests
// huge pages: in a large map every look-up is in another page, and translating the
// address takes as long as the look-up.
//
// A segment need not begin at the boundary of a huge page, so the request is rounded
// outwards: segments that were allocated one after the other are adjacent, and share
// the huge page at their border. It is only a hint, about addresses of this process, so
// errors are ignored.
func allocate(size int) []byte {
	b := make([]byte, size)
	if size == maxSegment {
		start := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
		first, end := start&^(maxSegment-1), (start+maxSegment+maxSegment-1)&^(maxSegment-1)
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, first, end-first, unix.MADV_HUGEPAGE)
	}
	return b
}

// release returns the memory of a segment that is no longer used to the system. The
// garbage collector would do that much later: in a server that does not allocate it
// runs every two minutes.
//
// Only whole pages inside the segment are released. Their contents become zero. Errors
// are ignored.
func release(b []byte) {
	page := uintptr(os.Getpagesize())
	start := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	first, end := (start+page-1)&^(page-1), (start+uintptr(len(b)))&^(page-1)
	if len(b) < releaseFrom || first >= end {
		return
	}
	_ = unix.Madvise(b[first-start:end-start], unix.MADV_DONTNEED)
}

// releaseFrom is the size from which releasing a segment is worth a system call.
const releaseFrom = 64 << 10
