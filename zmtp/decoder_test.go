package zmtp

import (
	"bytes"
	"math"
	"reflect"
	"strings"
	"testing"
)

// item is a message or command that a decoder returned.
type item struct {
	kind  Kind
	bytes string
}

// decode passes stream to a decoder in pieces that end at the given offsets, and
// returns the items. It copies the remaining bytes to a new address each time.
func decode(l Limits, stream []byte, ends ...int) (items []item, err error) {
	d := NewDecoder(l)
	var b []byte
	start, whole := 0, 0
	for _, end := range append(ends, len(stream)) {
		b = append(bytes.Clone(b), stream[start:end]...)
		start = end
		for {
			kind, n, err := d.Next(b)
			if err != nil {
				return items, err
			}
			if kind == KindNeedMore {
				if n != 0 || d.Need() <= len(b) {
					panic("KindNeedMore without a need")
				}
				if d.Last() {
					whole = d.Need()
				}
				break
			}
			if whole > 0 && (kind != KindMessage || n != whole) {
				panic("Last, and then a message of another size")
			}
			whole = 0
			items = append(items, item{kind, string(b[:n])})
			b = b[n:]
		}
	}
	return items, nil
}

// scripts are streams and their contents.
var scripts = []struct {
	name   string
	stream string
	want   []item
}{
	{"empty", "", nil},
	{"one frame", "\x00\x04ALOL", []item{{KindMessage, "\x00\x04ALOL"}}},
	{"empty frame", "\x00\x00", []item{{KindMessage, "\x00\x00"}}},
	{"two messages", "\x00\x01a\x00\x01b", []item{{KindMessage, "\x00\x01a"}, {KindMessage, "\x00\x01b"}}},
	{"three frames", "\x01\x01a\x01\x00\x00\x01c", []item{{KindMessage, "\x01\x01a\x01\x00\x00\x01c"}}},
	{"long frame", "\x02\x00\x00\x00\x00\x00\x00\x01\x00" + strings.Repeat("l", 256),
		[]item{{KindMessage, "\x02\x00\x00\x00\x00\x00\x00\x01\x00" + strings.Repeat("l", 256)}}},
	{"long form with a small size", "\x03\x00\x00\x00\x00\x00\x00\x00\x01a\x02\x00\x00\x00\x00\x00\x00\x00\x00",
		[]item{{KindMessage, "\x03\x00\x00\x00\x00\x00\x00\x00\x01a\x02\x00\x00\x00\x00\x00\x00\x00\x00"}}},
	{"reserved flags", "\xf9\x01a\xf8\x01b\xfc\x05\x04PONG",
		[]item{{KindMessage, "\xf9\x01a\xf8\x01b"}, {KindCommand, "\xfc\x05\x04PONG"}}},
	{"SUBSCRIBE", "\x04\x0b\x09SUBSCRIBEA", []item{{KindCommand, "\x04\x0b\x09SUBSCRIBEA"}}},
	{"long command", "\x06\x00\x00\x00\x00\x00\x00\x00\x05\x04PONG",
		[]item{{KindCommand, "\x06\x00\x00\x00\x00\x00\x00\x00\x05\x04PONG"}}},
	{"command between messages", "\x00\x01a\x04\x07\x04PING\x00\x00\x00\x01b",
		[]item{{KindMessage, "\x00\x01a"}, {KindCommand, "\x04\x07\x04PING\x00\x00"}, {KindMessage, "\x00\x01b"}}},
	{"command inside a message", "\x01\x01a\x04\x07\x04PING\x00\x00\x00\x01b",
		[]item{{KindCommand, "\x04\x07\x04PING\x00\x00"}, {KindMessage, "\x01\x01a\x00\x01b"}}},
	{"commands inside a message",
		"\x01\x01a\x04\x05\x04PONG\x04\x07\x04PING\x00\x00\x01\x02bc\x04\x03\x02XY\x00\x01d\x00\x00",
		[]item{{KindCommand, "\x04\x05\x04PONG"}, {KindCommand, "\x04\x07\x04PING\x00\x00"},
			{KindCommand, "\x04\x03\x02XY"}, {KindMessage, "\x01\x01a\x01\x02bc\x00\x01d"}, {KindMessage, "\x00\x00"}}},
	{"long command inside a message",
		"\x01\x01a\x06\x00\x00\x00\x00\x00\x00\x01\x2c" + strings.Repeat("c", 300) + "\x00\x01b",
		[]item{{KindCommand, "\x06\x00\x00\x00\x00\x00\x00\x01\x2c" + strings.Repeat("c", 300)},
			{KindMessage, "\x01\x01a\x00\x01b"}}},
	{"long command inside a long message",
		"\x03\x00\x00\x00\x00\x00\x00\x01\x90" + strings.Repeat("a", 400) +
			"\x06\x00\x00\x00\x00\x00\x00\x01\x2c" + strings.Repeat("c", 300) + "\x00\x01b",
		[]item{{KindCommand, "\x06\x00\x00\x00\x00\x00\x00\x01\x2c" + strings.Repeat("c", 300)},
			{KindMessage, "\x03\x00\x00\x00\x00\x00\x00\x01\x90" + strings.Repeat("a", 400) + "\x00\x01b"}}},
	{"cut short", "\x00\x01a\x01\x05abc", []item{{KindMessage, "\x00\x01a"}}},
}

