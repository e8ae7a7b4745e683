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
	if !alone(t) { // other tests have large maps
		return
	}
	m := filled(10_000)
	mappings := readMappings(t)
	if mappings.of(unsafe.Pointer(unsafe.SliceData(m.tables[0].Load().slots))).asked {
		t.Error("the table of a small map is in a huge page")
	}
	if mappings.of(unsafe.Pointer(unsafe.SliceData(m.log.head.buf))).asked {
		t.Error("the log of a small map is in a huge page")
	}
}

// TestNoHugePagesLater: the system copies no memory of a large map into huge pages after
// the map has grown, which would stop updates.
func TestNoHugePagesLater(t *testing.T) {
	t.Parallel()
	if !alone(t) { // other tests add the memory beside it
		return
	}
	m := filled(300_000)
	mappings := readMappings(t)
	segments, tables := 0, 0
	m.log.each(func(s *Segment) {
		if at := mappings.of(unsafe.Pointer(unsafe.SliceData(s.buf))); at.later {
			t.Errorf("a segment of %d bytes may still be copied into huge pages", len(s.buf))
		} else if at.asked {
			segments++
		}
	})
	for i := range m.tables {
		if at := mappings.of(unsafe.Pointer(unsafe.SliceData(m.tables[i].Load().slots))); at.later {
			t.Error("a table may still be copied into huge pages")
		} else if at.asked {
			tables++
		}
	}
	if segments == 0 || tables == 0 {
		t.Errorf("huge pages for %d segments and %d tables, want some of both", segments, tables)
	}
}

// alone runs the test in a process of its own, and returns true in that.
func alone(t *testing.T) bool {
	const variable = "STORE_TEST_ALONE"
	if os.Getenv(variable) != "" {
		return true
	}
	c := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	c.Env = append(os.Environ(), variable+"=1")
	if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- ") {
		t.Errorf("%v\n%s", err, out)
	} else if strings.Contains(string(out), "--- SKIP") {
		t.Skipf("%s", out)
	}
	return false
}

// filled returns a map with so many keys.
func filled(keys int) *Map {
	m := New(Options{})
	var wire []byte
	for i := range keys {
		wire = kvmsg.AppendRecord(wire[:0], fmt.Appendf(nil, "key/%d", i), 0, nil, nil, []byte("value"))
		span := buf.Span{End: uint32(len(wire)), Tag: kvmsg.HashKey(kvmsg.Record(wire).Key())}
		m.Apply(wire, []buf.Span{span}, int64(i+1), nil)
	}
	return m
}

// mapping is a part of this process's memory.
type mapping struct {
	from, to uintptr
	later    bool // the system may copy it into huge pages
	asked    bool // huge pages are requested, or have been
}

type mappings []mapping

func (all mappings) of(p unsafe.Pointer) mapping {
	for _, m := range all {
		if m.from <= uintptr(p) && uintptr(p) < m.to {
			return m
		}
	}
	return mapping{}
}

// readMappings skips the test on a system without huge pages.
func readMappings(t *testing.T) mappings {
	if modes, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled"); err != nil {
		t.Skip(err)
	} else if strings.Contains(string(modes), "[never]") {
		t.Skip("the system has no huge pages")
	}
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Skip(err)
	}
	var all mappings
	for line := range strings.Lines(string(smaps)) {
		var m mapping
		if n, _ := fmt.Sscanf(line, "%x-%x ", &m.from, &m.to); n == 2 {
			all = append(all, m)
		}
		if flags, ok := strings.CutPrefix(line, "VmFlags:"); ok && len(all) > 0 {
			last := &all[len(all)-1]
			last.later = strings.Contains(flags, " hg")
			last.asked = last.later || strings.Contains(flags, " nh")
		}
	}
	return all
}

// The memory of a segment goes back to the system at once: its pages read as zero.
func TestReleasedSegmentsGoBackToTheSystem(t *testing.T) {
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
