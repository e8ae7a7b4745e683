//go:build unix

package main

import (
	"clustermap/internal/testenv"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// watchWith starts a watch with --exec.
func watchWith(t *testing.T, s *server, line string, args ...string) *process {
	t.Helper()
	return start(t, append([]string{"watch", "--server", s.endpoint, "--exec", line}, args...)...)
}

// The command runs once for each event, in order, with the event in its environment and
// the value on its standard input.
func TestWatchExec(t *testing.T) {
	t.Parallel()
	s := serve(t)
	at := []string{"--server", s.endpoint}
	set := func(args ...string) string {
		return strings.TrimSpace(must(t, append(args, at...)...))
	}
	first := set("set", "/a", "before")
	w := watchWith(t, s, `echo "$CHP_OP $CHP_CAUSE $CHP_SEQUENCE $CHP_KEY ${CHP_VALUE-unset} $CHP_SERVER ${CHP_TTL:+expires}" "$(wc -c)"`)
	if line := w.line(); line != "set set "+first+" /a before "+s.endpoint+"  6" {
		t.Errorf("%q", line)
	}
	if line := w.line(); !strings.HasPrefix(line, "synced  ") || !strings.HasSuffix(line, "   "+s.endpoint+"  0") {
		t.Errorf("%q", line)
	}
	second := set("set", "/a", "$(exit 1); 'x'", "--ttl", "1h")
	if line := w.line(); line != "set set "+second+" /a $(exit 1); 'x' "+s.endpoint+" expires 14" {
		t.Errorf("%q", line)
	}
	big := strings.Repeat("v", maxVariable+1)
	mustInput(t, big, append([]string{"set", "/big", "-"}, at...)...)
	if line := w.line(); !strings.HasSuffix(line, " /big unset "+s.endpoint+"  "+fmt.Sprint(len(big))) {
		t.Errorf("%q", line)
	}
	mustInput(t, "a\x00b", append([]string{"set", "/nul", "-"}, at...)...)
	if line := w.line(); !strings.HasSuffix(line, " /nul unset "+s.endpoint+"  3") {
		t.Errorf("%q", line)
	}
	third := set("del", "/a")
	if line := w.line(); line != "del deleted "+third+" /a  "+s.endpoint+"  0" {
		t.Errorf("%q", line)
	}
	w.terminate()
	if text := w.stderr.String(); text != "" {
		t.Errorf("stderr %q", text)
	}
}

// A command that fails is reported; the watch continues, or stops.
func TestWatchExecFails(t *testing.T) {
	t.Parallel()
	s := serve(t)
	must(t, "set", "/bad", "1", "--server", s.endpoint)
	line := `test "$CHP_KEY" != /bad || exit 7; echo $CHP_OP`
	w := watchWith(t, s, line)
	if got := w.line(); got != "synced" {
		t.Errorf("%q", got)
	}
	w.terminate()
	if text := w.stderr.String(); text != "chp: the command for set /bad failed: exit status 7\n" {
		t.Errorf("stderr %q", text)
	}
	o := try(t, "watch", "--server", s.endpoint, "--exec", line, "--on-error", "stop")
	o.expect(t, exitRefused, "the command for set /bad failed: exit status 7")
	if o.out != "" {
		t.Errorf("stdout %q", o.out)
	}
	try(t, "watch", "--server", s.endpoint, "--exec", "sleep 600 & wait", "--exec-timeout", "50ms", "--on-error", "stop").
		expect(t, exitRefused, "the command for set /bad failed: it ran longer than --exec-timeout")
}

// A signal ends the command that runs, with its child processes: first with SIGTERM.
func TestWatchExecInterrupted(t *testing.T) {
	t.Parallel()
	s := serve(t)
	trapped := filepath.Join(t.TempDir(), "trapped")
	w := watchWith(t, s, `trap 'echo trapped > `+trapped+`; exit 0' TERM; sleep 600 & echo $!; wait`)
	var child int
	if _, err := fmt.Sscan(w.line(), &child); err != nil {
		t.Fatal(err)
	}
	w.terminate()
	if _, err := os.Stat(trapped); err != nil {
		t.Errorf("the command got no SIGTERM: %v", err)
	}
	testenv.Eventually(t, "the process that the command has started ends", func() bool { return syscall.Kill(child, 0) != nil || zombie(child) })
}

// zombie reports whether a process has ended and its parent has not waited for it.
func zombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(stat), ") Z ")
}

func TestWatchExecUsage(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--exec true --on-error retry":  "--on-error",
		"--exec true --exec-timeout 0s": "--exec-timeout",
		"--on-error stop":               "need --exec",
		"--exec true --json":            "json",
	} {
		try(t, append([]string{"watch"}, strings.Fields(args)...)...).expect(t, exitUsage, want)
	}
	try(t, "watch", "--exec", "").expect(t, exitUsage, "empty")
}
