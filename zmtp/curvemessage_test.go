package zmtp

import (
	"bytes"
	"encoding/binary"
	"math"
	"sync"
	"testing"

	"clustermap/internal/testenv"
)

// codecPair returns the codecs of a client and a server.
func codecPair(l Limits) (client, server *curveCodec) {
	var key secretKey
	copy(key[:], "0123456789abcdefghijklmnopqrstuv")
	return newCurveCodec(&key, false, 2, 1, l).(*curveCodec), newCurveCodec(&key, true, 1, 2, l).(*curveCodec)
}

// pattern returns size bytes.
func pattern(size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(i * 31)
	}
	return b
}

func TestCurveMessages(t *testing.T) {
	t.Parallel()
	client, server := codecPair(Limits{})
	for round, pair := range [][2]Codec{{client, server}, {server, client}} {
		for _, size := range []int{0, 1, 15, 16, 31, 32, 33, 63, 64, 221, 222, 223, 254, 255, 256, 257, 1000, 4096, 65535, 65536, 1 << 20} {
			frames := AppendMessage(nil, pattern(size), nil, pattern(size/2))
			frames = AppendCommand(frames, "C", pattern(size))
			wire, err := pair[0].Encode([]byte("before"), frames)
			if err != nil || string(wire[:6]) != "before" {
				t.Fatal(err)
			}
			wire = wire[6:]
			if limit := pair[0].MaxEncoded(len(frames), 4); len(wire) > limit {
				t.Errorf("%d bytes of %d, above %d", len(wire), size, limit)
			}
			out, used, need, err := pair[1].Decode([]byte("before"), wire, math.MaxInt)
			if err != nil || used != len(wire) || need != shortHeader || string(out[:6]) != "before" || !bytes.Equal(out[6:], frames) {
				t.Fatalf("round %d, %d bytes: %d of %d used, need %d, %v", round, size, used, len(wire), need, err)
			}
		}
	}
}

// TestCurveWire checks the form of a MESSAGE on the wire: a message frame, as
// libzmq requires, of the sizes of RFC 26, for all contents.
func TestCurveWire(t *testing.T) {
	t.Parallel()
	client, _ := codecPair(Limits{})
	for _, c := range []struct {
		frames []byte
		size   int
	}{
		{AppendFrame(nil, nil, false), 33},
		{AppendFrame(nil, nil, true), 33},
		{AppendFrame(nil, pattern(222), false), 255},
		{AppendFrame(nil, pattern(223), false), 256},
		{AppendSubscribe(nil, []byte("topic")), 33 + 1 + 9 + 5},
	} {
		wire, err := client.Encode(nil, c.frames)
		if err != nil {
			t.Fatal(err)
		}
		h, ok, _ := parseHeader(wire)
		if !ok || h.flags&^FlagLong != 0 || h.body != c.size || len(wire) != h.size+h.body || string(wire[h.size:h.size+8]) != "\x07MESSAGE" {
			t.Errorf("%x: %x", c.frames, wire)
		}
	}
}

// TestCurveDecodeSplit passes one more byte to the receiver each time.
func TestCurveDecodeSplit(t *testing.T) {
	t.Parallel()
	client, server := codecPair(Limits{})
	frames := AppendMessage(AppendPing(AppendMessage(nil, pattern(300), nil), 7, nil), pattern(10))
	wire, err := client.Encode(nil, frames)
	if err != nil {
		t.Fatal(err)
	}
	var out []byte
	start, whole := 0, 0
	for end := 0; end <= len(wire); end++ {
		next, used, need, err := server.Decode(out, wire[start:end], 1<<20)
		if err != nil || need < 1 || len(next) < len(out) {
			t.Fatal(end, need, err)
		}
		out = next
		start += used
		if used > 0 {
			whole++
		}
		if start+need <= end {
			t.Fatalf("need %d of %d", need, end-start)
		}
		if end < len(wire) && end-start >= longHeader {
			// The header is known, so need is exact.
			h, _, _ := parseHeader(wire[start:end])
			if need != h.size+h.body {
				t.Fatalf("need %d, want %d", need, h.size+h.body)
			}
		}
	}
	if !bytes.Equal(out, frames) || whole != 4 {
		t.Errorf("%x, %d units", out, whole)
	}
}

// TestCurveDecodeLimit: Decode stops soon after limit bytes.
func TestCurveDecodeLimit(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{-1, 0, 1, 11, 12, 13, 24, 25, 1000} {
		client, server := codecPair(Limits{})
		frames := bytes.Repeat(AppendFrame(nil, pattern(10), false), 10)
		wire, err := client.Encode(nil, frames)
		if err != nil {
			t.Fatal(err)
		}
		var all []byte
		for len(wire) > 0 {
			out, used, _, err := server.Decode(nil, wire, limit)
			if err != nil || used == 0 || len(out) >= max(limit, 1)+12 || len(out) < min(limit, 12) {
				t.Fatalf("limit %d: %d bytes, %d used, %v", limit, len(out), used, err)
			}
			all = append(all, out...)
			wire = wire[used:]
		}
		if !bytes.Equal(all, frames) {
			t.Errorf("limit %d: %x", limit, all)
		}
	}
}

