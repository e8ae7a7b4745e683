package espresso

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"clustermap/zmtp"
)

// testRecords makes records of messages, some of them large or with several frames, and
// one of lost messages.
func testRecords(messages int) []byte {
	var records []byte
	for i := range messages {
		wire := zmtp.AppendMessage(nil, fmt.Append(nil, "topic", i), bytes.Repeat([]byte{byte(i)}, i*40))
		records = append(appendHead(records, byte(DirectionFromFrontend)+byte(i%2), int64(i)*1000, len(wire)), wire...)
	}
	return appendLostRecord(records, int64(messages)*1000, 7, 700)
}

// recording is a file with the records of testRecords.
func recording(t testing.TB, messages int) []byte {
	t.Helper()
	var file bytes.Buffer
	w, err := NewWriter(&file, Ends{zmtp.TypeXSub, zmtp.TypeXPub})
	must(t, err)
	must(t, w.write(testRecords(messages)))
	return file.Bytes()
}

// readAll returns the events of a file as text, and the error at the end.
func readAll(file io.Reader) (all []string, err error) {
	r, err := NewReader(file)
	if err != nil {
		return nil, err
	}
	var e Event
	for {
		if err := r.Next(&e); err != nil {
			return all, err
		}
		all = append(all, fmt.Sprint(e.Time.UnixNano(), e.From, e.Op, e.Frames, e.Lost, e.LostBytes))
	}
}

// A recording is read back as an observer saw it.
func TestRecord(t *testing.T) {
	t.Parallel()
	p := newPipeline(t, Options{})
	watch, record := p.tap.Observe(Filter{}), p.tap.Observe(Filter{})
	var file bytes.Buffer
	w, err := NewWriter(&file, p.tap.Ends())
	must(t, err)
	recorded := make(chan error, 1)
	go func() { recorded <- record.Record(testContext(t), w) }()
	for i := range 50 {
		p.pass(t, fmt.Sprint(i), strings.Repeat("x", i*20))
	}
	p.end()
	must(t, <-recorded)
	r, err := NewReader(iotest.OneByteReader(&file))
	must(t, err)
	if r.Ends() != p.tap.Ends() {
		t.Errorf("recorded between %v", r.Ends())
	}
	var want, got Event
	for i := range 100 {
		must(t, watch.Next(t.Context(), &want))
		must(t, r.Next(&got))
		if !got.Time.Equal(want.Time) || got.From != want.From || got.Op != want.Op || fmt.Sprint(got.Frames) != fmt.Sprint(want.Frames) {
			t.Fatalf("event %d: %+v, want %+v", i, got, want)
		}
	}
	for range 2 {
		if err := r.Next(&got); err != io.EOF {
			t.Errorf("at the end: %v", err)
		}
	}
}

// Record starts with the events that Next has fetched but not returned.
func TestRecordAfterNext(t *testing.T) {
	t.Parallel()
	p := newPipeline(t, Options{})
	o := p.tap.Observe(Filter{})
	p.pass(t, "1", "2", "3")
	p.end()
	if e := next(t, o); string(e.Topic()) != "1" {
		t.Errorf("%q", e.Topic())
	}
	var file bytes.Buffer
	w, err := NewWriter(&file, p.tap.Ends())
	must(t, err)
	must(t, o.Record(testContext(t), w))
	if all, err := readAll(&file); len(all) != 2 || err != io.EOF {
		t.Errorf("%q, %v", all, err)
	}
}

