//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"clustermap/internal/testenv"
)

// edit prepares chp edit with a script as the editor, and a folder of its own for files.
func (s *server) edit(t *testing.T, key, script string) (cmd *exec.Cmd, folder string) {
	t.Helper()
	folder = t.TempDir()
	editor := filepath.Join(t.TempDir(), "an editor")
	testenv.Must(t, os.WriteFile(editor, []byte("#!/bin/sh\n"+script), 0o700))
	cmd = program(t, "edit", key, "--server", s.endpoint)
	cmd.Env = append(cmd.Env, "VISUAL=", "EDITOR='"+editor+"' --wait", "TMPDIR="+folder)
	return cmd, folder
}

// files returns what an edit has left.
func files(t *testing.T, folder string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(folder, "*", "*"))
	testenv.Must(t, err)
	if folders, _ := os.ReadDir(folder); len(folders) != len(all) {
		t.Errorf("left %v", folders)
	}
	return all
}

// edit sets a key to what the editor has written. The time to live and the properties stay, and
// no file is left.
func TestEdit(t *testing.T) {
	t.Parallel()
	s := serve(t)
	at := func(args ...string) []string { return append(args, "--server", s.endpoint) }
	must(t, at("set", "/site/name.txt", "one", "--ttl", "1h", "--property", "by=me")...)
	must(t, at("set", "/lines", "a\nb\n")...)
	for _, c := range []struct{ key, script, before, after string }{
		{"/site/name.txt", `cat "$2" >&2; case $2 in *name.txt) echo two > "$2";; esac`, "one\n", "two"},
		{"/lines", `cat "$2" >&2; echo c >> "$2"`, "a\nb\n", "a\nb\nc\n"},
		{"/new", `wc -c < "$2" >&2; printf three > "$2"`, "0", "three"},
	} {
		cmd, folder := s.edit(t, c.key, c.script)
		o := runCommand(t, cmd)
		o.expect(t, exitDone, c.before)
		got := object(t, must(t, at("get", c.key, "--json")...))
		if got["value"] != c.after || o.out != got["seq"].(string)+"\n" {
			t.Errorf("edit prints %s; the key is %v, want %q", o.out, got, c.after)
		}
		if c.key == "/site/name.txt" && (got["ttl"] == nil || fmt.Sprint(got["properties"]) != "map[by:me]") {
			t.Errorf("edit left %v", got)
		}
		if left := files(t, folder); len(left) > 0 {
			t.Errorf("left %v", left)
		}
	}
}

// An edit without a change sets nothing, nor does one whose editor has failed or left nothing.
func TestEditWithoutAChange(t *testing.T) {
	t.Parallel()
	s := serve(t)
	must(t, "set", "/k", "v", "--server", s.endpoint)
	before := s.sequenceOf(t, "/k")
	for _, c := range []struct {
		key, script string
		code        int
		want        string
	}{
		{"/k", `true`, exitDone, `"/k" is unchanged; nothing was set`},
		{"/k", `printf v > "$2"`, exitDone, `"/k" is unchanged; nothing was set`},
		{"/no", `true`, exitDone, `"/no" is unchanged; nothing was set`},
		{"/k", `exit 7`, exitRefused, `failed: exit status 7; nothing was set`},
		{"/k", `: > "$2"`, exitRefused, `to delete it use: chp del /k`},
	} {
		cmd, folder := s.edit(t, c.key, c.script)
		o := runCommand(t, cmd)
		o.expect(t, c.code, c.want)
		if left := files(t, folder); o.out != "" || len(left) > 0 {
			t.Errorf("%s: prints %q, left %v", c.script, o.out, left)
		}
	}
	if now := s.sequenceOf(t, "/k"); now != before {
		t.Error("the key was set")
	}
}

// If somebody else has changed the key, the edited value is in a file that only the user can
// read, and its name is in the message.
func TestEditConflict(t *testing.T) {
	t.Parallel()
	s := serve(t)
	must(t, "set", "/k", "v", "--server", s.endpoint)
	for _, key := range []string{"/k", "/new"} {
		cmd, folder := s.edit(t, key, fmt.Sprintf(`echo mine > "$2"; %s set %s theirs --server %s`, program(t).Path, key, s.endpoint))
		o := runCommand(t, cmd)
		left := files(t, folder)
		if len(left) != 1 {
			t.Fatalf("%s; left %v", o.stderr, left)
		}
		o.expect(t, exitRefused, fmt.Sprintf("conflict: %q has sequence number %s; nothing was changed; the edited value is in %s\n", key, s.sequenceOf(t, key), left[0]))
		text, err := os.ReadFile(left[0])
		if err != nil || string(text) != "mine\n" {
			t.Errorf("the file has %q, %v", text, err)
		}
		for _, path := range []string{left[0], filepath.Dir(left[0])} {
			if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s: %v, %v", path, info.Mode(), err)
			}
		}
		if got := must(t, "get", key, "--server", s.endpoint); got != "theirs\n" {
			t.Errorf("the value is %q", got)
		}
	}
}

// An edit that is interrupted keeps the file, when the editor has ended.
func TestEditInterrupted(t *testing.T) {
	t.Parallel()
	s := serveApart(t)
	cmd, folder := s.edit(t, "/k", `echo mine > "$2"; echo editing >&2; read line`)
	cmd.Args = append(cmd.Args, "--timeout", "10m")
	p := startCommand(t, cmd)
	p.Await("editing")
	s.signal(syscall.SIGKILL) // so that it cannot be done before it sees the signal
	s.wait()
	p.signal(os.Interrupt)
	if _, err := p.stdin.Write([]byte("end\n")); err != nil {
		t.Fatal(err)
	}
	code, left := p.wait(), files(t, folder)
	if len(left) != 1 || code != exitRefused || !strings.Contains(p.stderr.String(), "interrupted; the edited value is in "+left[0]) {
		t.Errorf("exit code %d, %s; left %v", code, p.stderr.String(), left)
	}
}

// Without a terminal and without the name of an editor there is none, and nothing waits.
func TestEditWithoutAnEditor(t *testing.T) {
	t.Parallel()
	cmd := program(t, "edit", "/k", "--server", "tcp://127.0.0.1:1")
	cmd.Env = append(cmd.Env, "VISUAL=", "EDITOR=")
	runCommand(t, cmd).expect(t, exitRefused, "no editor: without a terminal set $VISUAL or $EDITOR")
}
