//go:build !portable

package store

import (
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// allocate returns size bytes for a segment.
func allocate(size int) []byte {
	b := make([]byte, size)
	if size >= hugeSegment {
		makeHuge(b)
	}
	return b
}

// hintTable requests huge pages for the slots of a new table, in a map whose log has so
// many bytes.
func hintTable(slots []atomic.Uint64, log int) {
	if size := len(slots) * slotBytes; size >= hugeTable && log >= hugeLog {
		makeHuge(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(slots))), size))
	}
}

// makeHuge asks for huge pages for the new memory b of a segment or a table, which is zero,
// where it has no pages yet: in a large map every look-up is in another page, and
// translating the address takes a part of its time.
//
// The memory need not begin at the boundary of a huge page, so the request is rounded
// outwards: memory allocated one after the other is adjacent, and shares the huge page at
// its border. It is only a hint, about addresses of this process, so errors are ignored.
//
// The request ends when each huge page has been written to once. Otherwise the system
// would later copy the pages that were there before into huge pages, and also those that
// are left when a part of a huge page is released. Each copy stops updates for several
// milliseconds, seconds after the map has grown. Nothing takes the end of the request
// back: what the heap later puts there has no huge pages either, even where the system
// gives them to all memory.
//
// In a small map it would cost more than it gains: the rest of the huge page belongs to
// the application's objects.
func makeHuge(b []byte) {
	start := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	first, end := start&^(hugePage-1), (start+uintptr(len(b))+hugePage-1)&^(hugePage-1)
	_, _, _ = unix.Syscall(unix.SYS_MADVISE, first, end-first, unix.MADV_HUGEPAGE)
	for at := 0; at < len(b); at += hugePage - int(start+uintptr(at))&(hugePage-1) {
		b[at] = 0
	}
	_, _, _ = unix.Syscall(unix.SYS_MADVISE, first, end-first, unix.MADV_NOHUGEPAGE)
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
