package main

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"testing"
)

// Output that cannot be written ends every command with exit code 1, the help
// texts too, which cobra prints without a look at the outcome.
func TestOutputThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	s := serve(t)
	must(t, "set", "k", "v", "--server", s.endpoint)
	for _, args := range [][]string{
		{"help"}, {"--help"}, {"set", "--help"}, {"--version"}, {"completion", "bash"},
		{"get", "k", "--server", s.endpoint}, {"dump", "--server", s.endpoint},
	} {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if errors.Is(err, fs.ErrNotExist) && runtime.GOOS != "linux" {
			t.Skipf("this system has no device that is always full: %v", err)
		}
		if err != nil {
			t.Fatal(err)
		}
		defer full.Close()
		cmd := program(t, args...)
		var stderr strings.Builder
		cmd.Stdout, cmd.Stderr = full, &stderr
		_ = cmd.Run() // the exit code tells
		if code := cmd.ProcessState.ExitCode(); code != exitRefused || !strings.Contains(stderr.String(), "no space") {
			t.Errorf("chp %v: exit code %d, stderr %q", args, code, stderr.String())
		}
	}
}
