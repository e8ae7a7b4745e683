package clone

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"clustermap/internal/interop"
	"clustermap/internal/testenv"
)

// folder is where the programs are built.
var folder string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if folder, err = os.MkdirTemp("", "clone-test-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(folder)
	return m.Run()
}

var built sync.Map // from the name of a program to its build

// build builds a program such as model1/server, once, and returns its path.
func build(t *testing.T, name string) string {
	t.Helper()
	once, _ := built.LoadOrStore(name, sync.OnceValues(func() (string, error) {
		path := filepath.Join(folder, strings.ReplaceAll(name, "/", "-"))
		// Without tables for debuggers, which take half of the time.
		out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", path, "./"+name).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("go build %s: %w\n%s", name, err, out)
		}
		return path, err
	}))
	path, err := once.(func() (string, error))()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// program is one of ours that runs.
type program struct {
	t    *testing.T
	name string
	cmd  *exec.Cmd

	mu    sync.Mutex
	lines []string
	more  chan struct{} // closed and replaced with each line; nil after the last
}

// start starts a program. It is killed at the end of the test if it still runs.
func start(t *testing.T, name string, args ...string) *program {
	t.Helper()
	p := &program{t: t, name: name, cmd: exec.Command(build(t, name), args...), more: make(chan struct{})}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	p.cmd.Stderr = &stderr
	if err := testenv.Launch(p.cmd); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			p.mu.Lock()
			p.lines = append(p.lines, lines.Text())
			close(p.more)
			p.more = make(chan struct{})
			p.mu.Unlock()
		}
		p.cmd.Wait()
		p.mu.Lock()
		close(p.more)
		p.more = nil
		p.mu.Unlock()
	}()
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-ended
		if stderr.Len() > 0 {
			t.Logf("%s: %s", name, stderr.String())
		}
	})
	return p
}

// line waits for a line for which match returns true, among all so far and those
// to come.
func (p *program) line(what string, match func(string) bool) string {
	p.t.Helper()
	deadline := time.After(testenv.Hang)
	for next := 0; ; {
		p.mu.Lock()
		lines, more := p.lines, p.more
		p.mu.Unlock()
		for ; next < len(lines); next++ {
			if match(lines[next]) {
				return lines[next]
			}
		}
		if more == nil {
			p.t.Fatalf("%s ended without a line %q; the last ones are %q", p.name, what, lines[max(0, next-5):])
		}
		select {
		case <-more:
		case <-deadline:
			p.t.Fatalf("%s has no line %q; the last ones are %q", p.name, what, lines[max(0, next-5):])
		}
	}
}

func (p *program) prefix(prefix string) string {
	p.t.Helper()
	return p.line(prefix, func(line string) bool { return strings.HasPrefix(line, prefix) })
}

// ready waits until the program says that it is.
func (p *program) ready() *program {
	p.t.Helper()
	p.prefix("ready:")
	return p
}

// reaches waits until a client has applied the update of that number or a later one.
func (p *program) reaches(sequence int64) {
	p.t.Helper()
	p.line(fmt.Sprint("update ", sequence), func(line string) bool {
		var n int64
		_, err := fmt.Sscanf(line, "update %d:", &n)
		if err != nil {
			_, err = fmt.Sscanf(line, "ready: snapshot %d", &n)
		}
		return err == nil && n >= sequence
	})
}

// end is the summary that a program prints when it ends.
type end struct {
	sequence int64
	keys     int
	digest   string
}

// of converts a Python program's description of its map to the same form.
func of(sequence int64, m interop.Map) end {
	return end{sequence, m.Count, m.SHA256[:16]}
}

// stop ends the program as Ctrl-C does.
func (p *program) stop() (e end) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		p.t.Fatalf("%s: %v", p.name, err)
	}
	line := p.prefix("end:")
	fmt.Sscanf(line, "end: sequence=%d keys=%d digest=%s", &e.sequence, &e.keys, &e.digest)
	deadline := time.After(testenv.Hang)
	for {
		p.mu.Lock()
		more := p.more
		p.mu.Unlock()
		if more == nil {
			break
		}
		select {
		case <-more:
		case <-deadline:
			p.t.Fatalf("%s does not end", p.name)
		}
	}
	if !p.cmd.ProcessState.Success() {
		p.t.Errorf("%s: %v", p.name, p.cmd.ProcessState)
	}
	return e
}
