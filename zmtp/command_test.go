package zmtp

import (
	"bytes"
	"strings"
	"testing"
)

// TestCommandBytes checks the exact bytes of RFC 37's commands.
func TestCommandBytes(t *testing.T) {
	t.Parallel()
	seventeen := []byte("0123456789abcdefX")
	for _, c := range []struct {
		name string
		got  []byte
		want string
	}{
		{"SUBSCRIBE A", AppendSubscribe(nil, []byte("A")), "\x04\x0b\x09SUBSCRIBEA"},
		{"SUBSCRIBE all", AppendSubscribe(nil, nil), "\x04\x0a\x09SUBSCRIBE"},
		{"CANCEL A", AppendCancel(nil, []byte("A")), "\x04\x08\x06CANCELA"},
		{"PING", AppendPing(nil, 0, nil), "\x04\x07\x04PING\x00\x00"},
		{"PING ttl", AppendPing(nil, 258, []byte("LOL")), "\x04\x0a\x04PING\x01\x02LOL"},
		{"PING cut", AppendPing(nil, 0, seventeen), "\x04\x17\x04PING\x00\x000123456789abcdef"},
		{"PONG", AppendPong(nil, []byte("LOL")), "\x04\x08\x04PONGLOL"},
		{"PONG empty", AppendPong(nil, nil), "\x04\x05\x04PONG"},
		{"PONG cut", AppendPong(nil, seventeen), "\x04\x15\x04PONG0123456789abcdef"},
		{"ERROR", AppendError(nil, "no"), "\x04\x09\x05ERROR\x02no"},
		{"ERROR empty", AppendError(nil, ""), "\x04\x07\x05ERROR\x00"},
		{"ERROR cut", AppendError(nil, strings.Repeat("r", 300)),
			"\x06\x00\x00\x00\x00\x00\x00\x01\x06\x05ERROR\xff" + strings.Repeat("r", 255)},
	} {
		if string(c.got) != c.want {
			t.Errorf("%s: %x, want %x", c.name, c.got, c.want)
		}
	}
	if n := len(AppendSubscribe(nil, []byte("A"))); n != 13 {
		t.Errorf("SUBSCRIBE A has %d bytes, want 13", n)
	}
}

// TestSubscribeBorder covers sizes of topics around which the frame becomes long.
func TestSubscribeBorder(t *testing.T) {
	t.Parallel()
	for size := 240; size <= 260; size++ {
		topic := bytes.Repeat([]byte("t"), size)
		frame := AppendSubscribe(nil, topic)
		c, err := ParseCommand(CommandBody(frame))
		if err != nil || string(c.Name) != CommandSubscribe || !bytes.Equal(c.Data, topic) {
			t.Errorf("topic of %d bytes: %v", size, err)
		}
		if long := frame[0]&FlagLong != 0; long != (size+10 > 255) {
			t.Errorf("topic of %d bytes: long form %v", size, long)
		}
	}
}

func TestParseCommand(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, name, data string }{
		{"\x05READY", "READY", ""},
		{"\x05READYx", "READY", "x"},
		{"\x01\x00\x00", "\x00", "\x00"},
		{"\xff" + strings.Repeat("N", 255) + "d", strings.Repeat("N", 255), "d"},
	} {
		got, err := ParseCommand([]byte(c.in))
		if err != nil || string(got.Name) != c.name || string(got.Data) != c.data {
			t.Errorf("%q: %q %q %v", c.in, got.Name, got.Data, err)
		}
	}
	for _, in := range []string{"", "\x00", "\x00READY", "\x06READY", "\xff"} {
		_, err := ParseCommand([]byte(in))
		wantError(t, err, ErrMalformed)
	}
}

func TestCommandBody(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"\x04\x05\x04PONG": "\x04PONG",
		"\x06\x00\x00\x00\x00\x00\x00\x00\x05\x04PONG": "\x04PONG",
		"":                                     "",
		"\x04":                                 "",
		"\x04\x05\x04PON":                      "",
		"\x04\x05\x04PONG\x00":                 "",
		"\x06\xff\xff\xff\xff\xff\xff\xff\xff": "",
	} {
		if got := CommandBody([]byte(in)); string(got) != want {
			t.Errorf("%x: %q, want %q", in, got, want)
		}
	}
}

func TestParsePing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		data    string
		ttl     uint16
		context string
	}{
		{"\x00\x00", 0, ""},
		{"\xff\xfe", 0xfffe, ""},
		{"\x00\x64LOL", 100, "LOL"},
		{"\x00\x010123456789abcdefX", 1, "0123456789abcdefX"},
	} {
		ttl, context, err := ParsePing([]byte(c.data))
		if ttl != c.ttl || string(context) != c.context || err != nil {
			t.Errorf("%x: %d %q %v", c.data, ttl, context, err)
		}
	}
	// The whole body is then below seven bytes.
	for _, data := range []string{"", "\x00"} {
		_, _, err := ParsePing([]byte(data))
		wantError(t, err, ErrMalformed)
	}
}

func TestParseError(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"\x00": "", "\x03400": "400"} {
		if got, err := ParseError([]byte(in)); got != want || err != nil {
			t.Errorf("%x: %q %v", in, got, err)
		}
	}
	for _, in := range []string{"", "\x01", "\x0440", "\x0240x"} {
		_, err := ParseError([]byte(in))
		wantError(t, err, ErrMalformed)
	}
}

func TestCommandAllocs(t *testing.T) {
	ping := AppendPing(nil, 100, []byte("LOL"))
	noAllocs(t, "parsing a PING", func() {
		c, err := ParseCommand(CommandBody(ping))
		if err != nil || string(c.Name) != CommandPing {
			t.Fatal(err)
		}
		if _, _, err := ParsePing(c.Data); err != nil {
			t.Fatal(err)
		}
	})
}
