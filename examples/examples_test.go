package examples

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"clustermap/chp"
	"clustermap/internal/interop"
	"clustermap/internal/loopback"
	"clustermap/internal/testenv"
)

var folder string // of the built programs

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if folder, err = os.MkdirTemp("", "examples-test-"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(folder)
		return m.Run()
	}())
}

// programs returns the names of all programs.
func programs() ([]string, error) {
	paths, err := filepath.Glob("*/main.go")
	for i, path := range paths {
		paths[i] = filepath.Dir(path)
	}
	return paths, err
}

// build builds all programs, and chp, with one command, the first time.
var build = sync.OnceValue(func() error {
	names, err := programs()
	if err != nil {
		return err
	}
	args := []string{"build", "-ldflags=-s -w", "-o", folder, "../cmd/chp"}
	for _, name := range names {
		args = append(args, "./"+name)
	}
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
})

// process is a program that runs. Its standard output is read line by line.
type process struct {
	t     *testing.T
	name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines chan string // closed when the program has ended
	seen  []string
}

// start starts a program of this folder. It is killed at the end of the test.
func start(t *testing.T, name string, args ...string) *process {
	t.Helper()
	testenv.Must(t, build())
	return run(t, exec.Command(filepath.Join(folder, name), args...))
}

func run(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, name: filepath.Base(cmd.Args[0]), cmd: cmd, lines: make(chan string, 10_000)}
	stdin, err := p.cmd.StdinPipe()
	testenv.Must(t, err)
	p.stdin = stdin
	stdout, err := p.cmd.StdoutPipe()
	testenv.Must(t, err)
	var stderr strings.Builder
	p.cmd.Stderr = &stderr
	testenv.Must(t, testenv.Launch(p.cmd))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer close(p.lines)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			p.lines <- lines.Text()
		}
		p.cmd.Wait()
	}()
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-ended
		if t.Failed() {
			t.Logf("%s: %s", p.name, stderr.String())
		}
	})
	return p
}

// until reads lines up to one that has the prefix, and returns that one.
func (p *process) until(prefix string) string {
	p.t.Helper()
	deadline := time.After(testenv.Hang)
	for {
		select {
		case line, more := <-p.lines:
			if !more {
				p.t.Fatalf("%s ended without a line %q: %q", p.name, prefix, p.seen)
			}
			p.seen = append(p.seen, line)
			if strings.HasPrefix(line, prefix) {
				return line
			}
		case <-deadline:
			p.t.Fatalf("%s has no line %q: %q", p.name, prefix, p.seen)
		}
	}
}

// end reads all other lines, and checks that the program ends without an error.
func (p *process) end() {
	p.t.Helper()
	deadline := time.After(testenv.Hang)
	for {
		select {
		case line, more := <-p.lines:
			if !more {
				if !p.cmd.ProcessState.Success() {
					p.t.Errorf("%s: %v", p.name, p.cmd.ProcessState)
				}
				return
			}
			p.seen = append(p.seen, line)
		case <-deadline:
			p.t.Fatalf("%s does not end: %q", p.name, p.seen)
		}
	}
}

// stop ends the program as Ctrl-C does.
func (p *process) stop() {
	p.t.Helper()
	testenv.Must(p.t, p.cmd.Process.Signal(os.Interrupt))
	p.end()
}

