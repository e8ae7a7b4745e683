//go:build unix

package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"clustermap/internal/testenv"
)

// A terminal that is closed ends a server as SIGTERM does: its updates are on disk, and no
// file says that it runs. The second SIGHUP, which a shell sends, does not kill it either.
func TestHangupEndsCleanly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, data, ipc := filepath.Join(dir, "ready"), filepath.Join(dir, "data"), "ipc://"+filepath.Join(dir, "map")
	p := start(t, "serve", "--endpoint", ipc, "--data", data, "--sync", "never", "--ready-file", file)
	testenv.Eventually(t, "the file", func() bool { _, err := os.Stat(file); return err == nil })
	must(t, "set", "/a", "1", "--server", ipc)
	p.signal(syscall.SIGHUP)
	_ = p.cmd.Process.Signal(syscall.SIGHUP) // it may have ended
	if code := p.wait(); code != exitDone {
		t.Errorf("exit code %d: %s", code, p.stderr.String())
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 || left[0].Name() != "data" {
		t.Errorf("%v are left, %v", left, err)
	}
	if o := object(t, must(t, "fsck", "--json", data)); o["sound"] != true || o["updates"] != 1.0 || o["unfinished"] != nil {
		t.Errorf("%v", o)
	}
}

// The active server of a pair hands over at SIGHUP: the other one is active before any
// client asks it, and has all updates.
func TestHangupHandsOver(t *testing.T) {
	t.Parallel()
	pair := startPair(t)
	pair[0].signal(syscall.SIGHUP)
	if code := pair[0].wait(); code != exitDone {
		t.Errorf("exit code %d: %s", code, pair[0].stderr.String())
	}
	if st := object(t, must(t, "status", "--json", "--server", pair[1].endpoint)); st["state"] != "active" || st["keys"] != 1.0 {
		t.Errorf("%v", st)
	}
}

// A server whose clients' keys are in a file reads them again at SIGHUP, and goes on with
// those that it has if the file is invalid.
func TestHangupReadsKeysAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	allow := filepath.Join(dir, "allow")
	key := func(name string) (file, public string) {
		file = filepath.Join(dir, name)
		return file, must(t, "keygen", "--out", file)
	}
	accept := func(text string) { testenv.Must(t, os.WriteFile(allow, []byte(text), 0o600)) }
	server, public := key("server")
	former, formerPublic := key("former")
	next, nextPublic := key("next")
	accept(formerPublic)
	p := start(t, "serve", "--port", "0", "--curve-key", server, "--curve-allow", allow)
	endpoint := p.ready()
	set := func(file string) outcome {
		return try(t, "set", "/a", "1", "--server", endpoint, "--curve-key", file, "--curve-server-key", strings.TrimSpace(public))
	}
	works := func(file string, want bool) {
		t.Helper()
		if r := set(file); (r.code == exitDone) != want || !want && !strings.Contains(r.stderr, "does not accept this key") {
			t.Errorf("%s: exit code %d, %s", filepath.Base(file), r.code, r.stderr)
		}
	}
	works(former, true)
	works(next, false)
	accept(nextPublic)
	p.signal(syscall.SIGHUP)
	p.Await(`read .*allow again: 1 key\n`)
	works(former, false)
	works(next, true)
	accept("nonsense\n")
	p.signal(syscall.SIGHUP)
	p.Await(`the accepted keys stay as they were: .*line 1.*\n`)
	works(next, true)
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != exitDone {
		t.Errorf("exit code %d: %s", code, p.stderr.String())
	}
}

// Under nohup, which ignores SIGHUP, a server goes on.
func TestHangupIgnored(t *testing.T) {
	t.Parallel()
	cmd := program(t, "serve", "--port", "0")
	shell := exec.CommandContext(testenv.Context(t), "sh", append([]string{"-c", `trap "" HUP; exec "$0" "$@"`, cmd.Path}, cmd.Args[1:]...)...)
	shell.Env = cmd.Env
	p := startCommand(t, shell)
	endpoint := p.ready()
	p.signal(syscall.SIGHUP)
	must(t, "set", "/a", "1", "--server", endpoint)
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != exitDone || strings.Contains(p.stderr.String(), "hangup") {
		t.Errorf("exit code %d: %s", code, p.stderr.String())
	}
}

// A server that was killed leaves its ready file. The next one removes it before it does
// anything else, such as waiting for a dump.
func TestReadyFileOfKilledServer(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "ready")
	there := func() bool { _, err := os.Stat(file); return !errors.Is(err, fs.ErrNotExist) }
	first := start(t, "serve", "--port", "0", "--ready-file", file)
	testenv.Eventually(t, "the file", there)
	first.signal(syscall.SIGKILL)
	first.wait()
	if !there() {
		t.Fatal("the file is gone")
	}
	next := start(t, "serve", "--port", "0", "--ready-file", file, "--load", "-") // it waits for its input
	testenv.Eventually(t, "the removal of the file", func() bool { return !there() })
	testenv.Must(t, next.stdin.Close())
	testenv.Eventually(t, "the file", there)
}
