package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"clustermap/internal/loopback"
)

// Errors of the command line are in plain words.
func TestPlainUsageErrors(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"set /a":                               "chp set takes 2 arguments, KEY VALUE, but got 1",
		"get":                                  "chp get takes 1 argument, KEY, but got 0",
		"dump a b":                             "chp dump takes at most 1 argument",
		"backup a b c":                         "chp backup takes 1 to 2 arguments",
		"set /a -5":                            "unknown flag -5; write -- before a value that begins with -",
		"set k v --ttl 5":                      `--ttl: "5" is not a duration such as 30s or 24h`,
		"set k v --ttl 1d":                     `--ttl: "1d" is not a duration such as 30s or 24h`,
		"bench --updates abc":                  `--updates: "abc" is not a whole number`,
		"bench --updates 99999999999999999999": "--updates 99999999999999999999: the number is too large",
		"bench --rate abc":                     `--rate: "abc" is not a number`,
		"get k --json=maybe":                   `--json: "maybe" is not true or false`,
		"get k --json --raw":                   "--raw and --json exclude each other",
		"watch --exec true --json":             "--exec and --json exclude each other",
		"keygen --out -":                       "--out -: a secret key is written only to a file",
	} {
		o := try(t, strings.Fields(args)...)
		o.expect(t, exitUsage, want)
		if strings.Contains(o.stderr, "strconv") || strings.Contains(o.stderr, "arg(s)") {
			t.Errorf("%s: %s", args, o.stderr)
		}
	}
	s := serve(t)
	must(t, "set", "--server", s.endpoint, "/a", "--", "-5")
	if got := must(t, "get", "/a", "--server", s.endpoint); got != "-5\n" {
		t.Errorf("got %q", got)
	}
}

// The message about a refused connection names the endpoint that refuses: here the first
// port listens.
func TestRefusedAtAnotherPort(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", loopback.Own()+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	o := try(t, "get", "k", "--timeout", "2s", "--server", "tcp://"+l.Addr().String())
	o.expect(t, exitNoServer, "connection refused at tcp://")
	o.expect(t, exitNoServer, ", and a server needs three ports")
	if strings.Contains(o.stderr, "no server listens") {
		t.Error(o.stderr)
	}
}

// The help says how long a command without --timeout tries to reach a server.
func TestHelpOfTimeout(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"ls", "watch", "dump"} {
		if text := strings.Join(strings.Fields(must(t, name, "--help")), " "); !strings.Contains(text, "without this flag, only 5s to reach one (default 30s)") {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// If a variable overrides the current context, use and list say so.
func TestContextIsOverridden(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.must("", "context set home --server tcp://10.0.0.1:5556")
	for _, args := range []string{"context use home", "context list"} {
		h.try("CHP_SERVER=tcp://h:1", args).expect(t, exitDone, "chp: $CHP_SERVER is set, and overrides the current context home\n")
		h.try("CHP_CONTEXT=x", args).expect(t, exitDone, "chp: $CHP_CONTEXT is x, and overrides the current context home\n")
		for _, env := range []string{"", "CHP_CONTEXT=home"} {
			if o := h.try(env, args); o.stderr != "" {
				t.Errorf("%s %s: %s", env, args, o.stderr)
			}
		}
	}
}

// A server with a map in its directory says that it does not load the dump.
func TestLoadIsNotUsed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(t.TempDir(), "dump")
	if err := os.WriteFile(file, []byte(`{"key":"/a","value":"1"}`+"\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	said := "chp: " + dir + " has a map; " + file + " was not loaded\n"
	for _, again := range []bool{false, true} {
		s := serve(t, "--data", dir, "--load", file)
		if got := strings.Contains(s.stderr.String(), said); got != again {
			t.Errorf("again %v: %s", again, s.stderr.String())
		}
		s.terminate()
	}
}

// keygen names the file that it writes unless the user did.
func TestKeygenNamesItsFile(t *testing.T) {
	t.Parallel()
	cmd := program(t, "keygen")
	cmd.Dir = t.TempDir()
	runCommand(t, cmd).expect(t, exitDone, "chp: wrote the key pair to chp.key\n")
}