// server runs a server, at an address of its own, until the returned function is called
// or the test ends.
func server(t *testing.T, o chp.ServerOptions) (endpoint string, stop func()) {
	t.Helper()
	s, err := chp.NewServer(o)
	testenv.Must(t, err)
	testenv.Must(t, s.Listen(testenv.Context(t)))
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(testenv.Context(t)) }()
	stop = sync.OnceFunc(func() {
		s.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return s.Endpoints().Snapshot, stop
}

// misses waits until a client knows that its server has gone, so that it sends it nothing
// more.
func misses(t *testing.T, c *chp.Client) {
	t.Helper()
	testenv.Eventually(t, "the client misses its server", func() bool { return c.State() != chp.StateActive })
}

// TestAll: every program has a test here.
func TestAll(t *testing.T) {
	t.Parallel()
	tests, err := filepath.Glob("*_test.go")
	testenv.Must(t, err)
	source := ""
	for _, path := range tests {
		b, err := os.ReadFile(path)
		testenv.Must(t, err)
		source += string(b)
	}
	names, err := programs()
	testenv.Must(t, err)
	for _, name := range names {
		if !strings.Contains(source, fmt.Sprintf("start(t, %q", name)) {
			t.Errorf("no test runs %s", name)
		}
	}
}

// The server and its clients see each other's changes.
func TestEmbedded(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	host := loopback.Own()
	p := start(t, "embedded", "-host", host)
	c, err := chp.NewClient(chp.ClientOptions{Servers: []string{"tcp://" + host + ":5556"}})
	testenv.Must(t, err)
	defer c.Close()
	testenv.Must(t, c.Set(ctx, "/greeting", []byte("hello")))
	p.until("set /greeting=hello")
	p.until("set /clock=")
	testenv.Eventually(t, "the clock", func() bool {
		value, ok := c.Get("/clock")
		return ok && len(value) == len(time.TimeOnly)
	})
	p.stop()
}

// A process does not compute a result again that the other one has computed.
func TestCache(t *testing.T) {
	t.Parallel()
	endpoint, stop := server(t, chp.ServerOptions{Host: loopback.Own(), Port: 5556})
	first := start(t, "cache", "-server", endpoint)
	c, err := chp.NewClient(chp.ClientOptions{Servers: []string{endpoint}})
	testenv.Must(t, err)
	defer c.Close()
	ask := func(p *process, n int) {
		fmt.Fprintln(p.stdin, n)
		p.until(fmt.Sprintf("%d² = %d", n, n*n))
	}
	ask(first, 12)
	testenv.Eventually(t, "the value in the map", func() bool { _, ok := c.Get("/squares/12"); return ok })
	second := start(t, "cache", "-server", endpoint)
	ask(second, 12)
	if slices.Contains(second.seen, "computed 12") {
		t.Error("the second one has computed it again")
	}
	stop()
	ask(second, 13) // without a server
	for _, p := range []*process{first, second} {
		p.stdin.Close()
		p.end()
	}
}

func TestCurve(t *testing.T) {
	t.Parallel()
	p := start(t, "curve")
	p.end()
	slices.Sort(p.seen)
	if want := []string{"alice has written: true", "mallory is refused: true"}; !slices.Equal(p.seen, want) {
		t.Errorf("%q", p.seen)
	}
}

// The registry tells an instance that leaves from one that is killed, and says nothing
// when the server restarts without its map.
func TestRegistry(t *testing.T) {
	t.Parallel()
	o := chp.ServerOptions{Host: loopback.Own(), Port: 5556}
	endpoint, stop := server(t, o)
	watch := start(t, "registry", "-server", endpoint, "watch")
	first := start(t, "registry", "-server", endpoint, "announce", "shop/1", "10.0.0.7:80")
	watch.until("up /services/shop/1 10.0.0.7:80")
	second := start(t, "registry", "-server", endpoint, "announce", "shop/2", "10.0.0.8:80")
	watch.until("up /services/shop/2")
	first.until("announced")
	second.until("announced")
	stop()
	server(t, o)
	c, err := chp.NewClient(chp.ClientOptions{Servers: []string{endpoint}})
	testenv.Must(t, err)
	defer c.Close()
	testenv.Eventually(t, "both instances again", func() bool {
		_, one := c.Get("/services/shop/1")
		_, two := c.Get("/services/shop/2")
		return one && two
	})
	third := start(t, "registry", "-server", endpoint, "announce", "shop/3", "10.0.0.9:80")
	watch.until("up /services/shop/3")
	third.until("announced") // now it has a key to delete
	third.stop()
	watch.until("left /services/shop/3")
	first.stop()
	watch.until("left /services/shop/1")
	second.cmd.Process.Kill()
	watch.until("failed /services/shop/2")
	start(t, "registry", "-server", endpoint, "announce", "shop/2", "10.0.0.8:80")
	watch.until("up /services/shop/2")
	watch.stop()
	if len(watch.seen) != 7 {
		t.Errorf("other reports: %q", watch.seen)
	}
}

// The loop has the sum of the map's numbers, also when changes come too fast, or when the
// server restarts.
func TestWatch(t *testing.T) {
	t.Parallel()
	o := chp.ServerOptions{Host: loopback.Own(), Port: 5556}
	endpoint, stop := server(t, o)
	ctx := testenv.Context(t)
	c, err := chp.NewClient(chp.ClientOptions{Servers: []string{endpoint}})
	testenv.Must(t, err)
	defer c.Close()
	testenv.Must(t, c.Set(ctx, "/n/a", []byte("40")))
	testenv.Must(t, c.Set(ctx, "/n/b", []byte("2")))
	testenv.Must(t, c.Flush(ctx))
	p := start(t, "watch", "-server", endpoint)
	p.until("sum 42")
	testenv.Must(t, c.Delete(ctx, "/n/b"))
	p.until("sum 40 deleted")

	slow := start(t, "watch", "-server", endpoint, "-work", "20ms", "-queue", "10000")
	slow.until("sum 40")
	for i := range 1000 {
		testenv.Must(t, c.Set(ctx, "/n/a", fmt.Append(nil, i+1)))
	}
	slow.until("lagged")
	slow.until("sum 1000")
	slow.stop()

	stop()
	p.until("sum 1000")
	misses(t, c)
	server(t, o)
	testenv.Must(t, c.Set(ctx, "/n/c", []byte("7")))
	p.until("sum 7")
	p.stop()
}

// All jobs are done although a worker is killed while it has some.
func TestPipeline(t *testing.T) {
	t.Parallel()
	interop.Require(t)
	host := loopback.Own()
	at := []string{"tcp://" + host + ":5557", "tcp://" + host + ":5558"}
	p := start(t, "pipeline", "-jobs-at", at[0], "-done-at", at[1], "-timeout", "500ms")
	worker := func() *process {
		return run(t, exec.Command("/usr/bin/python3", append([]string{"pipeline/worker.py"}, at...)...))
	}
	killed := worker()
	p.until("done 0: JOB 0")
	worker()
	killed.cmd.Process.Kill()
	p.end()
	slices.Sort(p.seen)
	if p.seen = slices.Compact(p.seen); len(p.seen) != 100 {
		t.Errorf("%d jobs are done: %q", len(p.seen), p.seen)
	}
}

// All jobs are done although a worker is killed while it has some: nothing but the end of
// its connection can tell that.
func TestJobs(t *testing.T) {
	t.Parallel()
	interop.Require(t)
	at := "tcp://" + loopback.Own() + ":5559"
	p := start(t, "jobs", "-at", at)
	worker := func() *process { return run(t, exec.Command("/usr/bin/python3", "jobs/worker.py", at)) }
	killed := worker()
	p.until("done 0: JOB 0")
	killed.cmd.Process.Kill()
	worker()
	p.end()
	if len(p.seen) != 100 {
		t.Errorf("%d jobs are done: %q", len(p.seen), p.seen)
	}
}
