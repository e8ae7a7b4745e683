package zmtp

import (
	"bytes"
	"math"
	"testing"

	"clustermap/internal/testenv"
)

func TestAppendHeader(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		flags byte
		size  int
		want  string
	}{
		{0, 0, "\x00\x00"},
		{FlagMore, 1, "\x01\x01"},
		{FlagCommand, 255, "\x04\xff"},
		{0, 256, "\x02\x00\x00\x00\x00\x00\x00\x01\x00"},
		{FlagMore, 1 << 24, "\x03\x00\x00\x00\x00\x01\x00\x00\x00"},
		{FlagCommand, 65536, "\x06\x00\x00\x00\x00\x00\x01\x00\x00"},
		// The size determines the form, and reserved bits are never sent.
		{FlagLong, 5, "\x00\x05"},
		{0xF8 | FlagMore, 5, "\x01\x05"},
	} {
		if got := AppendHeader([]byte("x"), c.flags, c.size); string(got) != "x"+c.want {
			t.Errorf("flags %02x size %d: %x, want %x", c.flags, c.size, got[1:], c.want)
		}
	}
}

func TestAppendFrame(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, 254, 255, 256, 257, 65535, 65536, 100000} {
		body := bytes.Repeat([]byte{'b'}, size)
		for _, more := range []bool{false, true} {
			frame := AppendFrame(nil, body, more)
			if len(frame) != FrameSize(size) {
				t.Errorf("size %d: %d bytes, FrameSize says %d", size, len(frame), FrameSize(size))
			}
			h, ok, huge := parseHeader(frame)
			if !ok || huge || h.body != size || !bytes.Equal(frame[h.size:], body) {
				t.Errorf("size %d: header %+v ok %v huge %v", size, h, ok, huge)
			}
			if (h.flags&FlagMore != 0) != more || (h.flags&FlagLong != 0) != (size > 255) || h.flags&FlagCommand != 0 {
				t.Errorf("size %d more %v: flags %02x", size, more, h.flags)
			}
		}
	}
}

func TestParseHeader(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in       string
		want     header
		ok, huge bool
	}{
		{"", header{}, false, false},
		{"\x01", header{flags: 1, size: 2}, false, false},
		{"\x02\x00\x00\x00\x00\x00\x00\x00", header{flags: 2, size: 9}, false, false},
		{"\x01\x07", header{1, 2, 7}, true, false},
		{"\x02\x00\x00\x00\x00\x00\x00\x00\x07", header{2, 9, 7}, true, false},
		{"\x02\x80\x00\x00\x00\x00\x00\x00\x00", header{flags: 2, size: 9}, true, true},
		{"\x02\xff\xff\xff\xff\xff\xff\xff\xff", header{flags: 2, size: 9}, true, true},
	} {
		h, ok, huge := parseHeader([]byte(c.in))
		if h != c.want || ok != c.ok || huge != c.huge {
			t.Errorf("%x: %+v %v %v, want %+v %v %v", c.in, h, ok, huge, c.want, c.ok, c.huge)
		}
	}
	if math.MaxInt == math.MaxInt64 {
		h, ok, huge := parseHeader([]byte("\x02\x7f\xff\xff\xff\xff\xff\xff\xff"))
		if h.body != math.MaxInt || !ok || huge {
			t.Errorf("2^63-1: %+v %v %v", h, ok, huge)
		}
	}
}

// noAllocs fails the test if f allocates. testenv.Allocs measures the whole
// process, so the caller must not be a parallel test.
func noAllocs(t *testing.T, what string, f func()) {
	t.Helper()
	if n := testenv.Allocs(0, 100, f); n != 0 {
		t.Errorf("%s: %v allocations, want none", what, n)
	}
}

func TestEncodeAllocs(t *testing.T) {
	body, long := make([]byte, 40), make([]byte, 1000)
	buf := make([]byte, 0, 4096)
	noAllocs(t, "AppendHeader", func() { buf = AppendHeader(buf[:0], 0, 300) })
	noAllocs(t, "AppendFrame", func() { buf = AppendFrame(buf[:0], body, true) })
	noAllocs(t, "AppendMessage", func() { buf = AppendMessage(buf[:0], body, nil, long) })
	noAllocs(t, "AppendSubscribe", func() { buf = AppendSubscribe(buf[:0], body) })
	noAllocs(t, "AppendCancel", func() { buf = AppendCancel(buf[:0], body) })
	noAllocs(t, "AppendPing", func() { buf = AppendPing(buf[:0], 10, body) })
	noAllocs(t, "AppendPong", func() { buf = AppendPong(buf[:0], body) })
	noAllocs(t, "AppendError", func() { buf = AppendError(buf[:0], "reason") })
	noAllocs(t, "AppendProperty", func() { buf = AppendProperty(buf[:0], PropertyIdentity, body) })
	noAllocs(t, "AppendGreeting", func() { buf = AppendGreeting(buf[:0], Greeting{Mechanism: "NULL"}) })
}
