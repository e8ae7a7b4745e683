package sockets

import (
	"errors"
	"testing"
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
		{"tcp://::1:5555", "", ""},
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
			e, err := parseEndpoint(c.text, way.bind)
			if way.want == "" {
				var typed *EndpointError
				if !errors.As(err, &typed) || typed.Endpoint != c.text || typed.Reason == "" {
					t.Errorf("%s %q: %v, %v", way.name, c.text, e, err)
				}
				continue
			}
			if err != nil || e.address() != way.want || e.text != c.text {
				t.Errorf("%s %q: %q, %v, want %q", way.name, c.text, e.address(), err, way.want)
			}
		}
	}
}

// TestEndpointErrors: sockets refuse bad endpoints at once.
func TestEndpointErrors(t *testing.T) {
	t.Parallel()
	s := open(t, NewDealer, Options{})
	var typed *EndpointError
	if err := s.Bind(testContext(t), "tcp://nowhere"); !errors.As(err, &typed) {
		t.Errorf("Bind: %v", err)
	}
	if err := s.Connect("tcp://*:5555"); !errors.As(err, &typed) {
		t.Errorf("Connect: %v", err)
	}
	if got := s.LastEndpoint(); got != "" {
		t.Errorf("LastEndpoint after failures: %q", got)
	}
}