// A truncated recording is read up to the last complete record, and the error has the
// offset of the torn one.
func TestTornEnd(t *testing.T) {
	t.Parallel()
	file := recording(t, 5)
	whole, err := readAll(bytes.NewReader(file))
	if len(whole) != 6 || err != io.EOF {
		t.Fatalf("%q, %v", whole, err)
	}
	var ends []int // of the records
	for at := fileHead; at < len(file); at = ends[len(ends)-1] {
		ends = append(ends, at+recordHead+int(binary.BigEndian.Uint32(file[at:])))
	}
	for size := range len(file) {
		all, err := readAll(bytes.NewReader(file[:size]))
		if size < fileHead {
			if !errors.Is(err, ErrFormat) {
				t.Fatalf("%d bytes: %v", size, err)
			}
			continue
		}
		n, at := 0, fileHead
		for n < len(ends) && ends[n] <= size {
			at = ends[n]
			n++
		}
		if fmt.Sprint(all) != fmt.Sprint(whole[:n]) {
			t.Fatalf("%d bytes: %d events, want %d", size, len(all), n)
		}
		var torn *TornError
		if at == size && err != io.EOF || at != size && (!errors.As(err, &torn) || torn.Offset != int64(at)) {
			t.Fatalf("%d bytes: %v, want a torn record at %d", size, err, at)
		}
	}
}

// A wrong bit anywhere is detected, and all records before it are read.
func TestDamage(t *testing.T) {
	t.Parallel()
	file := recording(t, 4)
	whole, _ := readAll(bytes.NewReader(file))
	for at := range file {
		damaged := bytes.Clone(file)
		damaged[at] ^= 0x10
		all, err := readAll(bytes.NewReader(damaged))
		var torn *TornError
		var corrupt *CorruptError
		switch {
		case at < 10:
			if !errors.Is(err, ErrFormat) {
				t.Fatalf("byte %d: %v", at, err)
			}
		case at < fileHead: // socket types, and unused bytes
			if err != io.EOF {
				t.Fatalf("byte %d: %v", at, err)
			}
		case !errors.As(err, &torn) && !errors.As(err, &corrupt):
			t.Fatalf("byte %d: %v", at, err)
		case len(all) >= len(whole) || fmt.Sprint(all) != fmt.Sprint(whole[:len(all)]):
			t.Fatalf("byte %d: %q", at, all)
		}
	}
}

