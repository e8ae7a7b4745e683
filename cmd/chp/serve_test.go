package main

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"clustermap/chp"
	"clustermap/internal/loopback"
)

func TestServeEndsCleanly(t *testing.T) {
	t.Parallel()
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		s := serve(t)
		w := start(t, "watch", "--server", s.endpoint)
		w.line() // synced: there is a client to say goodbye to
		s.signal(sig)
		if code := s.wait(); code != exitDone {
			t.Errorf("%v: exit code %d: %s", sig, code, s.stderr.String())
		}
	}
}

func TestServeReadyLine(t *testing.T) {
	t.Parallel()
	s := serve(t)
	m := readyLine.FindStringSubmatch(s.stderr.String())
	port, err := strconv.Atoi(s.port())
	if err != nil {
		t.Fatal(err)
	}
	for i, endpoint := range m[1:] {
		if want := "tcp://127.0.0.1:" + strconv.Itoa(port+i); endpoint != want {
			t.Errorf("endpoint %d is %s, want %s", i, endpoint, want)
		}
	}
	s.signal(syscall.SIGTERM)
	s.wait()
	if n := strings.Count(s.stderr.String(), "\n"); n != 1 {
		t.Errorf("%d lines on standard error, want 1: %s", n, s.stderr.String())
	}
	if rest, _ := s.stdout.ReadString(0); rest != "" {
		t.Errorf("standard output: %q", rest)
	}
}

func TestServeOnGivenPort(t *testing.T) {
	t.Parallel()
	first := serveApart(t)
	port := first.port()
	first.signal(syscall.SIGTERM)
	first.wait()
	// Connections that just ended must not keep the ports.
	again := serve(t, "--port", port, "--host", first.host())
	if again.port() != port {
		t.Errorf("port %s, want %s", again.port(), port)
	}
	must(t, "set", "k", "v", "--server", again.endpoint)
}

func TestServeOnNamedHost(t *testing.T) {
	t.Parallel()
	s := serve(t, "--host", "localhost")
	must(t, "set", "k", "v", "--server", "tcp://localhost:"+s.port())
}

func TestServePortInUse(t *testing.T) {
	t.Parallel()
	s := serve(t)
	o := try(t, "serve", "--port", s.port())
	o.expect(t, exitRefused, "in use")
	if !strings.Contains(o.stderr, s.port()) || !strings.Contains(o.stderr, "--port") || strings.Contains(o.stderr, "ready") {
		t.Errorf("stderr %q", o.stderr)
	}
	// The collector's port alone.
	port, err := strconv.Atoi(s.port())
	if err != nil {
		t.Fatal(err)
	}
	try(t, "serve", "--port", strconv.Itoa(port-2)).expect(t, exitRefused, "in use")
	must(t, "set", "k", "v", "--server", s.endpoint)
}

// If a port is in use that is not on the command line, the text says why it is needed.
func TestServeNeedsThreePorts(t *testing.T) {
	t.Parallel()
	for port, want := range map[int]string{
		41100: "tcp://127.0.0.1:41100 is in use; stop",
		41101: "tcp://127.0.0.1:41101 is in use, and a server needs the ports 41100, 41101 and 41102; stop",
		41102: "tcp://127.0.0.1:41102 is in use, and a server needs the ports 41100, 41101 and 41102; stop",
	} {
		f := serveFlags{ServerOptions: chp.ServerOptions{Port: 41100, Model: maxModel}}
		err := f.listenError(&chp.ListenError{Endpoint: fmt.Sprintf("tcp://127.0.0.1:%d", port), Err: syscall.EADDRINUSE}, nil)
		if !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestServeNamesTakenStatePort: if the port is in use at which a server of a pair publishes
// its state, the text says so, and which flag chooses another one.
func TestServeNamesTakenStatePort(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", loopback.Own()+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	state := "tcp://" + taken.Addr().String()
	want := state + " is in use, and this server publishes its state there; stop the program that uses it, or choose another --state, and name it to the other server as --peer-state\n"
	for _, at := range [][]string{{"--port", "0"}, {"--endpoint", "tcp://127.0.0.1:0", "--peer", "tcp://127.0.0.1:5566", "--peer-state", "tcp://127.0.0.1:5004"}} {
		try(t, append([]string{"serve", "--primary", "--state", state}, at...)...).expect(t, exitRefused, want)
	}
	// The ports are of a server whose first port was chosen.
	port := strconv.Itoa(taken.Addr().(*net.TCPAddr).Port - 10)
	try(t, "serve", "--primary", "--host", loopback.Own(), "--port", port, "--state", state).expect(t, exitRefused, want)
}

func TestServeOnForeignAddress(t *testing.T) {
	t.Parallel()
	try(t, "serve", "--host", "192.0.2.1", "--port", "0").expect(t, exitRefused, "--host")
}

func TestServeLogs(t *testing.T) {
	t.Parallel()
	s := serve(t, "--log-level", "info", "--log-format", "json")
	s.signal(syscall.SIGTERM)
	s.wait()
	found := false
	for line := range strings.Lines(s.stderr.String()) {
		if strings.HasPrefix(line, "{") {
			found = true
			object(t, line)
		}
	}
	if !found {
		t.Errorf("no log: %s", s.stderr.String())
	}
}

func TestServeIgnoresGarbage(t *testing.T) {
	t.Parallel()
	s := serve(t)
	address := strings.TrimPrefix(s.endpoint, "tcp://")
	for _, text := range []string{"", "GET / HTTP/1.0\r\n\r\n", strings.Repeat("\xff", 1000)} {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		c.Write([]byte(text))
		defer c.Close()
	}
	must(t, "set", "k", "v", "--server", s.endpoint)
}

// The server's process is killed under clients of every kind; another takes its
// place on the same ports.
func TestServerKilledUnderClients(t *testing.T) {
	t.Parallel()
	s := serveApart(t)
	must(t, "set", "old", "1", "--server", s.endpoint)
	w := start(t, "watch", "--json", "--server", s.endpoint)
	if e := object(t, w.line()); e["op"] != "set" || e["key"] != "old" {
		t.Fatalf("%v", e)
	}
	if e := object(t, w.line()); e["op"] != "synced" {
		t.Fatalf("%v", e)
	}
	load := start(t, "load", "--timeout", "3s", "--server", s.endpoint)
	if _, err := load.stdin.Write([]byte(`{"key":"loaded","value":"1"}` + "\n")); err != nil {
		t.Fatal(err)
	}
	for object(t, w.line())["key"] != "loaded" {
	}
	s.cmd.Process.Kill()
	s.wait()

	if code := load.wait(); code != exitNoServer || !strings.Contains(load.stderr.String(), "lost the connection") {
		t.Errorf("load: exit code %d: %s", code, load.stderr.String())
	}
	try(t, "set", "k", "v", "--timeout", "2s", "--server", s.endpoint).expect(t, exitNoServer, "chp serve")

	again := serve(t, "--port", s.port(), "--host", s.host())
	must(t, "set", "new", "2", "--server", again.endpoint)
	seen := map[string]string{}
	for seen["new"] != "set" || seen["old"] != "del" || seen["loaded"] != "del" {
		if e := object(t, w.line()); e["key"] != nil {
			seen[e["key"].(string)] = e["op"].(string)
		}
	}
	w.signal(os.Interrupt)
	if code := w.wait(); code != exitDone {
		t.Errorf("watch: exit code %d: %s", code, w.stderr.String())
	}
}
