package ports

import "testing"

// TestLeadsTo: endpoints of this machine are recognised, others are not.
func TestLeadsTo(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		connect, bound string
		want           bool
	}{
		{"tcp://127.0.0.1:5556", "tcp://127.0.0.1:5556", true},
		{"tcp://127.0.0.1:5556", "tcp://127.0.0.1:5566", false},
		{"tcp://127.0.0.2:5556", "tcp://127.0.0.1:5556", false},
		{"tcp://localhost:5556", "tcp://127.0.0.1:5556", true},
		{"tcp://127.0.0.1:5556", "tcp://localhost:5556", true},
		{"tcp://127.0.0.1:5003", "tcp://*:5003", true},
		{"tcp://127.0.0.1:5003", "tcp://0.0.0.0:5003", true},
		{"tcp://[::1]:5003", "tcp://[::]:5003", true},
		{"tcp://[::1]:5003", "tcp://[0:0:0:0:0:0:0:1]:5003", true},
		{"tcp://192.0.2.1:5003", "tcp://*:5003", false},
		{"tcp://other.example:5003", "tcp://*:5003", false},
		{"tcp://same.example:5003", "tcp://same.example:5003", true},
		{"tcp://127.0.0.1:0", "tcp://*:0", false},
		{"ipc:///a", "ipc:///a", true},
		{"ipc:///a", "ipc:///b", false},
	} {
		if got := Lead(c.connect, c.bound); got != c.want {
			t.Errorf("%s leads to %s: %v", c.connect, c.bound, got)
		}
	}
}

// TestLocal: addresses of this machine are recognised, and what is no address is not one.
func TestLocal(t *testing.T) {
	t.Parallel()
	for remote, want := range map[string]bool{
		"127.0.0.1:5": true, "127.9.8.7:5": true, "[::1]:5": true, "[::ffff:127.0.0.1]:5": true,
		"192.0.2.1:5": false, "[2001:db8::1]:5": false, "": false, "@": false, "localhost:5": false, "pipe": false,
	} {
		if got := Local(remote); got != want {
			t.Errorf("%q: %v", remote, got)
		}
	}
}

// TestSameHost: addresses of one host are recognised, whatever their ports; what is no
// address is of no host.
func TestSameHost(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"192.0.2.1:5", "192.0.2.1:6", true},
		{"[fe80::1%eth0]:5", "[fe80::1%eth0]:6", true},
		{"192.0.2.1:5", "192.0.2.2:5", false},
		{"pipe:1", "pipe:1", false},
		{"", "", false},
	} {
		if got := SameHost(c.a, c.b); got != c.want {
			t.Errorf("%q and %q: %v", c.a, c.b, got)
		}
	}
}
