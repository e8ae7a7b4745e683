//go:build unix

package upgrade

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"clustermap/chp"
	"clustermap/internal/commandtest"
	"clustermap/internal/testenv"

	"go.uber.org/goleak"
)

// earlier is the commit of the earlier version.
const earlier = "564c566"

// requireVariable makes a missing history a failure.
const requireVariable = "CLUSTERMAP_REQUIRE_HISTORY"

// scratch is a folder for the commands, which ends with the tests.
var scratch string

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "upgrade-test-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(scratch)
		os.Exit(code)
	}), goleak.IgnoreAnyFunction("clustermap/internal/testenv.launcher"))
}

var buildToday = sync.OnceValues(func() (*commandtest.Program, error) {
	return build("../../cmd/chp")
})

// build builds the command in a folder.
func build(folder string) (*commandtest.Program, error) {
	dir, err := os.MkdirTemp(scratch, "built-")
	if err != nil {
		return nil, err
	}
	return commandtest.Build(folder, dir)
}

// today returns the command of this version.
func today(t testing.TB) *commandtest.Program {
	t.Helper()
	p, err := buildToday()
	testenv.Must(t, err)
	return p
}

// errNoHistory says that the earlier version cannot be had.
var errNoHistory = errors.New("this copy of the repository has no commit " + earlier)

var buildOld = sync.OnceValues(func() (*commandtest.Program, error) {
	source := filepath.Join(scratch, earlier)
	if err := export(source); err != nil {
		return nil, err
	}
	return build(filepath.Join(source, "cmd", "chp"))
})

// export writes the files of the earlier version into a folder.
func export(dir string) error {
	// A checkout of another owner's is as good.
	git := func(args ...string) *exec.Cmd {
		return exec.Command("git", append([]string{"-c", "safe.directory=*", "-C", "../.."}, args...)...)
	}
	if out, err := git("cat-file", "-e", earlier+"^{commit}").CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %w: %s", errNoHistory, err, bytes.TrimSpace(out))
	}
	cmd := git("archive", earlier)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("git archive: %w: %s", err, stderr.String())
	}
	return unpack(bytes.NewReader(out), dir)
}

// unpack writes the files of an archive into a folder.
func unpack(r io.Reader, dir string) error {
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		if !filepath.IsLocal(h.Name) {
			return fmt.Errorf("%q is outside of the archive", h.Name)
		}
		path := filepath.Join(dir, h.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, archive)
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
}

// old returns the command of the earlier version. It skips the test if that cannot be
// built.
func old(t testing.TB) *commandtest.Program {
	t.Helper()
	if testing.Short() {
		t.Skip("builds the command of an earlier version: not with -short")
	}
	p, err := buildOld()
	if errors.Is(err, errNoHistory) && os.Getenv(requireVariable) != "1" {
		t.Skip(err)
	}
	testenv.Must(t, err)
	return p
}

// server is a running chp serve.
type server struct {
	*commandtest.Process
	endpoint string // for --server
}

// serve starts a server of a version, and waits until it is ready.
func serve(t testing.TB, p *commandtest.Program, args ...string) *server {
	t.Helper()
	process := p.Start(t, append([]string{"serve"}, args...)...)
	return &server{Process: process, endpoint: process.Await(`ready.* (\w+://[^\s,]+).* \w+://\S+.* \w+://\S+\n`)[1]}
}

// end stops a server, which ends by itself.
func (s *server) end(t testing.TB) {
	t.Helper()
	s.Signal(os.Interrupt)
	if code := s.Wait(); code != 0 {
		t.Fatalf("%s: exit code %d: %s", s.Name, code, s.Stderr.String())
	}
}

// kill stops a server that is not asked.
func (s *server) kill(t testing.TB) {
	t.Helper()
	s.Signal(os.Kill)
	s.Wait()
}

// connect returns a client of this version that follows a server.
func connect(t testing.TB, server string) *chp.Client {
	t.Helper()
	return open(t, chp.ClientOptions{Servers: []string{server}, HeartbeatTimeout: testenv.Hang, SyncTimeout: testenv.Hang})
}

func open(t testing.TB, o chp.ClientOptions) *chp.Client {
	t.Helper()
	o.Logger = slog.New(slog.DiscardHandler)
	c, err := chp.NewClient(o)
	testenv.Must(t, err)
	t.Cleanup(func() { testenv.Must(t, c.Close()) })
	testenv.Must(t, c.WaitActive(testenv.Context(t)))
	return c
}

// flags returns the flags that name servers.
func flags(servers ...string) []string {
	var all []string
	for _, s := range servers {
		all = append(all, "--server", s)
	}
	return all
}
