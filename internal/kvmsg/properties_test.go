package kvmsg

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestParseTTL(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"0":                      0,
		"0.0":                    0,
		"1":                      time.Second,
		"30":                     30 * time.Second,
		"007":                    7 * time.Second,
		"1.5":                    1500 * time.Millisecond,
		".25":                    250 * time.Millisecond,
		"2.":                     2 * time.Second,
		"0.000000001":            1,
		"3.14159265358979323846": 3141592653,
		"315360000":              MaxTTL,
		"315360000.000":          MaxTTL,
	} {
		if got, ok := ParseTTL([]byte(text)); !ok || got != want {
			t.Errorf("ttl %q is %v, %v, want %v", text, got, ok, want)
		}
	}
	for _, text := range []string{"", ".", "-1", "+1", "1e3", " 1", "1 ", "1,5", "1.5.0", "NaN", "Inf", "0x10",
		"315360001", "315360000.000000001", "99999999999999999999999999"} {
		if got, ok := ParseTTL([]byte(text)); ok {
			t.Errorf("ttl %q is read as %v", text, got)
		}
	}
}

func TestTTLOf(t *testing.T) {
	t.Parallel()
	for props, want := range map[string]time.Duration{
		"":                    0,
		"a=b\n":               0,
		"ttl=3\n":             3 * time.Second,
		"a=b\nttl=3\n":        3 * time.Second,
		"ttl=3\nttl=4\n":      3 * time.Second,
		"xttl=3\nttlx=4\n":    0,
		"ttl=0\n":             0,
		"ttl=never\n":         0,
		"ttl\nttl=5\n":        5 * time.Second,
		"ttl=6":               6 * time.Second,
		"ttl=1700000000000\n": 0,
	} {
		if got := TTLOf([]byte(props)); got != want {
			t.Errorf("ttl of %q is %v, want %v", props, got, want)
		}
	}
}

func TestAppendTTL(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0:                       "ttl=0\n",
		1:                       "ttl=0.000000001\n",
		1500 * time.Millisecond: "ttl=1.5\n",
		time.Hour:               "ttl=3600\n",
		MaxTTL:                  "ttl=315360000\n",
	} {
		got := AppendTTL(nil, d)
		if string(got) != want || TTLOf(got) != d || CheckProperties(got) != nil {
			t.Errorf("%v is written as %q, want %q; read as %v", d, got, want, TTLOf(got))
		}
	}
}

func TestAppendProperty(t *testing.T) {
	t.Parallel()
	props, err := AppendProperty([]byte("a=b\n"), "name", "value=with=equals")
	if err != nil || string(props) != "a=b\nname=value=with=equals\n" || CheckProperties(props) != nil {
		t.Errorf("%q, %v", props, err)
	}
	if v, ok := Property(props, "name"); !ok || string(v) != "value=with=equals" {
		t.Errorf("read back as %q, %v", v, ok)
	}
	for _, bad := range [][2]string{{"", "v"}, {"a=b", "v"}, {"a\nb", "v"}, {"a", "v\n"}} {
		if got, err := AppendProperty(nil, bad[0], bad[1]); err == nil || len(got) != 0 {
			t.Errorf("%q is accepted", bad)
		}
	}
}

// A client's deletion loses the properties with which only servers say why they delete,
// however they are written; an update keeps them, and so does what a server sends.
func TestClientsDeletionsLoseWhatOnlyServersSay(t *testing.T) {
	t.Parallel()
	big := "why=" + strings.Repeat("x", 300) + "\n"
	for _, c := range []struct{ props, value, want string }{
		{"cause=expired\n", "", ""},
		{"cause=other\ncause=expired\n", "", ""},
		{"by=alice\ncause=expired\nttl=3\n", "", "by=alice\nttl=3\n"},
		{big + "cause=expired\n", "", big},
		{"cause=expired\n" + big[:255] + "\n", "", big[:255] + "\n"},
		{"because=expired\ncauses=1\n", "", "because=expired\ncauses=1\n"},
		{"cause=a click\n", "v", "cause=a click\n"},
	} {
		for _, long := range []string{"", "3", "0123", "4", "01234"} {
			for from, want := range map[Origin]string{FromClient: c.want, FromServer: c.props} {
				canonical := AppendRecord(nil, []byte("/k"), 0x01020304050607, nil, []byte(want), []byte(c.value))
				msg := wire(long, "/k", testSeq, "", c.props, c.value)
				if size, tag := Scan(msg, from, 0); size > 0 && (!bytes.Equal(msg[:size], canonical) || tag&TagProperties != 0 != (want != "")) {
					t.Errorf("%q: Scan finds %q, tag %x", c.props, msg[:size], tag)
				}
				size, tag, kind, err := Inspect(msg, from, 0)
				if err != nil || kind != KindUpdate || !bytes.Equal(msg[:size], canonical) {
					t.Errorf("%q, long %q: %q, %v; want %q", c.props, long, msg[:size], err, canonical)
				}
				if tag&TagProperties != 0 != (want != "") || tag&TagDelete != 0 != (c.value == "") {
					t.Errorf("%q: tag %x", c.props, tag)
				}
			}
		}
	}
}