// TestDecoderScripts decodes every script whole, split at every byte, and
// byte by byte.
func TestDecoderScripts(t *testing.T) {
	t.Parallel()
	for _, c := range scripts {
		check := func(how string, at int, ends ...int) {
			got, err := decode(Limits{}, []byte(c.stream), ends...)
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("%s, %s %d: %q %v, want %q", c.name, how, at, got, err, c.want)
			}
		}
		check("whole", 0)
		var all []int
		for i := range c.stream {
			check("split at", i, i)
			all = append(all, i)
		}
		check("byte by byte", 1, all...)
	}
}

// TestDecoderErrors decodes invalid streams, and checks after how many bytes they
// are refused.
func TestDecoderErrors(t *testing.T) {
	t.Parallel()
	size := func(flags byte, n uint64) string {
		b := []byte{flags}
		for shift := 56; shift >= 0; shift -= 8 {
			b = append(b, byte(n>>shift))
		}
		return string(b)
	}
	tiny := Limits{MaxMessage: 10, MaxFrames: 3, MaxCommand: 6}
	for _, c := range []struct {
		name   string
		limits Limits
		in     string
		at     int
		want   error
	}{
		{"command with MORE", Limits{}, "\x05\x05\x04PONG", 1, ErrMalformed},
		{"long command with MORE", Limits{}, size(0x07, 5) + "\x04PONG", 1, ErrMalformed},
		{"command with MORE inside", Limits{}, "\x01\x00\x05\x05\x04PONG", 3, ErrMalformed},
		{"size 2^63", Limits{-1, -1, -1}, size(0x02, 1<<63), 9, ErrTooLarge},
		{"size 2^64-1", Limits{-1, -1, -1}, size(0x03, math.MaxUint64), 9, ErrTooLarge},
		{"sum over int", Limits{-1, -1, -1}, size(0x02, math.MaxInt64), 9, ErrTooLarge},
		{"command of 2^63", Limits{-1, -1, -1}, size(0x06, 1<<63), 9, ErrTooLarge},
		{"default MaxMessage", Limits{}, size(0x02, 256<<20), 9, ErrTooLarge},
		{"default MaxCommand", Limits{}, size(0x06, 64<<10+1), 9, ErrTooLarge},
		{"default MaxFrames", Limits{}, strings.Repeat("\x01\x00", 65536) + "\x00", 2*65536 + 1, ErrTooLarge},
		{"MaxMessage short", tiny, "\x00\x09123456789", 2, ErrTooLarge},
		{"MaxMessage long", tiny, size(0x02, 2), 9, ErrTooLarge},
		{"MaxMessage sum", tiny, "\x01\x041234\x00\x03", 8, ErrTooLarge},
		{"MaxFrames", tiny, "\x01\x00\x01\x00\x01\x00\x00\x00", 7, ErrTooLarge},
		{"MaxCommand", tiny, "\x04\x07\x04PING\x00\x00", 2, ErrTooLarge},
		{"MaxCommand inside", tiny, "\x01\x00\x04\x07\x04PING\x00\x00", 4, ErrTooLarge},
	} {
		d := NewDecoder(c.limits)
		for i := range len(c.in) + 1 {
			if i > 100 && i < c.at-2 {
				continue // the long one
			}
			kind, n, err := d.Next([]byte(c.in[:i]))
			if kind != KindNeedMore || n != 0 {
				t.Fatalf("%s: %d bytes: kind %d n %d", c.name, i, kind, n)
			}
			if i < c.at && err != nil {
				t.Errorf("%s: %d bytes: %v", c.name, i, err)
			}
			if i >= c.at {
				wantError(t, err, c.want)
			}
		}
	}
}

