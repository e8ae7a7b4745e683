//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"clustermap/internal/testenv"
)

// A prefix that is empty, as from a variable that is not set, deletes nothing. The whole
// map needs --all.
func TestDelOfEverything(t *testing.T) {
	t.Parallel()
	s := serve(t)
	must(t, "set", "/a", "1", "--server", s.endpoint)
	for want, args := range map[string][]string{
		"add --all":                       {"--prefix", ""},
		"--all is for every key":          {"--all", "/a"},
		"--all is for every key, without": {"--all", "--prefix", "/a"},
	} {
		try(t, append([]string{"del", "--server", s.endpoint}, args...)...).expect(t, exitUsage, want)
	}
	if got := must(t, "del", "--prefix", "", "--dry-run", "--server", s.endpoint); got != "/a\n" {
		t.Errorf("%q", got)
	}
	if got := must(t, "del", "--all", "--server", s.endpoint); got != "1\n" {
		t.Errorf("%q", got)
	}
	must(t, "set", "/a", "1", "--server", s.endpoint)
	if got := must(t, "del", "--all", "--prefix", "", "--json", "--server", s.endpoint); got != `{"deleted":1}`+"\n" {
		t.Errorf("%q", got)
	}
}

// Every command that takes a key, or the beginning of keys, warns if no subtree can have it.
func TestKeyOutsideOfSubtrees(t *testing.T) {
	t.Parallel()
	s := serve(t)
	dump := filepath.Join(t.TempDir(), "dump")
	testenv.Must(t, os.WriteFile(dump, []byte(`{"key":"b","value":"1"}`+"\n"+`{"key":"/c","value":"1"}`+"\n"+`{"key":"d","value":"1"}`+"\n"), 0o600))
	const warning = "chp: warning: the key a is without a slash at the beginning: it is in no subtree, only in the whole map\n"
	for _, c := range []struct {
		args string
		want string
	}{
		{"set a 1", warning}, {"get a", warning}, {"get --prefix a", warning}, {"ls a", warning}, {"dump a", warning}, {"del --prefix a --dry-run", warning}, {"del a", warning},
		{"load " + dump, "chp: warning: 2 keys, such as b, are without a slash at the beginning: they are in no subtree, only in the whole map\n"},
		{"set /a 1", ""}, {"get /a", ""}, {"ls", ""}, {"ls /", ""}, {"dump", ""}, {"del /a", ""},
	} {
		o := try(t, append(strings.Fields(c.args), "--server", s.endpoint)...)
		o.expect(t, exitDone, c.want)
		if c.want == "" && strings.Contains(o.stderr, "warning") {
			t.Errorf("%s: %s", c.args, o.stderr)
		}
	}
	w := start(t, "watch", "a", "--server", s.endpoint)
	w.Await(warning[:len(warning)-1])
	o := start(t, "serve", "--port", "0", "--load", dump)
	o.Await("warning: 2 keys, such as b, are without a slash")
}

// A file of contexts that is a symbolic link stays one, also if it leads to nothing yet.
func TestContextsBehindLink(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	dotfiles := t.TempDir()
	for _, exists := range []bool{false, true} {
		folder := filepath.Join(t.TempDir(), "chp")
		testenv.Must(t, os.Mkdir(folder, 0o700))
		link, target := filepath.Join(folder, "contexts.toml"), filepath.Join(dotfiles, "contexts.toml")
		if exists {
			target = filepath.Join(dotfiles, "other.toml")
			testenv.Must(t, os.WriteFile(target, nil, 0o600))
		}
		relative, err := filepath.Rel(folder, target)
		testenv.Must(t, err)
		testenv.Must(t, os.Symlink(relative, link))
		o := h.try("XDG_CONFIG_HOME="+filepath.Dir(folder), "context set home --server tcp://10.0.0.1:5556")
		info, err := os.Lstat(link)
		testenv.Must(t, err)
		text, err := os.ReadFile(target)
		if o.code != exitDone || info.Mode().Type() != os.ModeSymlink || err != nil || !strings.Contains(string(text), "10.0.0.1") {
			t.Errorf("exists %v: %d %s, %v, %q, %v", exists, o.code, o.stderr, info.Mode(), text, err)
		}
	}
}

// The command of watch --exec has the keys of chp watch, so that a chp in it reaches the
// same servers.
func TestWatchExecHasKeys(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server, client := filepath.Join(dir, "server"), filepath.Join(dir, "client")
	must(t, "keygen", "--out", server)
	must(t, "keygen", "--out", client)
	s := serve(t, "--curve-key", server, "--curve-allow", client)
	keys := []string{"--curve-key", client, "--curve-server-key", server, "--server", s.endpoint}
	must(t, append([]string{"set", "/a", "1"}, keys...)...)
	self := program(t).Path
	w := start(t, append([]string{"watch", "--exec", `test "$CHP_OP" = synced || ` + self + ` get "$CHP_KEY"`}, keys...)...)
	if line := w.line(); line != "1" {
		t.Errorf("%q", line)
	}
}

// A home directory that the user cannot read stops no command that needs no context.
func TestUnreadableHome(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can run a program as another user")
	}
	s := serve(t)
	home := t.TempDir() // below directories of root that nobody else can read
	run := func(config string, args ...string) outcome {
		cmd := program(t, args...)
		shell := exec.CommandContext(testenv.Context(t), "sh", append([]string{"-c", `exec "$0" "$@"`, cmd.Path}, cmd.Args[1:]...)...)
		shell.Env = append(cmd.Env, "XDG_CONFIG_HOME="+config)
		shell.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		return runCommand(t, shell)
	}
	testenv.Must(t, os.Chmod(home, 0o700))
	binary := program(t).Path
	testenv.Must(t, os.Chmod(filepath.Dir(binary), 0o755))
	must(t, "set", "/a", "1", "--server", s.endpoint)
	o := run(home, "get", "/a", "--server", s.endpoint)
	if o.code != exitDone || o.out != "1\n" || o.stderr != "" {
		t.Errorf("with --server: %+v", o)
	}
	// Of the default server, which may run on this machine.
	if o = run(home, "get", "/a", "--timeout", "1ms"); !strings.Contains(o.stderr, "going on without a context\n") || !strings.Contains(o.stderr, "in the map of") && !strings.Contains(o.stderr, "no CHP server answered") {
		t.Errorf("without --server: %+v", o)
	}
	if o = run("/dev/null", "get", "/a", "--timeout", "1ms"); strings.Contains(o.stderr, "contexts") {
		t.Errorf("with a home that is no directory: %+v", o)
	}
	run(home, "get", "/a", "--context", "x").expect(t, exitRefused, "cannot read the contexts")
}
