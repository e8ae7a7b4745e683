package titanic

import (
	"bytes"
	"errors"
	"testing"
)

// TestMessage: a message is read back as it was stored, and every changed byte is detected.
func TestMessage(t *testing.T) {
	t.Parallel()
	for _, h := range []header{
		{kind: kindRequest, id: newUUID(), at: 1 << 60, service: "echo"},
		{kind: kindReply, id: newUUID(), at: -5},
		{kind: kindRefused, id: newUUID()},
	} {
		for _, body := range [][][]byte{nil, frames(""), frames("a", "", string(make([]byte, 300)))} {
			b := encode(h, body)
			got, read, err := decode(b)
			if err != nil || got != h || !same(read, body) {
				t.Errorf("%+v %q: %+v %q %v", h, body, got, read, err)
			}
			for i := range b {
				changed := bytes.Clone(b)
				changed[i] ^= 0x41
				if _, _, err := decode(changed); !errors.Is(err, errDamaged) {
					t.Errorf("byte %d of %x changed: %v", i, b, err)
				}
				if _, _, err := decode(b[:i]); !errors.Is(err, errDamaged) {
					t.Errorf("%x cut off at %d: %v", b, i, err)
				}
			}
		}
	}
}

// FuzzMessage: no bytes in the file make the decoder panic, and decoded messages can be
// encoded and decoded again.
func FuzzMessage(f *testing.F) {
	f.Add(encode(header{kind: kindRequest, service: "echo"}, frames("a", "b")))
	f.Add(encode(header{kind: kindReply}, nil))
	f.Add([]byte("q"))
	f.Fuzz(func(t *testing.T, b []byte) {
		decodeHeader(b)
		h, body, err := decode(b)
		if err != nil {
			return
		}
		again, read, err := decode(encode(h, body))
		if err != nil || again != h || !same(read, body) {
			t.Errorf("%x: %+v %q, and then %+v %q %v", b, h, body, again, read, err)
		}
	})
}
