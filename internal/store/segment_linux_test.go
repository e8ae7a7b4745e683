//go:build !portable

package store

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"unsafe"

	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
)

// TestSmallMapNoHugePages: the memory beside a small map is the application's, which huge
// pages would make larger.
func TestSmallMapNoHugePages(t *testing.T) {
	t.Parallel()
	const alone = "STORE_TEST_HUGE_PAGES"
	if os.Getenv(alone) == "" { // other tests have large maps
		c := exec.Command(os.Args[0], "-test.run=^TestSmallMapNoHugePages$")
		c.Env = append(os.Environ(), alone+"=1")
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	m := New(Options{})
	for i := range 10_000 {
		wire := kvmsg.AppendRecord(nil, fmt.Appendf(nil, "key/%d", i), 0, nil, nil, []byte("value"))
		span := buf.Span{End: uint32(len(wire)), Tag: kvmsg.HashKey(kvmsg.Record(wire).Key())}
		m.Apply(wire, []buf.Span{span}, int64(i+1), nil)
	}
	if isHuge(t, unsafe.Pointer(unsafe.SliceData(m.tables[0].Load().slots))) {
		t.Error("the table of a small map is in a huge page")
	}
	if isHuge(t, unsafe.Pointer(unsafe.SliceData(m.log.head.buf))) {
		t.Error("the log of a small map is in a huge page")
	}
}

// isHuge reports whether huge pages were requested for the memory at p.
func isHuge(t *testing.T, p unsafe.Pointer) bool {
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Skip(err)
	}
	inside := false
	for line := range strings.Lines(string(smaps)) {
		var from, to uintptr
		if n, _ := fmt.Sscanf(line, "%x-%x ", &from, &to); n == 2 {
			inside = from <= uintptr(p) && uintptr(p) < to
		}
		if flags, ok := strings.CutPrefix(line, "VmFlags:"); ok && inside {
			return strings.Contains(flags, " hg")
		}
	}
	return false
}

// The memory of a segment goes back to the system at once: its pages read as zero.
func TestH25_ReleasedSegmentsGoBackToTheSystem(t *testing.T) {
	t.Parallel()
	b := allocate(1 << 20)
	for i := range b {
		b[i] = 1
	}
	release(b)
	left := 0
	for _, v := range b {
		left += int(v)
	}
	if left > 2*os.Getpagesize() {
		t.Errorf("%d bytes of %d are still there", left, len(b))
	}
}
