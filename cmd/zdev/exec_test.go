package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"clustermap/internal/command"
	"clustermap/internal/testenv"
)

// shell is a program that runs a line of sh.
func shell(t *testing.T, line string, maxReply int) *program {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("needs sh")
	}
	p, err := newProgram([]string{"sh", "-c", line}, maxReply)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The concatenated frames of the body are the command's input, and its output is the
// reply.
func TestProgram(t *testing.T) {
	t.Parallel()
	got, err := shell(t, "cat", 0).run(t.Context(), []byte("some "), nil, []byte("work\x00"))
	if string(got) != "some work\x00" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	got, err = shell(t, "exit 0", 0).run(t.Context())
	if len(got) != 0 || err != nil {
		t.Errorf("no output: %q, %v", got, err)
	}
	// More than a pipe holds, which the command does not read.
	got, err = shell(t, "echo done", 0).run(t.Context(), make([]byte, 1<<20))
	if string(got) != "done\n" || err != nil {
		t.Errorf("unread input: %q, %v", got, err)
	}
	// A process that goes on with the output is not waited for without end.
	got, err = shell(t, "sleep 5 & echo done", 0).run(t.Context())
	if string(got) != "done\n" || err != nil {
		t.Errorf("a process was left behind: %q, %v", got, err)
	}
}

// The error of a failed command has its exit status and the end of its standard error.
func TestProgramFails(t *testing.T) {
	t.Parallel()
	_, err := shell(t, "echo first >&2; echo the last >&2; exit 7", 0).run(t.Context())
	var failed *programError
	var exit *exec.ExitError
	if !errors.As(err, &failed) || !errors.As(err, &exit) || exit.ExitCode() != 7 || failed.Stderr != "first\nthe last\n" || err.Error() != "exit status 7: the last" {
		t.Errorf("%v, %+v", err, failed)
	}
	_, err = shell(t, "yes x | head -c 100000 >&2; echo end >&2; exit 1", 0).run(t.Context())
	if !errors.As(err, &failed) || len(failed.Stderr) != maxComplaint || !strings.HasSuffix(failed.Stderr, "\nend\n") {
		t.Errorf("%v", err)
	}
	_, err = newProgram([]string{"no-such-command-here"}, 0)
	var coded *command.Error
	if !errors.As(err, &coded) || coded.Code != command.ExitUsage {
		t.Errorf("no such command: %v", err)
	}
	if _, err = newProgram(nil, 0); !errors.As(err, &coded) || coded.Code != command.ExitUsage {
		t.Errorf("no command: %v", err)
	}
}

// A command that writes more than the maximum reply is killed.
func TestProgramWritesTooMuch(t *testing.T) {
	t.Parallel()
	if _, err := shell(t, "yes", 1<<16).run(t.Context()); !errors.Is(err, errReplyTooLarge) {
		t.Error(err)
	}
	got, err := shell(t, "printf 0123456789", 10).run(t.Context())
	if string(got) != "0123456789" || err != nil {
		t.Errorf("exactly as much: %q, %v", got, err)
	}
}

// When the context ends, the command and its child processes are killed.
func TestProgramKilledWithItsGroup(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pid")
	ctx, cancel := context.WithCancel(t.Context())
	p := shell(t, "sleep 600 & echo $! > "+file+".new; mv "+file+".new "+file+"; wait", 0)
	ended := make(chan error)
	go func() {
		_, err := p.run(ctx)
		ended <- err
	}()
	var child int
	testenv.Eventually(t, "the command runs", func() bool {
		text, _ := os.ReadFile(file)
		child, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		return child != 0
	})
	defer func() {
		if t.Failed() {
			if p, err := os.FindProcess(child); err == nil {
				_ = p.Kill()
			}
		}
	}()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	testenv.Eventually(t, "the process that the command has started ends", func() bool { return !alive(child) })
}

// alive reports whether a process runs. A process that has ended may be a zombie,
// because its parent has not waited for it.
func alive(pid int) bool {
	process, err := os.FindProcess(pid)
	if err != nil || process.Signal(syscall.Signal(0)) != nil {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || !strings.Contains(string(stat), ") Z ")
}

// Many run at once.
func TestProgramConcurrently(t *testing.T) {
	t.Parallel()
	p := shell(t, "cat", 0)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			want := strings.Repeat(strconv.Itoa(i), 1000)
			if got, err := p.run(t.Context(), []byte(want)); string(got) != want || err != nil {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	all.Wait()
}
