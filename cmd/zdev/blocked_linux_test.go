package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"clustermap/internal/command"
	"clustermap/internal/commandtest"
	"clustermap/internal/testenv"
)

// A tap whose standard error is a full pipe ends after a signal, and so does a
// command that fails.
func TestStandardErrorFull(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	commandtest.FillPipe(t, w)
	dir := t.TempDir()
	recording := filepath.Join(dir, "flow")
	tap := zdev.Command(t, "tap", "--frontend", "bind:ipc://"+filepath.Join(dir, "f"), "--backend", "ipc://"+filepath.Join(dir, "b"), "--record", recording)
	fails := zdev.Command(t, "broker", "--bind", "tcp://127.0.0.1:99999")
	tap.Stderr, fails.Stderr = w, w
	p, failed := zdev.StartCommand(t, tap), zdev.StartCommand(t, fails)
	w.Close()
	if code := failed.Wait(); code != command.ExitUsage {
		t.Errorf("exit code %d of a command that fails", code)
	}
	testenv.Eventually(t, "the tap begins", func() bool { return exists(filepath.Join(dir, "b")) })
	p.Signal(syscall.SIGTERM)
	if code := p.Wait(); code != command.ExitDone {
		t.Errorf("exit code %d of the tap", code)
	}
}
