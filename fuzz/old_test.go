package fuzz

import (
	"bytes"
	"errors"
	"testing"

	"clustermap/zmtp"
)

// oldPrefixes bring a handshake that takes old peers to its end.
var oldPrefixes = map[string]string{
	"1.0": "\x01\x00",
	"2.0": "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x01\x05\x00\x00",
}

// codecOf returns the codec of a connection to an old peer.
func codecOf(t *testing.T, version string, limits zmtp.Limits) zmtp.Codec {
	h := zmtp.NewHandshake(zmtp.HandshakeConfig{SocketType: zmtp.ROUTER, MinVersion: 1, Limits: limits})
	in := []byte(oldPrefixes[version])
	if n, _, done, err := h.Step(in, nil); n != len(in) || !done || err != nil {
		t.Fatalf("%s: %d %v %v", version, n, done, err)
	}
	return h.Codec()
}

// FuzzDowngrade gives any bytes to handshakes that take old peers. It asserts
// that there is no panic, that the outcome does not depend on how the bytes
// are cut, that what was sent is always a whole number of the pieces that a
// greeting leaves in, that a peer below 3.0 is what its first bytes say, and
// that memory is in proportion to the bytes received (see FuzzHandshake).
func FuzzDowngrade(f *testing.F) {
	f.Fuzz(func(t *testing.T, in []byte, piece, minVersion byte) {
		c := zmtp.HandshakeConfig{SocketType: zmtp.ROUTER, Identity: []byte("me"), Limits: zmtp.Limits{MaxCommand: -1}, MinVersion: 1 + minVersion%2}
		var whole outcome
		size := allocated(func() { whole = shake(t, c, in, max(1, len(in))) })
		if limit := uint64(1<<20 + 64*len(in)); size > limit {
			t.Fatalf("%d bytes allocated for %d received, limit %d", size, len(in), limit)
		}
		for _, size := range []int{1, max(1, int(piece))} {
			cut := shake(t, c, in, size)
			if cut.done != whole.done || cut.rest != whole.rest && whole.done || (cut.err == nil) != (whole.err == nil) ||
				whole.err != nil && cut.err.Error() != whole.err.Error() {
				t.Fatalf("cut: %+v, whole: %+v", cut, whole)
			}
			// A fault that is known at once can stop what was to be sent
			// before it, when the bytes came together.
			if cut.sent != whole.sent && whole.err == nil {
				t.Fatalf("cut: %q, whole: %q", cut.sent, whole.sent)
			}
		}
		if whole.err != nil {
			var p *zmtp.ProtocolError
			if !errors.As(whole.err, &p) || p.Err == nil {
				t.Fatalf("error without a condition: %v", whole.err)
			}
			return
		}
		if !whole.done {
			return
		}
		p := whole.peer
		if len(p.Identity) > 255 || p.Major < c.MinVersion || p.SocketType != zmtp.UNKNOWN && !zmtp.Compatible(c.SocketType, p.SocketType) {
			t.Fatalf("peer %+v", p)
		}
		signature := in[0] == 0xFF && in[9]&1 == 1
		var want uint8 = 1
		if signature {
			want = max(3, in[10])
			if in[10] < 2 {
				want = in[10] + 1
			}
		}
		if p.Major != want || p.SendsSubscriptions() != signature && p.Major < 3 {
			t.Fatalf("peer %+v of %x", p, in)
		}
	})
}

// FuzzOldFraming gives any bytes to the codecs of old peers. It asserts that
// there is no panic, that the frames do not depend on how the bytes are cut,
// that each is whole and within the limit, that memory is in proportion to
// what was received, and that what was decoded is the same again after encoding
// and decoding.
func FuzzOldFraming(f *testing.F) {
	f.Fuzz(func(t *testing.T, stream []byte, piece, limit byte) {
		const most = 600
		for version := range oldPrefixes {
			decodeOld := func(piece, limit int) (out, rest []byte, err error) {
				codec := codecOf(t, version, zmtp.Limits{MaxMessage: most})
				var wire []byte
				for at := 0; at < len(stream); {
					end := min(at+piece, len(stream))
					wire = append(bytes.Clone(wire), stream[at:end]...)
					at = end
					for {
						var used, need int
						out, used, need, err = codec.Decode(out, wire, limit)
						if used < 0 || used > len(wire) || need < 1 || need > most+10 {
							t.Fatalf("used %d of %d, need %d", used, len(wire), need)
						}
						wire = wire[used:]
						if err != nil {
							return out, wire, err
						}
						if used == 0 {
							if need <= len(wire) {
								t.Fatalf("needs %d of %d", need, len(wire))
							}
							break
						}
					}
				}
				return out, wire, nil
			}
			var out, rest []byte
			var err error
			size := allocated(func() { out, rest, err = decodeOld(max(1, len(stream)), 1<<30) })
			if bound := uint64(1<<20 + 64*len(stream)); size > bound {
				t.Fatalf("%d bytes allocated for %d received", size, len(stream))
			}
			if len(stream) <= 2048 {
				for _, size := range []int{1, max(1, int(piece))} {
					cut, cutRest, cutErr := decodeOld(size, max(1, int(limit)))
					if !bytes.Equal(cut, out) || (cutErr == nil) != (err == nil) ||
						err == nil && !bytes.Equal(cutRest, rest) || err != nil && cutErr.Error() != err.Error() {
						t.Fatalf("%s: cut %x %v, whole %x %v", version, cut, cutErr, out, err)
					}
				}
			}
			var p *zmtp.ProtocolError
			if err != nil && (!errors.As(err, &p) || p.Err == nil) {
				t.Fatalf("error without a condition: %v", err)
			}
			// What came out is frames that a decoder takes, none a command.
			codec := codecOf(t, version, zmtp.Limits{MaxMessage: most})
			wire, encodeErr := codec.Encode(nil, out)
			if encodeErr != nil {
				t.Fatalf("%s: %x: %v", version, out, encodeErr)
			}
			again, used, _, decodeErr := codec.Decode(nil, wire, 1<<30)
			if decodeErr != nil || used != len(wire) || !bytes.Equal(again, out) {
				t.Fatalf("%s: %x came back as %x, %v", version, out, again, decodeErr)
			}
			d := zmtp.NewDecoder(zmtp.Limits{MaxMessage: -1})
			for b := out; len(b) > 0; {
				kind, n, err := d.Next(b)
				if err != nil || kind == zmtp.KindCommand {
					t.Fatalf("%s: %x: kind %d, %v", version, out, kind, err)
				}
				if kind == zmtp.NeedMore {
					break // within a message
				}
				b = b[n:]
			}
		}
	})
}
