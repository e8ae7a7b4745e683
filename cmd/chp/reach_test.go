//go:build unix

package main

import (
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"clustermap/internal/loopback"
	"clustermap/zmtp"
)

// A host that does not exist ends a command as soon as that is certain, with this
// reason, and not after the whole time-out with the text for a server that is not
// there.
func TestNoSuchHost(t *testing.T) {
	t.Parallel()
	host := strings.Repeat("a", 64) + ".invalid" // no resolver asks for such a name
	for _, args := range [][]string{
		{"get", "k", "--server", "tcp://" + host + ":5556", "--timeout", "1m"},
		{"watch", "--server", "tcp://" + host + ":5556", "--server", "tcp://x" + host + ":5556", "--timeout", "1m"},
	} {
		begun := time.Now()
		o := try(t, args...)
		o.expect(t, exitNoServer, "no such host")
		if !strings.Contains(o.stderr, host) || strings.Contains(o.stderr, "chp serve") || time.Since(begun) > 50*time.Second {
			t.Errorf("after %v: %s", time.Since(begun), o.stderr)
		}
	}
}

// A refused connection may be a server that is starting: the command says so at
// once and goes on trying, and names the reason at the end.
func TestConnectionRefused(t *testing.T) {
	t.Parallel()
	o := try(t, "get", "k", "--server", "tcp://127.0.0.1:1", "--timeout", "2s")
	o.expect(t, exitNoServer, "within 2s: connection refused")
	o.expect(t, exitNoServer, "; start one with: chp serve --port 1\n")
	if n := strings.Count(o.stderr, "waiting up to 2s for a server to start"); n != 1 {
		t.Errorf("said %d times that it waits: %s", n, o.stderr)
	}
	// It is served when the server comes.
	s := serveApart(t)
	s.signal(syscall.SIGTERM)
	s.wait()
	set := start(t, "set", "k", "v", "--server", s.endpoint, "--timeout", "2m")
	for !strings.Contains(set.stderr.String(), "waiting up to") {
		select {
		case <-set.stderr.Written():
		case <-time.After(10 * time.Millisecond):
		case <-set.waited:
			t.Fatalf("exit code %d: %s", set.wait(), set.stderr.String())
		}
	}
	start(t, "serve", "--host", s.host(), "--port", s.port()).ready()
	if code := set.wait(); code != exitDone {
		t.Errorf("exit code %d: %s", code, set.stderr.String())
	}
}

// Which of the ports has refused first makes no difference: that a server needs three
// ports is said only if the first one accepts.
func TestRefusalOfAnotherPort(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", loopback.Own()+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	host, port, _ := net.SplitHostPort(l.Addr().String())
	server := "tcp://" + l.Addr().String()
	refused := func(port string) error {
		return &net.OpError{Op: "dial", Net: "tcp", Addr: netAddress(net.JoinHostPort(host, port)), Err: syscall.ECONNREFUSED}
	}
	other := next(port)
	if got, want := reason(server, atFirstPort(server, refused(other))), "connection refused at tcp://"+net.JoinHostPort(host, other)+", and a server needs three ports"; got != want {
		t.Errorf("the first port accepts: %q, want %q", got, want)
	}
	l.Close()
	for _, port := range []string{port, other, next(other)} {
		if got := reason(server, atFirstPort(server, refused(port))); got != "connection refused" {
			t.Errorf("no port accepts, port %s is the first to refuse: %q", port, got)
		}
	}
}

// netAddress is a net.Addr.
type netAddress string

func (netAddress) Network() string  { return "tcp" }
func (a netAddress) String() string { return string(a) }

// The advice starts a server where the client looks for it.
func TestServeCommand(t *testing.T) {
	t.Parallel()
	for server, want := range map[string]string{
		"tcp://127.0.0.1:5556":  "chp serve",
		"tcp://127.0.0.1:41100": "chp serve --port 41100",
		"tcp://localhost:41100": "chp serve --port 41100",
		"tcp://localhost:5556":  "chp serve",
		"tcp://127.0.0.2:5556":  "chp serve --host 127.0.0.2",
		"tcp://[::1]:41100":     "chp serve --host ::1 --port 41100",
		"tcp://10.0.0.7:41100":  "chp serve",
		"tcp://example:41100":   "chp serve",
		"ipc:///run/chp/map":    "chp serve --endpoint ipc:///run/chp/map",
		"ipc:///run/my map":     "chp serve --endpoint 'ipc:///run/my map'",
	} {
		if got := serveCommand(server); got != want {
			t.Errorf("%s: %s, want %s", server, got, want)
		}
	}
}

