package link

import (
	"errors"
	"strings"
	"testing"

	"clustermap/internal/ipcpath"
)

// FuzzEndpoint: any endpoint is refused with a reason, or parsed to its meaning.
func FuzzEndpoint(f *testing.F) {
	for _, seed := range []string{
		"tcp://127.0.0.1:5555", "tcp://*:*", "tcp://eth0:0", "tcp://[::1]:80", "tcp://[fe80::1%eth0]:5555",
		"tcp://lo:*;localhost:1234", "tcp://;a:1", "tcp://[", "tcp://]:1", "tcp://a:65536", "tcp://:",
		"ipc:///tmp/x", "ipc://*", "ipc://@", "ipc://@name", "ipc://rel/path", "ipc://" + strings.Repeat("x", 108),
		"ipc://a\x00b", "inproc://name", "inproc://", "inproc://" + strings.Repeat("x", 257), "", "://", "udp://a:1",
	} {
		f.Add(seed, true)
		f.Add(seed, false)
	}
	f.Fuzz(func(t *testing.T, text string, bind bool) {
		e, err := Parse(text, bind)
		if err != nil {
			var typed *EndpointError
			if !errors.As(err, &typed) || typed.Endpoint != text || typed.Reason == "" {
				t.Fatalf("%q: %#v", text, err)
			}
			return
		}
		if e.Text != text || !strings.HasPrefix(text, e.Scheme+"://") {
			t.Fatalf("%q is %+v", text, e)
		}
		rest := strings.TrimPrefix(text, e.Scheme+"://")
		switch e.Scheme {
		case TCP:
			if !bind && (e.host == "" || e.port == 0) || bind && e.source != nil {
				t.Fatalf("%q is %+v", text, e)
			}
			if e.port < 0 || e.port > 65535 || strings.ContainsAny(e.host, "[]/; *") {
				t.Fatalf("%q is %+v", text, e)
			}
		case IPC:
			wildcard := rest == "*" && bind && e.Name == ""
			if !wildcard && (e.Name != rest || e.Name == "" || len(e.Name) > ipcpath.Max || e.Name == "@") {
				t.Fatalf("%q is %+v", text, e)
			}
		case Inproc:
			if e.Name != rest || e.Name == "" || len(e.Name) > maxInprocName {
				t.Fatalf("%q is %+v", text, e)
			}
		default:
			t.Fatalf("%q is %+v", text, e)
		}
		// What is printed is parsed to the same.
		again, err := Parse(e.String(), bind)
		if err != nil || again.String() != e.String() || again.host != e.host || again.port != e.port || again.Name != e.Name ||
			(again.source == nil) != (e.source == nil) || e.source != nil && (again.source.host != e.source.host || again.source.port != e.source.port) {
			t.Fatalf("%q is %+v, printed as %s, which is %+v, %v", text, e, e.String(), again, err)
		}
		if e.Scheme == TCP && Complete(rest) != text {
			t.Fatalf("%q is completed to %q", rest, Complete(rest))
		}
		// An endpoint that both sides accept means the same to both.
		if other, err := Parse(text, !bind); err == nil && (other.host != e.host || other.port != e.port || other.Name != e.Name) {
			t.Fatalf("%q is %+v to one side and %+v to the other", text, e, other)
		}
	})
}
