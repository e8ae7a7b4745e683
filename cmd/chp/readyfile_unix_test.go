//go:build unix

package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"clustermap/internal/testenv"
)

// The file of --ready-file appears as a whole when the server is ready, replaces one that
// a killed server has left, and is gone when the server has ended.
func TestReadyFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "ready")
	testenv.Must(t, os.WriteFile(file, []byte("tcp://127.0.0.1:1\n"), 0o600))
	ipc := "ipc://" + filepath.Join(dir, "map")
	p := start(t, "serve", "--endpoint", "tcp://127.0.0.1:0", "--endpoint", ipc, "--ready-file", file)
	endpoint := p.ready()
	want := endpoint + "\n" + ipc + "\n"
	testenv.Eventually(t, "the file", func() bool {
		text, err := os.ReadFile(file)
		if err == nil && string(text) != want && string(text) != "tcp://127.0.0.1:1\n" {
			t.Fatalf("%q, want %q", text, want)
		}
		return err == nil && string(text) == want
	})
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != exitDone {
		t.Errorf("exit code %d: %s", code, p.stderr.String())
	}
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is left: %v", err)
	}
	left, err := filepath.Glob(file + "*")
	if err != nil || len(left) > 0 {
		t.Errorf("%q are left, %v", left, err)
	}

}

// A server that cannot write its file ends before it says that it is ready, also if the
// directory disappears while it starts.
func TestReadyFileThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "dir")
	file := filepath.Join(dir, "ready")
	text := "chp: cannot write --ready-file " + file + ": no such file or directory\n"
	o := try(t, "serve", "--port", "0", "--ready-file", file)
	o.expect(t, exitRefused, text)
	if o.stderr != text {
		t.Errorf("%q", o.stderr)
	}

	testenv.Must(t, os.Mkdir(dir, 0o777))
	data := filepath.Join(t.TempDir(), "data")
	p := start(t, "serve", "--port", "0", "--ready-file", file, "--data", data, "--load", "-")
	// It opens its data after it has tried to write the file, and then waits for the dump.
	testenv.Eventually(t, "the data", func() bool { _, err := os.Stat(data); return err == nil })
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("%q are left, %v", left, err)
	}
	testenv.Must(t, os.Remove(dir))
	testenv.Must(t, p.stdin.Close())
	if code := p.wait(); code != exitRefused || !strings.HasSuffix(p.stderr.String(), "chp: loaded 0 keys from standard input\n"+text) {
		t.Errorf("exit code %d: %q", code, p.stderr.String())
	}
}

// A server leaves the file of another one alone, also if it cannot start because the other
// one has its ports, and does not replace a directory.
func TestReadyFileOfAnother(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "ready")
	await := func(endpoint string) {
		t.Helper()
		testenv.Eventually(t, "the file of "+endpoint, func() bool {
			text, err := os.ReadFile(file)
			return err == nil && string(text) == endpoint+"\n"
		})
	}
	end := func(p *process) {
		t.Helper()
		p.signal(syscall.SIGTERM)
		if code := p.wait(); code != exitDone {
			t.Errorf("exit code %d: %s", code, p.stderr.String())
		}
	}
	first := start(t, "serve", "--port", "0", "--ready-file", file)
	endpoint := first.ready()
	await(endpoint)
	try(t, "serve", "--endpoint", endpoint, "--ready-file", file).expect(t, exitRefused, "is in use")
	await(endpoint)

	second := start(t, "serve", "--port", "0", "--ready-file", file)
	endpoint = second.ready()
	await(endpoint)
	end(first)
	await(endpoint)
	end(second)
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is left: %v", err)
	}

	try(t, "serve", "--port", "0", "--ready-file", dir).expect(t, exitRefused, "not a regular file")
	testenv.Must(t, os.Symlink("/dev/stdout", file))
	try(t, "serve", "--port", "0", "--ready-file", file).expect(t, exitRefused, "not a regular file")
}

// A file that no server has left is not replaced, whatever its kind.
func TestReadyFileReplacesNoOtherFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "server.key")
	text := strings.Repeat("tcp://127.0.0.1:1\n", 3) + "secret\n"
	testenv.Must(t, os.WriteFile(file, []byte(text), 0o600))
	try(t, "serve", "--port", "0", "--ready-file", file).expect(t, exitRefused, "cannot replace --ready-file "+file+": its text is not that of a server")
	if got, err := os.ReadFile(file); string(got) != text || err != nil {
		t.Errorf("%q, %v", got, err)
	}

	empty := filepath.Join(t.TempDir(), "mktemp")
	testenv.Must(t, os.WriteFile(empty, nil, 0o600))
	p := start(t, "serve", "--port", "0", "--ready-file", empty)
	endpoint := p.ready()
	testenv.Eventually(t, "the file", func() bool {
		got, err := os.ReadFile(empty)
		return err == nil && string(got) == endpoint+"\n"
	})
	if info, err := os.Stat(empty); err != nil || info.Mode() != 0o644 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}
