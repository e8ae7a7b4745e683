package sockets

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"clustermap/internal/bounds"
)

const (
	scarceVariable = "CLUSTERMAP_SOCKETS_SCARCE" // makes TestScarceProcess the server of the tests here
	scarceLimit    = 128                         // its descriptors
	scarceFiles    = scarceLimit / 8             // that it can always open: half of the reserve
)

// TestScarceProcess is a process with few descriptors and two sockets. For each line that
// it reads it opens files, and writes whether that was possible.
func TestScarceProcess(t *testing.T) {
	if os.Getenv(scarceVariable) == "" {
		t.Skip("a process of other tests")
	}
	must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: scarceLimit, Max: scarceLimit}))
	o := Options{}
	busy, quiet := open(t, NewRouter, o), open(t, NewRouter, o)
	for _, r := range []*Router{busy, quiet} {
		r.core.Tuning.HandshakeGrace = time.Millisecond
		must(t, r.Bind(testContext(t), anyPort))
		fmt.Println("at", r.LastEndpoint())
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var files []*os.File
		var failed error
		for range scarceFiles {
			f, err := os.Open(os.DevNull)
			if err != nil {
				failed = err
				break
			}
			files = append(files, f)
		}
		for _, f := range files {
			f.Close()
		}
		fmt.Println("opened", len(files), failed)
	}
}

// scarce is a process of TestScarceProcess.
type scarce struct {
	t           *testing.T
	in          io.Writer
	out         *bufio.Scanner
	busy, quiet string // endpoints
}

func newScarce(t *testing.T) *scarce {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestScarceProcess$", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), scarceVariable+"=1")
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	cmd.Stderr = os.Stderr
	must(t, cmd.Start()) // it ends with its input
	t.Cleanup(func() {
		in.Close()
		_, _ = io.Copy(io.Discard, out)
		if err := cmd.Wait(); err != nil {
			t.Error("the process with few descriptors:", err)
		}
	})
	s := &scarce{t: t, in: in, out: bufio.NewScanner(out)}
	s.busy, s.quiet = s.line("at "), s.line("at ")
	return s
}

// line returns the rest of the next line that begins with a text.
func (s *scarce) line(begins string) string {
	s.t.Helper()
	for s.out.Scan() {
		if rest, ok := strings.CutPrefix(s.out.Text(), begins); ok {
			return rest
		}
	}
	s.t.Fatal("the process with few descriptors has ended")
	return ""
}

// opens checks that the process can open files.
func (s *scarce) opens() {
	s.t.Helper()
	fmt.Fprintln(s.in)
	if got := s.line("opened "); got != fmt.Sprint(scarceFiles, " <nil>") {
		s.t.Errorf("it could open %s, of %d files", got, scarceFiles)
	}
}

// arrives reports whether a peer at an endpoint completes its handshake, for the other side
// too: until then it may have to give way to the next one.
func (s *scarce) arrives(endpoint string) (*raw, bool) {
	r := dialRaw(s.t, endpoint)
	return r, r.TryGreet("DEALER", nil) == nil && r.TrySync() == nil
}

// TestConnectionsLeaveDescriptorsToFiles: peers that connect until no more are accepted
// do not keep the process from opening files, nor a peer from a socket that has few; and
// when some of them have gone, others are accepted again.
func TestConnectionsLeaveDescriptorsToFiles(t *testing.T) {
	t.Parallel()
	s := newScarce(t)
	var all []*raw
	for len(all) <= scarceLimit {
		r, ok := s.arrives(s.busy)
		if !ok {
			break
		}
		all = append(all, r)
	}
	if len(all) < scarceLimit/2 || len(all) > scarceLimit*3/4 {
		t.Errorf("%d connections of a process with %d descriptors", len(all), scarceLimit)
	}
	s.opens()
	for range bounds.FewConnections {
		if _, ok := s.arrives(s.quiet); !ok {
			t.Error("a peer of the other socket was not accepted")
		}
	}
	s.opens()
	for range 2 * scarceLimit { // one after the other: each is closed at once
		if _, ok := s.arrives(s.busy); ok {
			t.Error("another peer was accepted")
			break
		}
	}
	s.opens()
	for _, r := range all {
		r.Conn.Close()
	}
	eventually(t, "peers are accepted again", func() bool {
		_, ok := s.arrives(s.busy)
		return ok
	})
}

// TestSilentConnectionsLeaveDescriptorsToFiles: connections that say nothing keep a
// process neither from opening files nor from accepting a peer that says something.
func TestSilentConnectionsLeaveDescriptorsToFiles(t *testing.T) {
	t.Parallel()
	s := newScarce(t)
	for range 2 * scarceLimit {
		dialRaw(t, s.busy)
		dialRaw(t, s.quiet)
	}
	s.opens()
	for _, endpoint := range []string{s.busy, s.quiet} {
		// Those that gave way close their descriptors some time later. A peer that comes
		// before may be refused, and tries again.
		eventually(t, "a peer is accepted", func() bool {
			_, ok := s.arrives(endpoint)
			return ok
		})
	}
	s.opens()
}
