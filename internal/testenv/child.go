package testenv

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// Child is a process that runs the test binary. Its TestMain looks for the variable of
// StartChild before it runs tests.
type Child struct {
	Process *os.Process
	In      io.Writer     // its standard input, which ends with this process
	Out     *bufio.Reader // its standard output
	Kill    func()        // SIGKILL; waits for its end

	t testing.TB
}

// StartChild starts a child with an environment variable. It is killed with the test.
func StartChild(t testing.TB, variable, value string) *Child {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), variable+"="+value)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	Must(t, err)
	out, err := cmd.StdoutPipe()
	Must(t, err)
	Must(t, cmd.Start())
	c := &Child{Process: cmd.Process, In: in, Out: bufio.NewReader(out), t: t}
	c.Kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	t.Cleanup(c.Kill)
	return c
}

// Line returns the next line of its output, without spaces around it.
func (c *Child) Line() string {
	c.t.Helper()
	line, err := c.Out.ReadString('\n')
	Must(c.t, err)
	return strings.TrimSpace(line)
}
