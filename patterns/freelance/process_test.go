package freelance

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// childVariable makes the test binary a server on the endpoint in its value. The first
// frame of each request is the time that its handler takes.
const childVariable = "FREELANCE_TEST_CHILD"

func child() {
	bind := os.Getenv(childVariable)
	if bind == "" {
		return
	}
	o := ServerOptions{Bind: bind, Concurrency: 1000, Handler: func(_ context.Context, r [][]byte) ([][]byte, error) {
		d, err := time.ParseDuration(string(r[0]))
		time.Sleep(d)
		return r, err
	}}
	s, err := NewServer(context.Background(), o)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(s.Endpoint())
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0) // the test has ended
}

// process is a child process that runs a server.
type process struct {
	cmd      *exec.Cmd
	endpoint string
	kill     func()
}

func startProcess(t testing.TB, bind string) *process {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	p := &process{cmd: exec.Command(self, "-test.run=^$")}
	p.cmd.Env = append(os.Environ(), childVariable+"="+bind)
	p.cmd.Stderr = os.Stderr
	in, err := p.cmd.StdinPipe()
	must(t, err)
	out, err := p.cmd.StdoutPipe()
	must(t, err)
	must(t, p.cmd.Start())
	p.kill = sync.OnceFunc(func() {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		in.Close()
	})
	t.Cleanup(p.kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	must(t, err)
	p.endpoint = strings.TrimSpace(line)
	return p
}
