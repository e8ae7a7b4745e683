//go:build unix

package chaos

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"testing"

	"clustermap/internal/loopback"
	"clustermap/internal/testenv"
)

// shape is a kind of cluster, with its promises.
type shape struct {
	name string
	pair bool
	raft bool // three nodes of a cluster
	data bool // the servers keep their updates on disk

	// keeps says that acknowledged updates survive the kill of a server. If it does not,
	// the map is empty after each kill.
	keeps bool

	// splits says that the servers of a pair lose sight of each other. Then both can
	// be active, and updates that one of them has acknowledged can be given up: that is
	// how Binary Star works. The test checks only that all are equal in the end.
	splits bool
}

var shapes = []shape{
	{name: "memory"},
	{name: "data", data: true, keeps: true},
	{name: "pair", pair: true, keeps: true},
	{name: "pair-split", pair: true, keeps: true, splits: true},
	{name: "pair-data", pair: true, data: true, keeps: true},
	{name: "cluster", raft: true, data: true, keeps: true},
}

// commandVariable names a chp that was built already.
const commandVariable = "CLUSTERMAP_CHAOS_CHP"

// command returns the path of chp, which is built once, like this test: under the
// race detector if this is, and with the same build tags.
func command(t testing.TB) string {
	t.Helper()
	built.Do(func() {
		if path := os.Getenv(commandVariable); path != "" {
			built.path = path
			return
		}
		built.dir, built.err = os.MkdirTemp("", "chp-chaos-")
		if built.err != nil {
			return
		}
		built.path = filepath.Join(built.dir, "chp")
		// Without tables for debuggers, which take half of the time to link.
		args := []string{"build", "-ldflags=-s -w", "-o", built.path}
		if info, ok := debug.ReadBuildInfo(); ok {
			for _, s := range info.Settings {
				switch {
				case s.Key == "-race" && s.Value == "true":
					args = append(args, "-race")
				case s.Key == "-tags":
					args = append(args, "-tags", s.Value)
				}
			}
		}
		out, err := exec.Command("go", append(args, "clustermap/cmd/chp")...).CombinedOutput()
		if err != nil {
			built.err = fmt.Errorf("cannot build chp: %w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.path
}

var built struct {
	sync.Once
	dir  string // to be removed
	path string
	err  error
}

// server is a server process, which is started again and again.
type server struct {
	t      testing.TB
	name   string
	host   string
	port   int
	state  int // port at which a server of a pair tells its state
	args   []string
	dir    string // of its data, or ""
	output string // file with its output

	node  int      // its number, of a node of a cluster
	front *front   // by which other nodes reach it
	base  []string // args without those of the cluster

	mu       sync.Mutex
	process  *process // nil while none is meant to run
	crashed  []string // processes that ended by themselves
	starts   int
	mayFail  bool // a process may end before it is ready
	mayLeave bool // and later: it is being removed
}

// process is one run of a server.
type process struct {
	cmd    *exec.Cmd
	stderr *watched
	ended  chan struct{}
	asked  bool // it is meant to end; guarded by server.mu
}

// watched collects the output of a process, and finds the line that says that it is
// ready.
type watched struct {
	file  *os.File
	mu    sync.Mutex
	all   []byte
	ready chan struct{}
}

func (w *watched) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.all) < 1<<20 {
		w.all = append(w.all, b...)
	}
	if w.ready != nil && bytes.Contains(w.all, []byte("ready: ")) {
		close(w.ready)
		w.ready = nil
	}
	return w.file.Write(b)
}

func (w *watched) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.all)
}

// newServer takes ports for a server and starts nothing.
func newServer(t testing.TB, name, dir string, data bool) *server {
	s := &server{t: t, name: name, host: loopback.Own(), output: filepath.Join(dir, name+".log")}
	for s.port == 0 {
		if ls := consecutive(t, s.host, ports+1); ls != nil {
			s.port, s.state = portOf(ls[0]), portOf(ls[ports])
			for _, l := range ls {
				l.Close()
			}
		}
	}
	s.args = []string{
		"serve", "--host", s.host, "--port", fmt.Sprint(s.port), "--heartbeat", "100ms", "--log-level", "info",
		// So little that a client that is held for a while is disconnected.
		"--subscriber-queue", "128KiB",
	}
	if data {
		s.dir = filepath.Join(dir, name+".data")
		s.args = append(s.args, "--data", s.dir, "--sync", "always")
	}
	t.Cleanup(s.kill)
	return s
}

func (s *server) address() string { return fmt.Sprintf("tcp://%s:%d", s.host, s.port) }

// start starts the server and waits until it is ready.
func (s *server) start(ctx context.Context) error {
	s.mu.Lock()
	if s.process != nil {
		s.mu.Unlock()
		return nil
	}
	file, err := os.OpenFile(s.output, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.mu.Unlock()
		return err
	}
	ready := make(chan struct{})
	p := &process{cmd: exec.Command(command(s.t), s.args...), stderr: &watched{file: file, ready: ready}, ended: make(chan struct{}), asked: s.mayFail || s.mayLeave}
	fmt.Fprintf(file, "--- start %d: chp %s\n", s.starts, strings.Join(s.args, " "))
	p.cmd.Stderr, p.cmd.Stdout = p.stderr, p.stderr
	if err := testenv.Launch(p.cmd); err != nil {
		s.mu.Unlock()
		file.Close()
		return err
	}
	s.process = p
	s.starts++
	s.mu.Unlock()
	go func() {
		err := p.cmd.Wait()
		s.mu.Lock()
		if text := p.stderr.text(); !p.asked || strings.Contains(text, "DATA RACE") || strings.Contains(text, "panic: ") {
			s.crashed = append(s.crashed, fmt.Sprintf("%s: %v\n%s", s.name, err, text))
		}
		if s.process == p {
			s.process = nil
		}
		s.mu.Unlock()
		file.Close()
		close(p.ended)
	}()
	select {
	case <-ready:
		s.mu.Lock()
		p.asked = p.asked && !s.mayFail
		s.mu.Unlock()
		return nil
	case <-p.ended:
		return fmt.Errorf("%s ended before it was ready: %s", s.name, p.stderr.text())
	case <-ctx.Done():
		return fmt.Errorf("%s does not become ready: %s", s.name, p.stderr.text())
	}
}

// end sends the process a signal that ends it, and waits for that.
func (s *server) end(signal os.Signal) {
	s.mu.Lock()
	p := s.process
	if p == nil {
		s.mu.Unlock()
		return
	}
	p.asked = true
	_ = p.cmd.Process.Signal(signal)
	s.mu.Unlock()
	<-p.ended
}

// allow says whether processes that are started from now on may end by themselves: while they start, or at any time.
func (s *server) allow(mayFail, mayLeave bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mayFail, s.mayLeave = mayFail, mayLeave
}

// kill ends the process without warning.
func (s *server) kill() { s.end(syscall.SIGKILL) }

// signal sends the process a signal that does not end it.
func (s *server) signal(signal os.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil {
		_ = s.process.cmd.Process.Signal(signal)
	}
}

// forget removes the server's data. It must not run.
func (s *server) forget() error {
	if s.dir == "" {
		return nil
	}
	return os.RemoveAll(s.dir)
}

func portOf(l net.Listener) int { return l.Addr().(*net.TCPAddr).Port }