// TestUserProperties: what the protocol and the server say is not the user's; everything else
// is, a cause of a value too.
func TestUserProperties(t *testing.T) {
	t.Parallel()
	for props, want := range map[string]string{
		"":                                 "",
		"by=alice\n":                       "by=alice\n",
		"by=alice\nttl=3\n":                "by=alice\n",
		"ttl=3\nby=alice\nx-time=1\nz=\n":  "by=alice\nz=\n",
		"x-a=1\nx-by=bob\n":                "",
		"cause=x\nttlx=3\nxttl=4\nx=5\n":   "cause=x\nttlx=3\nxttl=4\nx=5\n",
		"url=a?x-b=c\nttl=1\nurl=second\n": "url=a?x-b=c\nurl=second\n",
	} {
		if got := Properties(props).User(); string(got) != want {
			t.Errorf("of %q the user's are %q, want %q", props, got, want)
		}
	}
}

// TestStamp: a stamp is read as it was written, and an author that a line cannot have is left
// out.
func TestStamp(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_700_000_000, 123_456_789)
	for by, want := range map[string]string{
		"alice": "alice", "": "", "a=b c": "a=b c", "a\nx-time=1": "", strings.Repeat("a", 256): "",
	} {
		props := AppendStamp([]byte("a=b\n"), at, by)
		got, who, ok := Properties(props).Stamped()
		if !ok || !got.Equal(at) || who != want || CheckProperties(props) != nil || string(Properties(props).User()) != "a=b\n" {
			t.Errorf("by %q: %q is %v by %q, %v", by, props, got, who, ok)
		}
	}
	for _, props := range []string{"", "x-by=alice\n", "x-time=\n", "x-time=now\n", "x-times=1\n"} {
		if at, by, ok := Properties(props).Stamped(); ok || by != "" || !at.IsZero() {
			t.Errorf("%q is a stamp", props)
		}
	}
}

// TestForgeries: what only servers say is removed from a client's message, wherever it is, and
// nothing else changes. Scan leaves such a message to Inspect.
func TestForgeries(t *testing.T) {
	t.Parallel()
	many := strings.Repeat("name=value\n", 30)
	for _, props := range []string{"x-time=1\n", "x-by=bob\n", "a=b\nx-time=1\nx-by=bob\nc=d\n", many + "x-by=bob\n", "x-by=" + strings.Repeat("b", 300) + "\n" + "a=b\n", "x-by=1\nx-by=2\ncause=expired\n"} {
		for _, value := range []string{"", "v", strings.Repeat("v", 300)} {
			want := ""
			for line := range strings.Lines(props) {
				if !strings.HasPrefix(line, "x-") && (value != "" || !strings.HasPrefix(line, "cause=")) {
					want += line
				}
			}
			m := AppendRecord(nil, []byte("/k"), 7, []byte(testUUID), []byte(props), []byte(value))
			if size, _ := Scan(m, FromClient, 0); size != 0 {
				t.Errorf("Scan takes %q", props)
			}
			if size, _ := Scan(m, FromServer, 0); size != len(m) {
				t.Errorf("Scan refuses %q of a server", props)
			}
			size, tag, _, err := Inspect(m, FromClient, 0)
			r := Record(m[:size])
			if err != nil || !IsCanonical(r) || string(r.Props()) != want || string(r.Value()) != value || string(r.Key()) != "/k" || r.Seq() != 7 || string(r.UUID()) != testUUID {
				t.Errorf("%q with %d bytes is %q, %v", props, len(value), r, err)
			}
			if tag != HashKey([]byte("/k"))|flagsOf(len(want), len(value)) {
				t.Errorf("%q with %d bytes has tag %x", props, len(value), tag)
			}
		}
	}
}
