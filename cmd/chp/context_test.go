package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// home is a user's configuration directory.
type home struct {
	t   *testing.T
	dir string
}

func newHome(t *testing.T) *home {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("only on Linux does XDG_CONFIG_HOME name the directory")
	}
	return &home{t, t.TempDir()}
}

func (h *home) file() string { return filepath.Join(h.dir, "chp", "contexts.toml") }

// try runs chp with variables of the environment: the words of env.
func (h *home) try(env, args string) outcome {
	h.t.Helper()
	cmd := program(h.t, strings.Fields(args)...)
	cmd.Env = append(append(cmd.Env, "XDG_CONFIG_HOME="+h.dir), strings.Fields(env)...)
	return runCommand(h.t, cmd)
}

func (h *home) must(env, args string) string {
	h.t.Helper()
	o := h.try(env, args)
	if o.code != exitDone {
		h.t.Fatalf("%s %s: exit code %d: %s", env, args, o.code, o.stderr)
	}
	return o.out
}

// Contexts are created, listed, chosen, shown and deleted.
func TestContexts(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	if out := h.must("", "context list"); out != "" {
		t.Errorf("%q", out)
	}
	h.try("", "context show").expect(t, exitRefused, "no current context")
	h.must("", "context set home --server tcp://10.0.0.1:5556 --server tcp://10.0.0.2:5566")
	h.must("", "context set office --server tcp://10.1.0.1:5556 --curve-key client.key --curve-server-key server.pub")
	if out := h.must("", "context list"); out != "* home    tcp://10.0.0.1:5556 tcp://10.0.0.2:5566\n  office  tcp://10.1.0.1:5556\n" {
		t.Errorf("%q", out)
	}
	info, err := os.Stat(h.file())
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if names, err := os.ReadDir(filepath.Dir(h.file())); err != nil || len(names) != 1 {
		t.Errorf("more than the file is left: %v, %v", names, err)
	}
	h.must("", "context use office")
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"name": "office", "current": true, "curve_key": filepath.Join(here, "client.key"), "curve_server_key": "server.pub"}
	got := object(t, h.must("", "context show --json"))
	for field, value := range want {
		if got[field] != value {
			t.Errorf("%s is %v, want %v", field, got[field], value)
		}
	}
	h.must("", "context set office --server tcp://10.1.0.2:5556") // the keys stay
	if out := h.must("", "context show office"); out != "context           office\nserver            tcp://10.1.0.2:5556\ncurve-key         "+filepath.Join(here, "client.key")+"\ncurve-server-key  server.pub\n" {
		t.Errorf("%q", out)
	}
	h.must("", "context delete office")
	h.try("", "context show").expect(t, exitRefused, "no current context")
	h.must("", "context use home")
	h.must("", "context use -")
	if out := h.must("", "context list"); out != "  home  tcp://10.0.0.1:5556 tcp://10.0.0.2:5566\n" {
		t.Errorf("%q", out)
	}
	for args, want := range map[string]string{
		"context set x":                                       "add --server",
		"context set x --server nonsense":                     "tcp://HOST:PORT",
		"context set x/y --server tcp://h:1":                  "letters",
		"context set x --server tcp://h:1 --curve-key k":      "need each other",
		"context set x --server tcp://h:1 --server tcp://h:1": "twice",
		"context":            "list, use, set, show, delete",
		"context frobnicate": "frobnicate",
		"context list x":     "takes no arguments",
		"context use":        "takes 1 argument",
		"context delete x y": "takes 1 argument",
		"get k --context":    "context",
	} {
		h.try("", args).expect(t, exitUsage, want)
	}
	for _, args := range []string{"context use x", "context delete x", "context show x", "get k --context x"} {
		h.try("", args).expect(t, exitRefused, `there is no context "x"`)
	}
	if words := h.must("", "__complete get --context h"); !strings.HasPrefix(words, "home\n") {
		t.Errorf("%q", words)
	}
	if words := h.must("", "__complete context use h"); !strings.HasPrefix(words, "home\n") {
		t.Errorf("%q", words)
	}
}

// Flags are stronger than --context, that is stronger than the environment, and the
// environment is stronger than the current context.
func TestContextPrecedence(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	const nobody = "tcp://127.0.0.1:1"
	servers := map[string]string{}
	for _, name := range []string{"flag", "named", "env", "current", "variable"} {
		s := serve(t)
		servers[name] = s.endpoint
		must(t, "set", "/who", name, "--server", s.endpoint)
		if name != "flag" && name != "env" {
			h.must("", "context set "+name+" --server "+s.endpoint)
		}
	}
	h.must("", "context use current")
	env := serverVariable + "=" + servers["env"]
	for _, c := range []struct{ env, args, want string }{
		{"", "", "current"},
		{env, "", "env"},
		{contextVariable + "=variable", "", "variable"},
		{env + " " + contextVariable + "=variable", "", "env"},
		{env, "--context named", "named"},
		{env, "--context named --server " + servers["flag"], "flag"},
		{"", "--server " + servers["flag"], "flag"},
	} {
		if got := h.must(c.env, "get /who "+c.args); got != c.want+"\n" {
			t.Errorf("%s %s: %q, want %q", c.env, c.args, got, c.want)
		}
	}
	h.must("", "status")
	h.must("", "context set current --server "+nobody)
	h.try("", "get /who --timeout 100ms").expect(t, exitNoServer, nobody)
}

// The keys of a context are used with its servers, and not with others.
func TestContextKeys(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	serverFile, serverKey := keygen(t, "server")
	clientFile, clientKey := keygen(t, "client")
	s, open := serve(t, "--curve-key", serverFile, "--curve-allow", clientKey), serve(t)
	cmd := program(t, "context", "set", "safe", "--server", s.endpoint, "--curve-key", clientFile, "--curve-server-key", serverKey)
	cmd.Env = append(cmd.Env, "XDG_CONFIG_HOME="+h.dir)
	if o := runCommand(t, cmd); o.code != exitDone {
		t.Fatal(o.stderr)
	}
	h.must("", "set k v")
	h.must("", "set k v --server "+open.endpoint)
	h.must(serverVariable+"="+open.endpoint, "set k v")
	h.must("", "status")
	if text, err := os.ReadFile(h.file()); err != nil || strings.Contains(string(text), "secret") {
		t.Errorf("%s, %v", text, err)
	}
	h.must("", "context set safe --curve-key= --curve-server-key=") // an empty value removes a key
	if out := h.must("", "context show safe"); strings.Contains(out, "curve") {
		t.Errorf("the keys are still there: %q", out)
	}
}

// A file that is not one of contexts is an error, with its line, for commands that need
// it, and stays as it is.
func TestContextsFileIsDamaged(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	s := serve(t)
	if err := os.MkdirAll(filepath.Dir(h.file()), 0o700); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"current = \"x\"\n[contexts.x\n":                "line 2",
		"current = \"x\"\nserver = \"y\"\n":             "line 2: unknown field server",
		"[contexts.x]\nservers = [\"nonsense\"]\n":      "",
		strings.Repeat("# comment\n", maxContexts/10+1): "too large",
	} {
		if err := os.WriteFile(h.file(), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if want == "" {
			h.try("", "get k --context x").expect(t, exitUsage, "tcp://HOST:PORT")
			continue
		}
		h.try("", "get k").expect(t, exitRefused, want)
		h.try("", "context set x --server "+s.endpoint).expect(t, exitRefused, want)
		h.must("", "set k v --server "+s.endpoint)
		if now, err := os.ReadFile(h.file()); err != nil || string(now) != text {
			t.Errorf("the file has become %q, %v", now, err)
		}
	}
}