// TestCurveDecodeErrors makes the second of three messages invalid: the first is
// still delivered, the third is not.
func TestCurveDecodeErrors(t *testing.T) {
	t.Parallel()
	first, second, third := []byte("first"), []byte("second"), []byte("third")
	for _, c := range []struct {
		name   string
		change func(all [][]byte)
		want   error
	}{
		{"replayed", func(a [][]byte) { a[1] = a[0] }, ErrCryptographic},
		{"out of order", func(a [][]byte) { a[0], a[1] = a[1], a[0] }, ErrCryptographic},
		{"nonce 0", func(a [][]byte) { clear(a[1][10:18]) }, ErrCryptographic},
		{"nonce raised", func(a [][]byte) { a[1][10] = 1 }, ErrCryptographic},
		{"tag changed", func(a [][]byte) { a[1][18] ^= 1 }, ErrCryptographic},
		{"flags changed", func(a [][]byte) { a[1][34] ^= 1 }, ErrCryptographic},
		{"body changed", func(a [][]byte) { a[1][len(a[1])-1] ^= 0x80 }, ErrCryptographic},
		{"cut", func(a [][]byte) { a[1] = a[1][:len(a[1])-1]; a[1][1]-- }, ErrCryptographic},
		{"longer", func(a [][]byte) { a[1] = append(bytes.Clone(a[1]), 0); a[1][1]++ }, ErrCryptographic},
		{"name", func(a [][]byte) { a[1][3] = 'm' }, ErrMalformed},
		{"size of the name", func(a [][]byte) { a[1][2] = 6 }, ErrMalformed},
		{"below the least size", func(a [][]byte) { a[1] = append([]byte{0, 32}, a[1][2:34]...) }, ErrMalformed},
		{"empty", func(a [][]byte) { a[1] = []byte{0, 0} }, ErrMalformed},
		{"MORE", func(a [][]byte) { a[1][0] |= FlagMore }, ErrMalformed},
		{"plain message", func(a [][]byte) { a[1] = AppendMessage(nil, pattern(100)) }, ErrMalformed},
		{"plain PING", func(a [][]byte) { a[1] = AppendPing(nil, 0, nil) }, ErrMalformed},
		{"ERROR", func(a [][]byte) { a[1] = AppendError(nil, "400") }, ErrMalformed},
		{"2^63", func(a [][]byte) { a[1] = []byte("\x02\x80\x00\x00\x00\x00\x00\x00\x00") }, ErrTooLarge},
		{"2^62", func(a [][]byte) { a[1] = []byte("\x02\x40\x00\x00\x00\x00\x00\x00\x00") }, ErrTooLarge},
	} {
		client, server := codecPair(Limits{})
		all := make([][]byte, 3)
		for i, body := range [][]byte{first, second, third} {
			var err error
			if all[i], err = client.Encode(nil, AppendMessage(nil, body)); err != nil {
				t.Fatal(err)
			}
		}
		c.change(all)
		out, used, _, err := server.Decode(nil, bytes.Join(all, nil), 1<<20)
		wantError(t, err, c.want)
		if used != len(all[0]) || bytes.Contains(out, third) || len(out) > 2+len(second) || len(out) < 2+len(first) {
			t.Errorf("%s: %q, %d used", c.name, out, used)
		}
		// The error is returned again, even for a valid message.
		more, used, _, again := server.Decode(nil, all[2], 1<<20)
		if again != err || used != 0 || len(more) != 0 {
			t.Errorf("%s: then %q %d %v", c.name, more, used, again)
		}
	}
}

// TestCurveTamper changes each bit of a message: the message is refused, or
// incomplete, or, if the bit is ignored, unchanged.
func TestCurveTamper(t *testing.T) {
	t.Parallel()
	client, _ := codecPair(Limits{})
	frames := AppendMessage(nil, []byte("an honest message"))
	wire, err := client.Encode(nil, frames)
	if err != nil {
		t.Fatal(err)
	}
	for bit := range len(wire) * 8 {
		_, server := codecPair(Limits{})
		changed := bytes.Clone(wire)
		changed[bit/8] ^= 1 << (bit % 8)
		out, used, need, err := server.Decode(nil, changed, 1<<20)
		switch {
		case bit >= 2 && bit < 8 && err == nil: // COMMAND is taken too, other flags are reserved
			if !bytes.Equal(out, frames) {
				t.Errorf("bit %d: %x", bit, out)
			}
		case err == nil && (used != 0 || len(out) != 0 || need <= len(wire)):
			t.Errorf("bit %d: %x, %d used, need %d", bit, out, used, need)
		}
	}
}