// With several servers each has its reason.
func TestEachServerHasItsReason(t *testing.T) {
	t.Parallel()
	host := strings.Repeat("a", 64) + ".invalid"
	o := try(t, "get", "k", "--server", "tcp://127.0.0.1:1", "--server", "tcp://"+host+":5556", "--timeout", "2s")
	o.expect(t, exitNoServer, "at tcp://127.0.0.1:1 (connection refused")
	o.expect(t, exitNoServer, "), tcp://"+host+":5556 (cannot look up its host: no such host)")
	first, _, _ := strings.Cut(o.stderr, "\n")
	if !strings.HasPrefix(first, "chp: no server listens at tcp://127.0.0.1:1 (connection refused)") || !strings.Contains(first, "; tcp://"+host+":5556: cannot look up its host: no such host; waiting") {
		t.Errorf("the first line is %q", first)
	}
}

// A peer that answers and is no CHP server is told apart from a port without a listener,
// and the message names the endpoint.
func TestReasonsOfOthersThatAnswer(t *testing.T) {
	t.Parallel()
	banner := sshBanner(t, loopback.Own()+":0")
	// At the next port, too: its refusal would come as early.
	host, port, _ := net.SplitHostPort(banner)
	sshBanner(t, net.JoinHostPort(host, next(port)))
	s := serve(t)
	publisher := s.host() + ":" + next(s.port())
	silent, err := net.Listen("tcp", loopback.Own()+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	own, port, _ := net.SplitHostPort(silent.Addr().String())
	for at, want := range map[string]string{
		banner:                 "the peer does not speak ZMTP",
		publisher:              "the peer is not a CHP server: it has another socket type",
		silent.Addr().String(): "connection refused at tcp://" + net.JoinHostPort(own, next(port)),
	} {
		for range 3 { // the other port's refusal may come first
			o := try(t, "get", "k", "--timeout", "2s", "--server", "tcp://"+at)
			if o.code == exitNoServer && strings.Contains(o.stderr, want) {
				want = ""
				break
			}
			t.Logf("%s: exit code %d, %s", at, o.code, o.stderr)
		}
		if want != "" {
			t.Errorf("%s never said %q", at, want)
		}
	}
}

// A server that is stopped keeps its port, so nobody is told to start another one there, and
// neither is who has named a port at which another program listens.
func TestAdviceToStartAServerOnlyWhereNobodyListens(t *testing.T) {
	t.Parallel()
	stopped := serveApart(t)
	stopped.signal(syscall.SIGSTOP)
	defer stopped.signal(syscall.SIGCONT)
	const reached = "; is the server running, and can it be reached from here?"
	o := try(t, "get", "k", "--timeout", "1s", "--server", stopped.endpoint)
	o.expect(t, exitNoServer, "no answer"+reached)
	o = try(t, "get", "k", "--timeout", "1s", "--server", stopped.endpoint, "--server", "tcp://127.0.0.1:1")
	o.expect(t, exitNoServer, "; start one with: chp serve --port 1\n")

	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	for _, c := range []struct {
		err  error
		want string
	}{
		{refused, "; start one with: chp serve"},
		{&firstPortError{refused}, "; is it the first port of a server?"},
		{&zmtp.ProtocolError{Err: zmtp.ErrIncompatible}, "; is it the first port of a server?"},
		{&net.DNSError{Err: "server misbehaving", Name: "x", IsTemporary: true}, reached},
		{nil, reached},
	} {
		if got := "; " + advice(defaultServer, c.err); got != c.want {
			t.Errorf("%v: %s, want %s", c.err, got, c.want)
		}
	}
}

// sshBanner listens and greets every connection like an SSH server. It returns its
// address.
func sshBanner(t *testing.T, address string) string {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			c.Write([]byte("SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n"))
		}
	}()
	return l.Addr().String()
}

// TestWatchHelp: watch --help says that "synced" is printed once, as it is.
func TestWatchHelp(t *testing.T) {
	t.Parallel()
	if text := strings.Join(strings.Fields(must(t, "watch", "--help")), " "); !strings.Contains(text, "\"synced\" is not printed again") {
		t.Error(text)
	}
}

// A server that is stopped does not use up the time of a command that was given
// another one.
func TestStoppedServerAndABackup(t *testing.T) {
	t.Parallel()
	stopped, backup := serveApart(t), serve(t)
	stopped.signal(syscall.SIGSTOP)
	defer stopped.signal(syscall.SIGCONT)
	both := []string{"--server", stopped.endpoint, "--server", backup.endpoint, "--timeout", "30s"}
	must(t, append([]string{"set", "/k", "v"}, both...)...)
	if got := must(t, append([]string{"get", "/k"}, both...)...); got != "v\n" {
		t.Errorf("got %q", got)
	}
	if got := must(t, append([]string{"dump"}, both...)...); got != `{"key":"/k","value":"v"}`+"\n" {
		t.Errorf("dump %q", got)
	}
	mustInput(t, `{"key":"/k","value":"w"}`, append([]string{"load"}, both...)...)
	must(t, append([]string{"del", "/k"}, both...)...)
}
