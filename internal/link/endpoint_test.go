package link

import (
	"errors"
	"strings"
	"testing"

	"clustermap/internal/ipcpath"
)

func TestParseEndpoint(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text          string
		bind, connect string // address, "" if refused
	}{
		{"tcp://127.0.0.1:5555", "127.0.0.1:5555", "127.0.0.1:5555"},
		{"tcp://localhost:5555", "localhost:5555", "localhost:5555"},
		{"tcp://some.host-1:65535", "some.host-1:65535", "some.host-1:65535"},
		{"tcp://eth0:5555", "eth0:5555", "eth0:5555"},
		{"tcp://[::1]:5555", "[::1]:5555", "[::1]:5555"},
		{"tcp://[fe80::1%eth0]:5555", "[fe80::1%eth0]:5555", "[fe80::1%eth0]:5555"},
		{"tcp://[fe80::1%25eth0]:5555", "[fe80::1%eth0]:5555", "[fe80::1%eth0]:5555"}, // as in URIs
		{"tcp://[fe80::1%2503]:5555", "[fe80::1%2503]:5555", "[fe80::1%2503]:5555"},   // a number
		{"tcp://*:5555", ":5555", ""},
		{"tcp://*:*", ":0", ""},
		{"tcp://*:0", ":0", ""},
		{"tcp://127.0.0.1:*", "127.0.0.1:0", ""},
		{"tcp://127.0.0.1:0", "127.0.0.1:0", ""},
		{"tcp://[::]:*", "[::]:0", ""},
		{"", "", ""},
		{"127.0.0.1:5555", "", ""},
		{"tcp:127.0.0.1:5555", "", ""},
		{"tcp://", "", ""},
		{"tcp://:5555", "", ""},
		{"tcp://[]:5555", "", ""},
		{"tcp://127.0.0.1", "", ""},
		{"tcp://127.0.0.1:", "", ""},
		{"tcp://127.0.0.1:65536", "", ""},
		{"tcp://127.0.0.1:-1", "", ""},
		{"tcp://127.0.0.1:+1", "", ""},
		{"tcp://127.0.0.1:http", "", ""},
		{"tcp://127.0.0.1:5555/path", "", ""},
		{"tcp://a/b:5555", "", ""},
		{"tcp://a b:5555", "", ""},
		{"tcp://::1:5555", "[::1]:5555", "[::1]:5555"},
		{"tcp://fe80::1%eth0:5555", "[fe80::1%eth0]:5555", "[fe80::1%eth0]:5555"},
		{"tcp://::1", "", ""},
		{"tcp://a:b:5555", "", ""},
		{"tcp://[::1:5555", "", ""},
		{"tcp://[::1]x:5555", "", ""},
		{"udp://127.0.0.1:5555", "", ""},
		{"tcp://a,b:5555", "", ""},
		{"tcp://a_b:5555", "a_b:5555", "a_b:5555"},
		{"TCP://127.0.0.1:5555", "", ""},
	} {
		for _, way := range []struct {
			name string
			bind bool
			want string
		}{{"bind", true, c.bind}, {"connect", false, c.connect}} {
			e, err := Parse(c.text, way.bind)
			if way.want == "" {
				var typed *EndpointError
				if !errors.As(err, &typed) || typed.Endpoint != c.text || typed.Reason == "" {
					t.Errorf("%s %q: %v, %v", way.name, c.text, e, err)
				}
				continue
			}
			if err != nil || e.address() != way.want || e.Text != c.text {
				t.Errorf("%s %q: %q, %v, want %q", way.name, c.text, e.address(), err, way.want)
			}
		}
	}
}

// TestParseEndpointForms: the other transports, and sources.
func TestParseEndpointForms(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text          string
		bind, connect bool // accepted
		name          string
	}{
		{"ipc:///tmp/x", true, true, "/tmp/x"},
		{"ipc://rel/x", true, true, "rel/x"},
		{"ipc://*", true, false, ""},
		{"ipc://", false, false, ""},
		{"ipc://@", false, false, ""},
		{"ipc://a\x00b", false, false, ""},
		{"ipc://" + strings.Repeat("x", ipcpath.Max), true, true, strings.Repeat("x", ipcpath.Max)},
		{"ipc://" + strings.Repeat("x", ipcpath.Max+1), false, false, ""},
		{"inproc://a b:c/d*", true, true, "a b:c/d*"},
		{"inproc://*", true, true, "*"},
		{"inproc://", false, false, ""},
		{"inproc://" + strings.Repeat("x", 256), true, true, strings.Repeat("x", 256)},
		{"inproc://" + strings.Repeat("x", 257), false, false, ""},
		{"tcp://127.0.0.1:1;127.0.0.1:2", false, true, ""},
		{"tcp://*:*;127.0.0.1:2", false, true, ""},
		{"tcp://127.0.0.1;127.0.0.1:2", false, false, ""},
		{"tcp://127.0.0.1:1;", false, false, ""},
		{"IPC:///tmp/x", false, false, ""},
	} {
		for _, bind := range []bool{true, false} {
			want := c.connect
			if bind {
				want = c.bind
			}
			e, err := Parse(c.text, bind)
			if (err == nil) != want || err == nil && e.Name != c.name {
				t.Errorf("bind %v %.40q: %+v, %v", bind, c.text, e, err)
			}
		}
	}
	e, err := Parse("tcp://[::1]:7;name:2", false)
	if err != nil || e.address() != "name:2" || e.source.address() != "[::1]:7" {
		t.Errorf("%+v, %v", e, err)
	}
}
