package zmtp

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"clustermap/internal/testenv"
)

// oldForms holds messages in all three framings.
var oldForms = []struct {
	name      string
	v3        []byte
	one, two  string
	oneLonger bool // its ZMTP 1.0 form is also right in the long form
}{
	{"empty", AppendMessage(nil, nil), "\x01\x00", "\x00\x00", true},
	{"one byte", AppendMessage(nil, []byte("m")), "\x02\x00m", "\x00\x01m", true},
	{"two frames", AppendMessage(nil, nil, []byte("ab")), "\x01\x01\x03\x00ab", "\x01\x00\x00\x02ab", false},
	{"253", AppendMessage(nil, filler(253)), "\xfe\x00" + string(filler(253)), "\x00\xfd" + string(filler(253)), true},
	{"254", AppendMessage(nil, filler(254)), "\xff\x00\x00\x00\x00\x00\x00\x00\xff\x00" + string(filler(254)), "\x00\xfe" + string(filler(254)), false},
	{"255", AppendMessage(nil, filler(255)), "\xff\x00\x00\x00\x00\x00\x00\x01\x00\x00" + string(filler(255)), "\x00\xff" + string(filler(255)), false},
	{"256", AppendMessage(nil, filler(256)), "\xff\x00\x00\x00\x00\x00\x00\x01\x01\x00" + string(filler(256)), "\x02\x00\x00\x00\x00\x00\x00\x01\x00" + string(filler(256)), false},
	{"256 and one", AppendMessage(nil, filler(256), []byte("x")), "\xff\x00\x00\x00\x00\x00\x00\x01\x01\x01" + string(filler(256)) + "\x02\x00x",
		"\x03\x00\x00\x00\x00\x00\x00\x01\x00" + string(filler(256)) + "\x00\x01x", false},
}

func filler(n int) []byte { return []byte(strings.Repeat("o", n)) }

func codecs() map[string]*oldCodec {
	return map[string]*oldCodec{"1.0": newOldCodec(zmtp10, 1<<20), "2.0": newOldCodec(zmtp20, 1<<20)}
}

func TestOldCodecEncode(t *testing.T) {
	t.Parallel()
	for _, c := range oldForms {
		for name, codec := range codecs() {
			want := c.one
			if name == "2.0" {
				want = c.two
			}
			got, err := codec.Encode([]byte("x"), c.v3)
			if string(got) != "x"+want || err != nil {
				t.Errorf("%s, %s: %x %v", name, c.name, got, err)
			}
			if n := codec.MaxEncoded(len(c.v3), WireMessage(c.v3).Len()); n < len(want) {
				t.Errorf("%s, %s: MaxEncoded %d of %d", name, c.name, n, len(want))
			}
		}
	}
}

// TestOldCodecCommands: subscriptions become messages, and other commands are
// omitted, even within a message.
func TestOldCodecCommands(t *testing.T) {
	t.Parallel()
	in := slices.Concat(AppendSubscribe(nil, []byte("A")), AppendFrame(nil, []byte("1"), true), AppendPing(nil, 0, []byte("c")),
		AppendFrame(nil, []byte("2"), false), AppendPong(nil, nil), AppendCancel(nil, nil), AppendError(nil, "no"),
		AppendSubscribe(nil, filler(254)))
	for name, want := range map[string]string{
		"1.0": "\x03\x00\x01A" + "\x02\x011" + "\x02\x002" + "\x02\x00\x00" + "\xff\x00\x00\x00\x00\x00\x00\x01\x00\x00\x01" + string(filler(254)),
		"2.0": "\x00\x02\x01A" + "\x01\x011" + "\x00\x012" + "\x00\x01\x00" + "\x00\xff\x01" + string(filler(254)),
	} {
		got, err := codecs()[name].Encode(nil, in)
		if string(got) != want || err != nil {
			t.Errorf("%s: %q %v", name, got, err)
		}
	}
	for name, codec := range codecs() {
		for _, bad := range []string{"\x00", "\x00\x01", "\x02\x00", "\x04\x00", "\x02\xff\xff\xff\xff\xff\xff\xff\xff"} {
			_, err := codec.Encode(nil, []byte(bad))
			if err == nil {
				t.Errorf("%s: %x is taken", name, bad)
				continue
			}
			wantError(t, err, ErrMalformed)
		}
	}
}

