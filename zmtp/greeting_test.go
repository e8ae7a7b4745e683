package zmtp

import (
	"bytes"
	"strings"
	"testing"
)

// greetingBytes is the greeting of a ZMTP 3.1 peer with NULL, as libzmq sends it.
var greetingBytes = "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x01NULL" +
	strings.Repeat("\x00", 16) + "\x00" + strings.Repeat("\x00", 31)

func TestGreeting(t *testing.T) {
	t.Parallel()
	g := Greeting{Major: 3, Minor: 1, Mechanism: "NULL"}
	if got := AppendGreeting([]byte("x"), g); string(got) != "x"+greetingBytes {
		t.Errorf("%x", got)
	}
	for _, g := range []Greeting{
		g,
		{Major: 3, Mechanism: "CURVE", AsServer: true},
		{Major: 4, Minor: 200, Mechanism: strings.Repeat("M", 20)},
		{Major: 255, Mechanism: ""},
		{Major: 2, Mechanism: "NULL"}, // to libzmq this is 3.1
	} {
		b := AppendGreeting(nil, g)
		for i := range b {
			if _, n, err := ParseGreeting(b[:i]); n != 0 || err != nil {
				t.Fatalf("%d bytes: %d %v", i, n, err)
			}
		}
		got, n, err := ParseGreeting(append(b, "more"...))
		if got != g || n != GreetingSize || err != nil {
			t.Errorf("%+v: %+v %d %v", g, got, n, err)
		}
	}
}

func TestParseGreetingTolerance(t *testing.T) {
	t.Parallel()
	b := []byte(greetingBytes)
	copy(b[1:9], "anything")
	b[9] = 0x01
	copy(b[33:], bytes.Repeat([]byte{0xEE}, 31))
	b[32] = 1
	g, n, err := ParseGreeting(b)
	if n != GreetingSize || err != nil || g != (Greeting{3, 1, "NULL", true}) {
		t.Errorf("%+v %d %v", g, n, err)
	}
	// All 20 bytes count, even after a zero.
	b[20] = 'X'
	if g, _, _ := ParseGreeting(b); g.Mechanism == "NULL" {
		t.Error("bytes after the name ignored")
	}
}

// TestParseGreetingVersion: the first bytes determine the version of an old peer.
func TestParseGreetingVersion(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		in   string
		at   int // how many bytes tell
	}{
		{"1.0 short identity", "\x01\x00", 1},
		{"text", "GET / HTTP/1.1\r\n", 1},
		{"1.0 long identity", "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x00identity", 10},
		{"revision 0", "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x00", 11},
		{"2.0", "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x01\x05", 11},
	} {
		for i := range c.in {
			_, n, err := ParseGreeting([]byte(c.in[:i]))
			if n != 0 {
				t.Errorf("%s: accepted", c.name)
			}
			if i >= c.at {
				wantError(t, err, ErrVersion)
			} else if err != nil {
				t.Errorf("%s: %d bytes: %v", c.name, i, err)
			}
		}
	}
}
