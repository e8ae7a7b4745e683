package main

import (
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"

	"clustermap/internal/commandtest"
	"clustermap/internal/testenv"
)

// A server whose standard error is a full pipe goes on: connections that fail at its
// ports leave nothing behind, it serves, and SIGTERM ends it.
func TestServeWithStandardErrorFull(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := program(t, "serve", "--port", "0", "--handshake-timeout", "5s")
	cmd.Stderr = w
	p := startCommand(t, cmd)
	line := make([]byte, 1024)
	n, err := r.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	m := readyLine.FindStringSubmatch(string(line[:n]))
	if m == nil {
		t.Fatalf("%q", line[:n])
	}
	commandtest.FillPipe(t, w)
	w.Close()

	descriptors := func() int {
		all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	before := descriptors()
	for i := range 300 {
		c, err := net.Dial("tcp", m[1+i%3][len("tcp://"):])
		if err != nil {
			t.Fatal(err)
		}
		c.Write(append([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), make([]byte, 64)...))
		c.Close()
	}
	must(t, "set", "key", "value", "--server", m[1])
	testenv.Eventually(t, "the descriptors of failed handshakes are free", func() bool { return descriptors() <= before+10 })
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != exitDone {
		t.Errorf("exit code %d", code)
	}
}
