//go:build unix

package main

import (
	"os"
	"path/filepath"
	"testing"
)

// Only the user can read a recording: it has all messages.
func TestRecordingIsPrivate(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "recording")
	p := zdev.Start(t, "tap", "--frontend", "bind:tcp://127.0.0.1:*", "--backend", "tcp://127.0.0.1:*", "--record", file)
	p.Ready()
	if info, err := os.Stat(file); err != nil || info.Mode().Perm()&0o077 != 0 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}