// Invalid records are rejected even with correct checksums, and no announced size makes
// the reader allocate.
func TestMalformedRecords(t *testing.T) {
	t.Parallel()
	head := recording(t, 0)[:fileHead]
	record := func(body ...byte) []byte {
		r := append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), 0, 0, 0, 0)
		r = append(r, body...)
		seal(r)
		return r
	}
	message := func(what byte, content ...byte) []byte {
		return record(append([]byte{what, 0, 0, 0, 0, 0, 0, 0, 1}, content...)...)
	}
	for name, r := range map[string][]byte{
		"no body":                  record(),
		"no time":                  record(1, 0, 0),
		"no message":               message(1),
		"another kind":             message(4, 0, 0),
		"kind 0":                   message(0, 0, 0),
		"half a frame":             message(1, 0, 5, 'x'),
		"more than a message":      message(1, 0, 0, 0, 0),
		"a frame is missing":       message(1, 1, 0),
		"a command":                message(1, 4, 0),
		"half a long header":       message(1, 2, 0, 0),
		"a frame of 2^63 bytes":    message(1, 2, 128, 0, 0, 0, 0, 0, 0, 0, 1),
		"a frame of 2^64-1 bytes":  message(1, 2, 255, 255, 255, 255, 255, 255, 255, 255),
		"short numbers":            message(3, 0),
		"a record of 2^32-1 bytes": {255, 255, 255, 255, 0, 0, 0, 0},
	} {
		_, err := readAll(io.MultiReader(bytes.NewReader(head), bytes.NewReader(r), strings.NewReader("more")))
		var corrupt *CorruptError
		if !errors.As(err, &corrupt) || corrupt.Offset != fileHead {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Bits that receivers must ignore (RFC 37), and long headers of short frames, are
	// valid.
	if all, err := readAll(bytes.NewReader(append(bytes.Clone(head), message(1, 0xF8|2, 0, 0, 0, 0, 0, 0, 0, 1, 'x')...))); len(all) != 1 || err != io.EOF {
		t.Errorf("%q, %v", all, err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := readAll(io.MultiReader(bytes.NewReader(head), bytes.NewReader([]byte{127, 0, 0, 0, 0, 0, 0, 0, 1})))
	runtime.ReadMemStats(&after)
	if torn := (*TornError)(nil); !errors.As(err, &torn) {
		t.Error(err)
	}
	// Other tests allocate at the same time, but much less than 2 GiB.
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<30 {
		t.Errorf("%d bytes allocated for a missing record", n)
	}
}

// Files that are not recordings are rejected.
func TestFormat(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"", "ESPRESSO", "espresso\x00\x01\x0a\x09\x00\x00\x00\x00", "ESPRESSO\x00\x02\x0a\x09\x00\x00\x00\x00", strings.Repeat("x", 100)} {
		if _, err := NewReader(strings.NewReader(file)); !errors.Is(err, ErrFormat) {
			t.Errorf("%q: %v", file, err)
		}
	}
	fault := errors.New("a test's")
	if _, err := NewReader(iotest.ErrReader(fault)); !errors.Is(err, fault) {
		t.Error(err)
	}
	r, err := NewReader(io.MultiReader(bytes.NewReader(recording(t, 3)), iotest.ErrReader(fault)))
	must(t, err)
	var e Event
	for range 4 {
		must(t, r.Next(&e))
	}
	if err := r.Next(&e); !errors.Is(err, fault) {
		t.Error(err)
	}
}

// failing is a file on a full disk.
type failing struct{ room int }

func (f *failing) Write(b []byte) (int, error) {
	n := min(len(b), f.room)
	f.room -= n
	if n < len(b) {
		return n, errFull
	}
	return n, nil
}

var errFull = errors.New("the disk is full")

// An error of the file ends the recording, but not the traffic.
func TestRecordFails(t *testing.T) {
	t.Parallel()
	p := newPipeline(t, Options{})
	o := p.tap.Observe(Filter{})
	t.Cleanup(o.Close)
	if _, err := NewWriter(&failing{10}, p.tap.Ends()); !errors.Is(err, errFull) {
		t.Errorf("no room for the head: %v", err)
	}
	w, err := NewWriter(&failing{100}, p.tap.Ends())
	must(t, err)
	p.pass(t, strings.Repeat("x", 200))
	if err := o.Record(testContext(t), w); !errors.Is(err, errFull) {
		t.Error(err)
	}
	p.pass(t, "more")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	o2 := p.tap.Observe(Filter{})
	t.Cleanup(o2.Close)
	if err := o2.Record(ended, w); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// FuzzReader: reading any file ends, with valid events and an error of a known kind.
func FuzzReader(f *testing.F) {
	f.Add(recording(f, 3))
	f.Add(recording(f, 0))
	f.Add([]byte(fileMagic))
	f.Fuzz(func(t *testing.T, file []byte) {
		// Without correct checksums, other code would not be reached.
		if len(file) > fileHead {
			for rest := file[fileHead:]; len(rest) >= recordHead; {
				size := uint64(binary.BigEndian.Uint32(rest))
				if size > uint64(len(rest)-recordHead) {
					break
				}
				seal(rest[:recordHead+size])
				rest = rest[recordHead+size:]
			}
		}
		r, err := NewReader(bytes.NewReader(file))
		if err != nil {
			if !errors.Is(err, ErrFormat) {
				t.Fatal(err)
			}
			return
		}
		var e Event
		for err = r.Next(&e); err == nil; err = r.Next(&e) {
			if len(e.Frames) == 0 && e.Op != OpLost || e.Envelope > len(e.Frames) {
				t.Fatalf("%+v", e)
			}
			_, _ = e.Topic(), e.Size()
		}
		var torn *TornError
		var corrupt *CorruptError
		if err != io.EOF && !errors.As(err, &torn) && !errors.As(err, &corrupt) {
			t.Fatal(err)
		}
	})
}
