//go:build unix

package main

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"clustermap/internal/loopback"
	"clustermap/internal/testenv"
)

// manager is the socket of a service manager.
type manager struct {
	t *testing.T
	*net.UnixConn
}

// newManager returns a manager with a socket of that name.
func newManager(t *testing.T, name string) *manager {
	t.Helper()
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	testenv.Must(t, err)
	t.Cleanup(func() { c.Close() })
	testenv.Must(t, c.SetReadDeadline(time.Now().Add(testenv.Hang)))
	return &manager{t, c}
}

// state returns the next state that the service has sent.
func (m *manager) state() string {
	m.t.Helper()
	var space [512]byte
	n, err := m.Read(space[:])
	testenv.Must(m.t, err)
	return string(space[:n])
}

// starts starts a server that tells the manager.
func (m *manager) starts(args ...string) *process {
	m.t.Helper()
	cmd := program(m.t, append([]string{"serve"}, args...)...)
	cmd.Env = append(cmd.Env, notifyVariable+"="+m.LocalAddr().String())
	return startCommand(m.t, cmd)
}

// shortDir returns a directory whose name leaves room for that of a socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "chp")
	testenv.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// A server tells the service manager when it is ready and when it stops.
func TestNotify(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	names := []string{filepath.Join(dir, "n")}
	if runtime.GOOS == "linux" {
		names = append(names, "@"+filepath.Base(dir))
	}
	for _, name := range names {
		m := newManager(t, name)
		host := loopback.Own()
		p := m.starts("--host", host)
		if state := m.state(); state != "READY=1" {
			t.Fatalf("%s: %q", name, state)
		}
		must(t, "set", "k", "v", "--timeout", testenv.Hang.String(), "--server", "tcp://"+host+":5556")
		p.signal(syscall.SIGTERM)
		if state := m.state(); state != "STOPPING=1" {
			t.Errorf("%s: %q", name, state)
		}
		if code := p.wait(); code != exitDone {
			t.Errorf("exit code %d: %s", code, p.stderr.String())
		}
	}
}

// A server of a pair is ready when it is active or passive. Without the other one it is
// ready when that has been silent, or the two could wait for each other.
func TestNotifyPair(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	host := loopback.Own()
	pair := []string{"--host", host, "--bstar-interval", testenv.Hang.String()}
	primary, backup := newManager(t, filepath.Join(dir, "p")), newManager(t, filepath.Join(dir, "b"))
	backup.starts(append(pair, "--backup")...).ready()
	primary.starts(append(pair, "--primary")...)
	for m, want := range map[*manager]string{primary: "active 5556", backup: "passive 5566"} {
		if state := m.state(); state != "READY=1" {
			t.Fatalf("%q", state)
		}
		state, port, _ := strings.Cut(want, " ")
		o := try(t, "status", "--json", "--timeout", testenv.Hang.String(), "--server", "tcp://"+host+":"+port)
		if got := object(t, strings.TrimSpace(o.out))["state"]; got != state {
			t.Errorf("%s is %v when ready, want %s", port, got, state)
		}
	}

	alone := newManager(t, filepath.Join(dir, "a"))
	alone.starts("--host", loopback.Own(), "--backup", "--bstar-interval", "50ms")
	if state := alone.state(); state != "READY=1" {
		t.Errorf("%q", state)
	}
}

// A service manager that cannot be reached does not keep a server from serving.
func TestNotifyNobody(t *testing.T) {
	t.Parallel()
	cmd := program(t, "serve", "--port", "0")
	cmd.Env = append(cmd.Env, notifyVariable+"="+filepath.Join(shortDir(t), "missing"))
	p := startCommand(t, cmd)
	must(t, "set", "k", "v", "--server", p.ready())
	testenv.Eventually(t, "the error", func() bool { return strings.Contains(p.stderr.String(), "chp: cannot tell the service manager: ") })
}