// TestCurveReflected: a side does not accept its own messages as the peer's,
// although the keys are the same.
func TestCurveReflected(t *testing.T) {
	t.Parallel()
	client, _ := codecPair(Limits{})
	wire, err := client.Encode(nil, AppendMessage(nil, []byte("m")))
	if err != nil {
		t.Fatal(err)
	}
	_, _, _, err = client.Decode(nil, wire, 100)
	wantError(t, err, ErrCryptographic)
}

// TestCurveNonceGap: nonces may have gaps, up to the largest one.
func TestCurveNonceGap(t *testing.T) {
	t.Parallel()
	client, server := codecPair(Limits{})
	for _, count := range []uint64{5, 1 << 40, math.MaxUint64 - 1} {
		client.out.count = count
		wire, err := client.Encode(nil, AppendMessage(nil, []byte("m")))
		if err != nil || binary.BigEndian.Uint64(wire[10:]) != count+1 {
			t.Fatal(wire, err)
		}
		if _, used, _, err := server.Decode(nil, wire, 100); used != len(wire) || err != nil {
			t.Fatal(used, err)
		}
	}
	out, err := client.Encode([]byte("x"), AppendMessage(nil, []byte("m")))
	wantError(t, err, ErrTooLarge)
	if string(out) != "x" {
		t.Errorf("%q", out)
	}
}

func TestCurveEncodeErrors(t *testing.T) {
	t.Parallel()
	for _, frames := range []string{"\x00", "\x00\x01", "\x02\x00", "\x02\x80\x00\x00\x00\x00\x00\x00\x00"} {
		client, _ := codecPair(Limits{})
		whole := "\x00\x01m"
		out, err := client.Encode(nil, []byte(whole+frames))
		wantError(t, err, ErrMalformed)
		if len(out) != 2+33+1 {
			t.Errorf("%x", out)
		}
		_, again := client.Encode(nil, []byte(whole))
		if again != err {
			t.Error(again)
		}
	}
}

func TestCurveLimits(t *testing.T) {
	t.Parallel()
	client, server := codecPair(Limits{MaxMessage: 1000, MaxCommand: 100})
	wire, err := client.Encode(nil, AppendFrame(nil, pattern(1000), false))
	if err != nil {
		t.Fatal(err)
	}
	if _, used, _, err := server.Decode(nil, wire, 1<<20); used != len(wire) || err != nil {
		t.Error(used, err)
	}
	wire, err = client.Encode(nil, AppendFrame(nil, pattern(1001), false))
	if err != nil {
		t.Fatal(err)
	}
	// From the header alone.
	_, used, _, err := server.Decode(nil, wire[:longHeader], 1<<20)
	wantError(t, err, ErrTooLarge)
	if used != 0 {
		t.Error(used)
	}
}

// TestCurveAnnounced: an announced size alone does not allocate memory.
func TestCurveAnnounced(t *testing.T) {
	_, server := codecPair(Limits{MaxMessage: -1})
	header := []byte("\x02\x00\x00\x00\x00\x40\x00\x00\x00\x07MESSAGE")
	dst := make([]byte, 0, 16)
	if n := testenv.Allocs(0, 100, func() {
		out, used, need, err := server.Decode(dst, header, 1<<20)
		if len(out) != 0 || used != 0 || need != 1<<30+9 || err != nil {
			t.Fatal(used, need, err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestCurveCodecAllocs: frames of any size are encoded and decoded without an allocation.
func TestCurveCodecAllocs(t *testing.T) {
	for _, size := range []int{0, 64, 1024, 64 << 10, 2 << 20} {
		client, server := codecPair(Limits{})
		frames := AppendPing(AppendMessage(nil, pattern(size), pattern(size)), 0, nil)
		wire := make([]byte, 0, client.MaxEncoded(len(frames), 3))
		out := make([]byte, 0, len(frames))
		if n := testenv.Allocs(0, 100, func() {
			wire, _ = client.Encode(wire[:0], frames)
			var used int
			var err error
			out, used, _, err = server.Decode(out[:0], wire, 1<<30)
			if used != len(wire) || err != nil || len(out) != len(frames) {
				t.Fatal(used, err)
			}
		}); n != 0 {
			t.Errorf("%d bytes: %v allocations", size, n)
		}
	}
}

// TestCurveDirections runs both directions of both sides at once, for the race
// detector.
func TestCurveDirections(t *testing.T) {
	t.Parallel()
	client, server := codecPair(Limits{})
	var wg sync.WaitGroup
	for _, pair := range [][2]Codec{{client, server}, {server, client}} {
		wires := make(chan []byte, 4)
		wg.Go(func() {
			defer close(wires)
			for i := range 200 {
				wire, err := pair[0].Encode(nil, AppendMessage(nil, pattern(i)))
				if err != nil {
					t.Error(err)
				}
				wires <- wire
			}
		})
		wg.Go(func() {
			i := 0
			for wire := range wires {
				out, _, _, err := pair[1].Decode(nil, wire, 1<<20)
				if err != nil || !bytes.Equal(out, AppendMessage(nil, pattern(i))) {
					t.Errorf("%d: %x %v", i, out, err)
				}
				i++
			}
		})
	}
	wg.Wait()
}
