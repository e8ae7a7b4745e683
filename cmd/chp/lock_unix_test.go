//go:build unix

package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"clustermap/internal/testenv"
)

// holds is a command that says its token and the key, and lasts.
const holds = `echo $CHP_TOKEN $CHP_LOCK_KEY; exec sleep 600`

// held returns what the command of a lock has printed.
func (p *process) held() (token int64, key string) {
	p.t.Helper()
	if _, err := fmt.Sscan(p.line(), &token, &key); err != nil {
		p.t.Fatal(err)
	}
	return token, key
}

// The command runs with the token and the key in its environment, and its exit code is that of chp lock.
func TestLockRunsCommand(t *testing.T) {
	t.Parallel()
	s := serve(t)
	lock := func(args ...string) outcome {
		return try(t, append([]string{"lock", "--server", s.endpoint}, args...)...)
	}
	o := lock("a", "--", "sh", "-c", `echo $CHP_TOKEN; chp=$CHP_LOCK_KEY; echo ${chp%/*} $CHP_SERVER; exit 7`)
	if o.code != 7 || o.stderr != "" || !strings.HasSuffix(o.out, "\n/locks/a "+s.endpoint+"\n") {
		t.Errorf("exit code %d, %q, %q", o.code, o.out, o.stderr)
	}
	if o := lock("a", "--", "sh", "-c", "kill -KILL $$"); o.code != 128+int(syscall.SIGKILL) || o.stderr != "" {
		t.Errorf("exit code %d, %q", o.code, o.stderr)
	}
	lock("a", "--", "no-such-command").expect(t, 127, "no-such-command")
	lock("a", "--", t.TempDir()).expect(t, 126, "permission denied")
	lock("/elsewhere/a", "-n", "2", "--", "sh", "-c", "test ${CHP_LOCK_KEY%/*} = /elsewhere/a").expect(t, 0, "")
	for _, args := range [][]string{{"a", "true"}, {"--", "true"}, {"a", "-n", "0", "--", "true"}, {"a", "--wait", "-1s", "--", "true"}, {"a", "--ttl", "1ms", "--", "true"}} {
		lock(args...).expect(t, exitUsage, "")
	}
	if text := must(t, "ls", "--server", s.endpoint); text != "" {
		t.Errorf("keys are left: %s", text)
	}
}

// As many as there are places hold a lock. A chp that is killed loses it when its time to live has ended,
// and the kernel of Linux ends its command.
func TestLockIsHeld(t *testing.T) {
	t.Parallel()
	s := serve(t)
	at := []string{"lock", "a", "--server", s.endpoint, "--ttl", "5s"}
	first := start(t, append(at, "--value", "the first", "--", "sh", "-c", holds)...)
	token, _ := first.held()
	try(t, append(at, "--wait", "0s", "--", "true")...).expect(t, exitRefused, `the lock a is held by "the first"`)
	try(t, append(at, "--wait", "10ms", "--", "true")...).expect(t, exitRefused, `the lock a is held by "the first"`)
	second := start(t, append(at, "--", "sh", "-c", holds)...)
	testenv.Eventually(t, "it waits", func() bool {
		return strings.Count(must(t, "ls", "--server", s.endpoint), "\n") == 2
	})
	first.signal(syscall.SIGKILL)
	next, _ := second.held()
	if next <= token {
		t.Errorf("token %d after %d", next, token)
	}
	third := start(t, append(at, "-n", "2", "--", "sh", "-c", holds)...)
	third.held()
	// An interruption ends the command, and gives the lock back.
	for _, p := range []*process{second, third} {
		p.signal(syscall.SIGTERM)
		if code := p.wait(); code != 128+int(syscall.SIGTERM) {
			t.Errorf("exit code %d: %s", code, p.stderr.String())
		}
	}
	if text := must(t, "ls", "--server", s.endpoint); text != "" {
		t.Errorf("keys are left: %s", text)
	}
}

// The command is ended when the lock is lost: because its key is deleted, or because chp stood still.
func TestLockIsLost(t *testing.T) {
	t.Parallel()
	s := serve(t)
	at := []string{"lock", "a", "--server", s.endpoint}
	trapped := t.TempDir() + "/trapped"
	first := start(t, append(at, "--", "sh", "-c", `trap 'echo > `+trapped+`; exit' TERM; echo $CHP_TOKEN $CHP_LOCK_KEY; sleep 600 & wait`)...)
	_, key := first.held()
	must(t, "del", key, "--server", s.endpoint)
	if code, text := first.wait(), first.stderr.String(); code != exitRefused || text != "chp: the lock a is lost\n" {
		t.Errorf("exit code %d: %s", code, text)
	}
	if _, err := os.Stat(trapped); err != nil {
		t.Errorf("the command got no SIGTERM: %v", err)
	}
	at = append(at, "--ttl", "4s")
	still := start(t, append(at, "--", "sh", "-c", holds)...)
	token, _ := still.held()
	still.signal(syscall.SIGSTOP)
	second := start(t, append(at, "--", "sh", "-c", holds)...)
	if next, _ := second.held(); next <= token {
		t.Errorf("token %d after %d", next, token)
	}
	still.signal(syscall.SIGCONT)
	if code, text := still.wait(), still.stderr.String(); code != exitRefused || !strings.HasSuffix(text, "chp: the lock a is lost\n") {
		t.Errorf("exit code %d: %s", code, text)
	}
}

// One of several is the leader; another one when it is killed, and the same again when it has lost that.
func TestElect(t *testing.T) {
	t.Parallel()
	s := serve(t)
	at := []string{"elect", "e", "--server", s.endpoint, "--ttl", "5s", "--", "sh", "-c"}
	first := start(t, append(at, holds)...)
	token, _ := first.held()
	second := start(t, append(at, holds)...)
	first.signal(syscall.SIGKILL)
	next, key := second.held()
	if next <= token || !strings.HasPrefix(key, "/elections/e/") {
		t.Errorf("token %d after %d, key %s", next, token, key)
	}
	must(t, "del", key, "--server", s.endpoint)
	again, _ := second.held()
	if again <= next {
		t.Errorf("token %d after %d", again, next)
	}
	testenv.Eventually(t, "it says so", func() bool { // beside what the command prints
		return second.stderr.String() == "chp: lost the leadership of e; waiting for it again\n"
	})
	second.signal(syscall.SIGTERM)
	if code := second.wait(); code != 128+int(syscall.SIGTERM) {
		t.Errorf("exit code %d", code)
	}
	if o := try(t, "elect", "e", "--server", s.endpoint, "--", "sh", "-c", "exit 3"); o.code != 3 || o.stderr != "" {
		t.Errorf("exit code %d, %q", o.code, o.stderr)
	}
}
