package titanic

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
)

// childVariable makes this test binary a server, whose options it has.
const childVariable = "CLUSTERMAP_TITANIC_CHILD"

// childOptions are those of a server in a process of its own.
type childOptions struct {
	Broker, Dir string
	Concurrency int
}

// child runs a server if the environment asks for one, and tells whether it did. The server
// runs until it is killed or its input ends.
func child() bool {
	text := os.Getenv(childVariable)
	if text == "" {
		return false
	}
	var c childOptions
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		panic(err)
	}
	o := testOptions(c.Broker, c.Dir)
	o.Concurrency = c.Concurrency
	s, err := New(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin)
	if err := s.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}

// process is a child, seen from the test.
type process struct {
	ready chan struct{} // closed when it has told that it is ready, or has ended
	kill  func()        // as kill -9 does; returns when it is gone
	cmd   *exec.Cmd
}

func startProcess(t testing.TB, c childOptions) *process {
	t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{ready: make(chan struct{}), cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), childVariable+"="+string(text))
	p.cmd.Stderr = os.Stderr
	// Its input ends when this process does.
	if _, err := p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = bufio.NewReader(out).ReadString('\n')
		close(p.ready)
	}()
	p.kill = sync.OnceFunc(func() {
		_ = p.cmd.Process.Kill()
		<-read
		_ = p.cmd.Wait()
	})
	t.Cleanup(p.kill)
	return p
}
