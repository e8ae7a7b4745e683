package fuzz

import (
	"bytes"
	"errors"
	"testing"

	"clustermap/zmtp"
)

// oldPrefixes holds, for each old version, the bytes that complete a handshake.
var oldPrefixes = map[string]string{
	"1.0": "\x01\x00",
	"2.0": "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x01\x05\x00\x00",
}

// codecOf returns the codec of a connection to an old peer.
func codecOf(t *testing.T, version string, limits zmtp.Limits) zmtp.Codec {
	h := zmtp.NewHandshake(zmtp.HandshakeConfig{SocketType: zmtp.TypeRouter, MinVersion: 1, Limits: limits})
	in := []byte(oldPrefixes[version])
	if n, _, done, err := h.Step(in, nil); n != len(in) || !done || err != nil {
		t.Fatalf("%s: %d %v %v", version, n, done, err)
	}
	return h.Codec()
}

// FuzzDowngrade passes arbitrary bytes to handshakes that accept old peers. It
// asserts that there is no panic, that the outcome does not depend on how the
// bytes are split, that Peer has the version of the first bytes, and that the
// memory allocated is proportional to the number of bytes received (see
// FuzzHandshake).
func FuzzDowngrade(f *testing.F) {
	f.Fuzz(func(t *testing.T, in []byte, piece, minVersion byte) {
		c := zmtp.HandshakeConfig{SocketType: zmtp.TypeRouter, Identity: []byte("me"), Limits: zmtp.Limits{MaxCommand: -1}, MinVersion: 1 + minVersion%2}
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
			// If the bytes arrive together, an error can prevent an answer
			// to the bytes before it.
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
		if len(p.Identity) > 255 || p.Major < c.MinVersion || p.SocketType != zmtp.TypeUnknown && !zmtp.Compatible(c.SocketType, p.SocketType) {
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

// FuzzOldFraming passes arbitrary bytes to the codecs of old peers. It asserts
// that there is no panic, that the frames do not depend on how the bytes are
// split, that each frame is complete and within the limit, that the memory
// allocated is proportional to the number of bytes received, and that the
// decoded frames survive encoding and decoding.
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
			// A Decoder must accept the frames, and none may be a command.
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
				if kind == zmtp.KindNeedMore {
					break // within a message
				}
				b = b[n:]
			}
		}
	})
}