// TestOldCodecDecode splits a stream of all forms at every offset, and into pieces
// of every size, with a small and a large limit.
func TestOldCodecDecode(t *testing.T) {
	t.Parallel()
	streams := map[string][]byte{}
	var want []byte
	for _, c := range oldForms {
		streams["1.0"] = append(streams["1.0"], c.one...)
		streams["2.0"] = append(streams["2.0"], c.two...)
		want = append(want, c.v3...)
		if c.oneLonger {
			n := len(c.one) - 1
			streams["1.0"] = append(streams["1.0"], 0xFF, 0, 0, 0, 0, 0, 0, 0, byte(n))
			streams["1.0"] = append(streams["1.0"], c.one[1:]...)
			streams["2.0"] = append(streams["2.0"], "\x02\x00\x00\x00\x00\x00\x00\x00"+c.two[1:]...)
			want = append(want, c.v3...)
		}
	}
	for name, stream := range streams {
		for _, limit := range []int{1, 300, 1 << 20} {
			for piece := 1; piece <= len(stream); piece += 1 + piece/40 {
				codec := codecs()[name]
				var got, wire []byte
				for at := 0; at < len(stream); {
					end := min(at+piece, len(stream))
					wire = append(wire, stream[at:end]...)
					at = end
					for {
						before := len(got)
						var used, need int
						var err error
						got, used, need, err = codec.Decode(got, wire, limit)
						if err != nil || need < 1 || used > len(wire) {
							t.Fatalf("%s, pieces of %d: used %d, need %d, %v", name, piece, used, need, err)
						}
						if used > 0 && len(got)-before > limit+600 {
							t.Fatalf("%s: %d bytes, the limit is %d", name, len(got)-before, limit)
						}
						if wire = wire[used:]; used == 0 {
							if need <= len(wire) {
								t.Fatalf("%s: needs %d of %d", name, need, len(wire))
							}
							break
						}
					}
				}
				if !bytes.Equal(got, want) || len(wire) > 0 {
					t.Fatalf("%s, pieces of %d: %x, want %x; %d left", name, piece, got, want, len(wire))
				}
			}
		}
	}
}

// TestOldCodecErrors: each error is detected from the header and returned again,
// and the frames before it are delivered.
func TestOldCodecErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		version, in string
		want        error
	}{
		{"1.0", "\x00", ErrMalformed},
		{"1.0", "\xff\x00\x00\x00\x00\x00\x00\x00\x00\x00", ErrMalformed},
		{"1.0", "\xff\x80\x00\x00\x00\x00\x00\x00\x00\x00", ErrTooLarge},
		{"1.0", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00", ErrTooLarge},
		{"1.0", "\xff\x7f\xff\xff\xff\xff\xff\xff\xff\x00", ErrTooLarge},
		{"1.0", "\xff\x00\x00\x00\x00\x00\x10\x00\x02\x00", ErrTooLarge},
		{"2.0", "\x04", ErrMalformed},
		{"2.0", "\x06", ErrMalformed},
		{"2.0", "\x02\x80\x00\x00\x00\x00\x00\x00\x00", ErrTooLarge},
		{"2.0", "\x02\x7f\xff\xff\xff\xff\xff\xff\xff", ErrTooLarge},
		{"2.0", "\x03\x00\x00\x00\x00\x00\x10\x00\x01", ErrTooLarge},
	} {
		good := map[string]string{"1.0": "\x02\xfem", "2.0": "\xf8\x01m"}[c.version] // reserved bits are ignored
		codec := codecs()[c.version]
		if out, used, need, err := codec.Decode(nil, []byte(good+c.in[:len(c.in)-1]), 100); err != nil || string(out) != "\x00\x01m" || used != len(good) || need < len(c.in) {
			t.Errorf("%s %x: too soon: %x %d %d %v", c.version, c.in, out, used, need, err)
		}
		out, used, _, err := codec.Decode(nil, []byte(good+c.in), 100)
		if string(out) != "\x00\x01m" || used != len(good) {
			t.Errorf("%s %x: %x %d", c.version, c.in, out, used)
		}
		wantError(t, err, c.want)
		if _, _, _, again := codec.Decode(nil, []byte(good), 100); again != err {
			t.Errorf("%s %x: then %v", c.version, c.in, again)
		}
	}
}

// TestOldCodecAlloc: with enough capacity the codec does not allocate.
func TestOldCodecAlloc(t *testing.T) {
	for name, codec := range codecs() {
		frames := AppendMessage(nil, []byte("topic"), filler(300))
		wire, err := codec.Encode(nil, frames)
		if err != nil {
			t.Fatal(err)
		}
		dst := make([]byte, 0, 1000)
		if n := testenv.Allocs(0, 100, func() {
			if _, err := codec.Encode(dst, frames); err != nil {
				t.Fatal(err)
			}
			if _, _, _, err := codec.Decode(dst, wire, 1000); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func TestNewCodecBounds(t *testing.T) {
	t.Parallel()
	// Without a limit the size of header and body must not overflow.
	h := NewHandshake(HandshakeConfig{SocketType: TypePull, MinVersion: 1, Limits: Limits{MaxMessage: -1}})
	if _, _, done, err := step(h, "\x01\x00", 2); !done || err != nil {
		t.Fatal(done, err)
	}
	wire := fmt.Sprintf("\xff%s\x00", "\x7f\xff\xff\xff\xff\xff\xff\xff")
	_, used, need, err := h.Codec().Decode(nil, []byte(wire), 100)
	if used != 0 || (err == nil && need < math.MaxInt/2) {
		t.Errorf("%d %d %v", used, need, err)
	}
}