// TestDecoderAtLimits: messages of exactly the limits are accepted, and commands do
// not count.
func TestDecoderAtLimits(t *testing.T) {
	t.Parallel()
	l := Limits{MaxMessage: 10, MaxFrames: 3, MaxCommand: 7}
	for _, stream := range []string{
		"\x00\x0812345678",
		"\x01\x01a\x01\x02bc\x00\x01d",
		"\x04\x07\x04PING\x00\x00",
	} {
		if items, err := decode(l, []byte(stream)); len(items) != 1 || err != nil {
			t.Errorf("%q: %q %v", stream, items, err)
		}
	}
	stream := "\x01\x01a\x01\x02bc\x04\x07\x04PING\x00\x00\x00\x01d"
	if items, err := decode(l, []byte(stream)); len(items) != 2 || err != nil {
		t.Errorf("%q: %q %v", stream, items, err)
	}
	// Without limits a large size only makes Need large.
	d := NewDecoder(Limits{-1, -1, -1})
	if kind, _, err := d.Next([]byte("\x02\x00\x00\x00\x00\x7f\xff\x00\x00")); kind != KindNeedMore || err != nil {
		t.Error(kind, err)
	}
	if d.Need() != 9+0x7fff0000 {
		t.Error(d.Need())
	}
}

func TestDecoderNeed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in   string
		want int
		last bool
	}{
		{"", 2, false},
		{"\x00", 2, false},
		{"\x02", 9, false},
		{"\x00\x05", 7, true},
		{"\x01\x05", 9, false}, // and the header of the next frame
		{"\x01\x01a", 5, false},
		{"\x01\x01a\x02", 12, false},
		{"\x01\x01a\x00\x05", 10, true},
		{"\x01\x01a\x04\x05", 10, false},
		{"\x02\x00\x00\x00\x00\x00\x01\x00\x00", 65536 + 9, true},
	} {
		var d Decoder
		if kind, _, err := d.Next([]byte(c.in)); kind != KindNeedMore || err != nil {
			t.Errorf("%x: %d %v", c.in, kind, err)
		}
		if d.Need() != c.want {
			t.Errorf("%x: need %d, want %d", c.in, d.Need(), c.want)
		}
		if d.Last() != c.last {
			t.Errorf("%x: last %t", c.in, d.Last())
		}
	}
	var d Decoder
	if d.Need() != 2 {
		t.Errorf("at first: need %d", d.Need())
	}
}

func TestDecoderReset(t *testing.T) {
	t.Parallel()
	d := NewDecoder(Limits{MaxFrames: 2})
	if kind, _, _ := d.Next([]byte("\x01\x01a\x00\x05")); kind != KindNeedMore {
		t.Fatal(kind)
	}
	d.Reset()
	if kind, n, err := d.Next([]byte("\x00\x01b")); kind != KindMessage || n != 3 || err != nil {
		t.Error(kind, n, err)
	}
	if _, _, err := d.Next([]byte("\x01\x00\x01\x00\x01\x00")); err == nil {
		t.Error("Reset lost the limits")
	}
	d.Reset()
	d.SetLimits(Limits{})
	if kind, _, err := d.Next([]byte("\x01\x00\x01\x00\x00\x00")); kind != KindMessage {
		t.Error(kind, err)
	}
}

