package zmtp

import (
	"bytes"
	"testing"
)

// messages are frame lists with sizes around the border of the short form.
func messages() [][][]byte {
	sized := func(n int) []byte { return bytes.Repeat([]byte{byte('a' + n%26)}, n) }
	return [][][]byte{
		{nil},
		{sized(1)},
		{nil, nil, nil},
		{sized(14), sized(8), sized(16), nil, sized(32)},
		{sized(255), sized(256), sized(257)},
		{sized(1000), nil},
		{nil, sized(70000), sized(3)},
	}
}

func TestMessageFrames(t *testing.T) {
	t.Parallel()
	for _, frames := range messages() {
		m := WireMessage(AppendMessage(nil, frames...))
		if m.Len() != len(frames) {
			t.Errorf("Len %d, want %d", m.Len(), len(frames))
		}
		for i, body := range m.AppendFrames(nil) {
			if !bytes.Equal(body, frames[i]) {
				t.Errorf("frame %d of %d: %d bytes, want %d", i, len(frames), len(body), len(frames[i]))
			}
			if cap(body) != len(body) {
				t.Errorf("frame %d: capacity reaches into the next frame", i)
			}
		}
	}
}

func TestMessageNext(t *testing.T) {
	t.Parallel()
	// Long form with a small size, then reserved bits set.
	m := WireMessage("\x03\x00\x00\x00\x00\x00\x00\x00\x02hi\xf8\x01x")
	body, rest := m.Next()
	if string(body) != "hi" || string(rest) != "\xf8\x01x" {
		t.Fatalf("%q %q", body, rest)
	}
	body, rest = rest.Next()
	if string(body) != "x" || len(rest) != 0 {
		t.Fatalf("%q %q", body, rest)
	}
	if WireMessage(nil).Len() != 0 || WireMessage(nil).AppendFrames(nil) != nil {
		t.Error("an empty message has frames")
	}
}

func TestAppendMessage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		frames []string
		want   string
	}{
		{nil, ""},
		{[]string{""}, "\x00\x00"},
		{[]string{"A"}, "\x00\x01A"},
		{[]string{"", "hello", ""}, "\x01\x00\x01\x05hello\x00\x00"},
		// The legacy subscription to "A" (RFC 23).
		{[]string{"\x01A"}, "\x00\x02\x01A"},
	} {
		var frames [][]byte
		for _, f := range c.frames {
			frames = append(frames, []byte(f))
		}
		if got := AppendMessage([]byte("x"), frames...); string(got) != "x"+c.want {
			t.Errorf("%q: %x, want %x", c.frames, got[1:], c.want)
		}
	}
}

func TestMessageAllocs(t *testing.T) {
	m := WireMessage(AppendMessage(nil, make([]byte, 3), make([]byte, 300), nil))
	dst := make([][]byte, 0, 3)
	n := 0
	noAllocs(t, "Next", func() {
		for rest := m; len(rest) > 0; {
			var body []byte
			body, rest = rest.Next()
			n += len(body)
		}
	})
	noAllocs(t, "Len", func() { n += m.Len() })
	noAllocs(t, "AppendFrames", func() { dst = m.AppendFrames(dst[:0]) })
}