func TestRotate(t *testing.T) {
	t.Parallel()
	for _, a := range []int{1, 2, 255, 256, 257, 1000} {
		for _, c := range []int{1, 7, 255, 256, 257, 900} {
			front, back := bytes.Repeat([]byte("a"), a), bytes.Repeat([]byte("c"), c)
			front[0], back[0] = 'A', 'C'
			b := append(bytes.Clone(front), back...)
			rotate(b, a)
			if string(b) != string(back)+string(front) {
				t.Errorf("%d and %d bytes", a, c)
			}
		}
	}
}

// flood decodes a partial message of the given size, followed by commands of ten
// bytes, and returns after how many commands it was refused.
func flood(t *testing.T, part, commands int) (refused int, moved int64) {
	t.Helper()
	d := NewDecoder(Limits{})
	b := AppendFrame(nil, make([]byte, part), true)
	command := AppendPing(nil, 0, []byte("x"))
	for i := range commands {
		b = append(b, command...)
		kind, n, err := d.Next(b)
		if err != nil {
			wantError(t, err, ErrTooLarge)
			if _, _, again := d.Next(b); again == nil {
				t.Error("the error went away")
			}
			return i, d.moved
		}
		if kind != KindCommand || string(b[:n]) != string(command) {
			t.Fatalf("command %d: kind %d, %x", i, kind, b[:n])
		}
		copy(b, b[n:]) // to keep the buffer small
		b = b[:len(b)-n]
	}
	return commands, d.moved
}

// TestDecoderCommandFlood: the number of bytes moved for commands inside a message
// is proportional to the number of bytes received.
func TestDecoderCommandFlood(t *testing.T) {
	t.Parallel()
	const many = 20000
	for _, part := range []int{10_000, 100_000, 1 << 20} {
		refused, moved := flood(t, part, many)
		if refused == many {
			t.Errorf("part of %d bytes: never refused", part)
		}
		if refused < rotationFactor {
			t.Errorf("part of %d bytes: refused after %d commands", part, refused)
		}
		if received := int64(part + refused*10); moved > rotationFree+(received+20)*rotationFactor {
			t.Errorf("part of %d bytes: moved %d for %d received", part, moved, received)
		}
	}
	// A part that is shorter than each command's share of the limit is not refused.
	for _, part := range []int{10, 1000} {
		if refused, _ := flood(t, part, many); refused != many {
			t.Errorf("part of %d bytes: refused after %d commands", part, refused)
		}
	}
}

func TestDecoderAllocs(t *testing.T) {
	buf, _ := fill(fiveFrames(), 4096)
	buf = append(buf, AppendMessage(nil, make([]byte, 1000), make([]byte, 3))...)
	buf = AppendPing(buf, 0, nil)
	inside := AppendPing(AppendFrame(nil, make([]byte, 300), true), 0, nil)
	inside = AppendFrame(inside, nil, false)
	scratch := make([]byte, len(inside))
	var d Decoder
	drain := func(rest []byte) {
		for {
			kind, n, err := d.Next(rest)
			if err != nil {
				t.Fatal(err)
			}
			if kind == KindNeedMore {
				return
			}
			rest = rest[n:]
		}
	}
	noAllocs(t, "Next", func() { drain(buf) })
	noAllocs(t, "Next with a command inside", func() { copy(scratch, inside); drain(scratch) })
	noAllocs(t, "Next byte by byte", func() {
		for i := range fiveFrames80 {
			if kind, _, err := d.Next(fiveFrames80[:i]); kind != KindNeedMore || err != nil {
				t.Fatal(kind, err)
			}
		}
		drain(fiveFrames80)
	})
}

var fiveFrames80 = fiveFrames()
