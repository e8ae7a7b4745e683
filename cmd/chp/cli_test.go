package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"clustermap/internal/ipcpath"
)

func TestHelp(t *testing.T) {
	t.Parallel()
	root := must(t, "--help")
	for _, name := range []string{"serve", "set", "get", "del", "ls", "txn", "edit", "add", "lease", "watch", "dump", "load", "bench", "status", "failover", "promote", "keygen"} {
		if !strings.Contains(root, "\n  "+name+" ") {
			t.Errorf("chp --help does not list %s", name)
		}
		if name == "lease" { // it has commands of its own
			leases := must(t, name, "--help")
			for _, name := range []string{"grant", "list", "renew", "revoke", "ttl"} {
				if !strings.Contains(leases, "\n  "+name+" ") || !strings.Contains(must(t, "lease", name, "--help"), "--server") {
					t.Errorf("chp lease --help does not list %s, or that has no flag --server", name)
				}
			}
			continue
		}
		text := must(t, name, "--help")
		if !strings.Contains(text, "Usage:\n  chp "+name) || !strings.Contains(text, "Examples:") || !strings.Contains(text, "Flags:") {
			t.Errorf("chp %s --help: %s", name, text)
		}
		if name != "serve" && name != "keygen" && !strings.Contains(text, "--server") {
			t.Errorf("chp %s has no flag --server", name)
		}
	}
	if !strings.Contains(must(t, "--version"), "chp version") {
		t.Error("chp --version")
	}
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if script := must(t, "completion", shell); len(script) < 1000 {
			t.Errorf("%s: %q", shell, script)
		}
	}
	for args, want := range map[string]string{
		"se":                  "serve\t",
		"serve --log-level ":  "debug",
		"serve --log-format ": "json",
		"watch --js":          "--json",
		"set --if-":           "--if-absent",
		"del --if-":           "--if-value",
	} {
		list := append([]string{"__complete"}, strings.Split(args, " ")...)
		if out := must(t, list...); !strings.Contains(out, want) {
			t.Errorf("completion of %q: %q, want %q in it", args, out, want)
		}
	}
}

func TestUsageErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, want string }{
		{"", "no command"},
		{"frobnicate", "frobnicate"},
		{"--nonsense", "nonsense"},
		{"set", "takes 2 arguments"},
		{"set k", "takes 2 arguments"},
		{"set k v w", "takes 2 arguments"},
		{"set k v --ttl soon", "soon"},
		{"set k v --if-seq x", "must be a sequence number"},
		{"set k v --if-seq -1", "must be a sequence number"},
		{"set k v --if-value=", "--if-value: the value is empty"},
		{"set k v --if-absent --if-value x", "exclude each other"},
		{"del k --if-absent", "--if-absent"},
		{"del k l --if-seq 7", "conditions are for one KEY"},
		{"del k --prefix --if-present", "conditions are for one KEY"},
		{"del --all --if-present", "conditions are for one KEY"},
		{"add k", "takes 2 arguments"},
		{"add k 1.5", "is not a whole number"},
		{"add k -5", "write -- before a value that begins with -"},
		{"txn a b", "at most 1 argument"},
		{"edit", "takes 1 argument"},
		{"set k v --ttl -1s", "--ttl"},
		{"set k v --ttl 5", "did you mean 5s?"},
		{"set k v --ttl 0.5", "did you mean 0.5s?"},
		{"set HUGZ1 v", "is reserved"},
		{"set KTHXBAI v", "is reserved"},
		{"get HUGZ", "is reserved"},
		{"set " + strings.Repeat("k", 256) + " v", "has 256 bytes"},
		{"del k " + strings.Repeat("k", 256), "has 256 bytes"},
		{"get", "takes 1 argument"},
		{"get k --timeout 0s", "--timeout"},
		{"get k --server localhost", "tcp://HOST:PORT"},
		{"get k --server h:5556 --server tcp://h:5556", "twice"},
		{"get k --server tcp://:5556", "tcp://HOST:PORT"},
		{"get k --server tcp://localhost", "tcp://HOST:PORT"},
		{"get k --server tcp://localhost:65534", "65533"},
		{"get k --server tcp://localhost:5556/x", "tcp://HOST:PORT"},
		{"get k --server tcp://h:5556 --server tcp://h:5556", "twice"},
		{"del", "takes at least 1 argument"},
		{"del --prefix /a/ /b/", "one KEY"},
		{"watch lamp/", `subtree "lamp/" does not begin with a slash`},
		{"dump a b", "at most 1 argument"},
		{"dump //", "segment"},
		{"load a b", "at most 1 argument"},
		{"load --max-line 0", "--max-line"},
		{"serve x", "serve takes no arguments"},
		{"keygen x", "keygen takes no arguments"},
		{"status x", "status takes no arguments"},
		{"status --server nonsense", "tcp://HOST:PORT"},
		{"status --server ipc://", "ipc://PATH"},
		{"status --server ipc://*", "ipc://PATH"},
		{"get k --timeout 1h --server ipc://" + strings.Repeat("x", ipcpath.MaxServer+1), "has a path of "},
		{"serve --endpoint ipc://" + strings.Repeat("x", ipcpath.MaxServer+1), "has a path of "},
		{"serve --endpoint ipc:///x --port 5556", "--port and --endpoint exclude each other"},
		{"serve --endpoint inproc://x", "ipc://PATH"},
		{"serve --endpoint tcp://127.0.0.1:65534", "needs a port from 1 to 65533"},
		{"serve --endpoint ipc:///x --endpoint ipc:///x", "listed twice"},
		{"serve --endpoint ipc:///x --primary", "a pair with --endpoint needs --peer"},
		{"failover x", "failover takes no arguments"},
		{"failover --timeout 0s", "--timeout"},
		{"promote x", "promote takes no arguments"},
		{"completion", "name a shell"},
		{"completion zshh", "zshh"},
		{"help foo", "foo"},
		{"get k --server tcp://*:5556", "wildcard"},
		{"set k v --ttl 100000h", "--ttl 100000h0m0s: the maximum is ten years"},
		{"serve --curve-key=", "--curve-key: the value is empty"},
		{"serve --data=", "--data: the value is empty"},
		{"serve --port abc", "\"abc\" is not a whole number"},
		{"serve --max-line 0", "--max-line"},
		{"serve --max-map 5x", "chp: --max-map: \"5x\" is not a size"},
		{"serve --host tcp://127.0.0.1", "--host"},
		{"serve --host 127.0.0.1:5000", "--host"},
		{"serve --port 65534", "65533"},
		{"serve --port -1", "--port"},
		{"serve --heartbeat 0s", "--heartbeat"},
		{"serve --hugz 0s", "--heartbeat 0s"},
		{"serve --model 7", "--model 7: must be 1 to 6"},
		{"serve --model 0", "--model"},
		{"watch --server-model 7", "--server-model 7: must be 1 to 6"},
		{"get k --server-model 1", "chp watch"},
		{"dump --server-model 1", "chp watch"},
		{"serve --max-value-size 12parsecs", "12parsecs"},
		{"serve --max-value-size 0", "--max-value-size"},
		{"serve --subscriber-queue 0", "--subscriber-queue"},
		{"serve --snapshot-timeout 0s", "--snapshot-timeout"},
		{"serve --handshake-timeout 0s", "--handshake-timeout"},
		{"serve --curve-key missing", "--curve-allow"},
		{"serve --curve-allow any", "--curve-key"},
		{"serve --curve-key missing --curve-allow any", "chp keygen --out missing"},
		{"get k --curve-key missing", "--curve-server-key"},
		{"get k --curve-server-key missing", "--curve-key"},
		{"get k --curve-key missing --curve-server-key missing", "chp keygen --out missing"},
		{"serve --log-level loud", "loud"},
		{"serve --log-format xml", "xml"},
		{"bench --updates 0", "--updates"},
		{"bench --keys 0", "--keys"},
		{"bench --keys 1 --publishers 2", "--keys"},
		{"bench --value-size 8", "--value-size"},
		{"bench --replicas 0", "--replicas"},
		{"bench --rate 5 --baseline", "--rate"},
		{"bench --rate 5 --pair", "--rate and --pair exclude each other"},
		{"bench --data . --server tcp://127.0.0.1:1", "--data, --pair and --cluster exclude --server"},
		{"bench --cluster 3 --server tcp://127.0.0.1:1", "--data, --pair and --cluster exclude --server"},
		{"bench --cluster 4", "--cluster 4: give 3 or 5 nodes"},
		{"bench --cluster 3 --rate 5", "--rate and --cluster exclude each other"},
		{"bench --sync always", "--sync needs --data or --cluster"},
		{"bench --data . --sync sometimes", "sometimes"},
		{"bench --curve-key missing", "--server"},
		{"bench --server nonsense", "tcp://HOST:PORT"},
	} {
		t.Run(c.args, func(t *testing.T) {
			t.Parallel()
			o := try(t, strings.Fields(c.args)...)
			o.expect(t, exitUsage, c.want)
			if o.out != "" || !strings.Contains(o.stderr, "--help") {
				t.Errorf("stdout %q, stderr %q", o.out, o.stderr)
			}
		})
	}
}

// Empty arguments are invalid, without a word from a server. An empty standard input is
// not an argument.
func TestEmptyArguments(t *testing.T) {
	t.Parallel()
	nobody := []string{"--server", "tcp://127.0.0.1:1"}
	for want, args := range map[string][]string{
		"the key is empty": {"set", "", "x"}, "has 1 to 255 bytes": {"get", ""}, "1 to 255 bytes": {"del", "/k", ""}, "the value is empty": {"set", "/k", ""},
	} {
		try(t, append(args, nobody...)...).expect(t, exitUsage, want)
	}
	try(t, append([]string{"set", "/k", "-"}, nobody...)...).expect(t, exitRefused, "the value is empty")
}

// The help texts say which commands take any prefix, and which a key or a subtree.
func TestHelpOfPrefixes(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"ls": "PREFIX need not end with a slash", "get": "any prefix will do", "del": "any prefix will do",
		"watch": "is a single key, and not a prefix as for chp ls", "dump": "is a single key, and not a prefix as for chp ls",
	} {
		if text := strings.Join(strings.Fields(must(t, name, "--help")), " "); !strings.Contains(text, want) {
			t.Errorf("chp %s --help: %s", name, text)
		}
	}
}

func TestNoServer(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "dump")
	if err := os.WriteFile(file, []byte(`{"key":"k","value":"v"}`), 0o666); err != nil {
		t.Fatal(err)
	}
	// Nobody listens on port 1.
	for _, args := range []string{"set k v", "set k v --if-absent", "get k", "del k", "del k --if-present", "add k 1", "watch", "dump", "load " + file, "bench --updates 10"} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			o := try(t, append(strings.Fields(args), "--timeout", "2s", "--server", "tcp://127.0.0.1:1")...)
			o.expect(t, exitNoServer, "no CHP server answered at tcp://127.0.0.1:1 within 2s: connection refused")
			o.expect(t, exitNoServer, "; start one with: chp serve")
			if o.out != "" {
				t.Errorf("stdout %q", o.out)
			}
		})
	}
}

func TestServersByEnvironment(t *testing.T) {
	t.Parallel()
	s := serve(t)
	cmd := program(t, "set", "k", "v")
	cmd.Env = append(cmd.Env, serverVariable+"= "+s.endpoint+", ")
	if o := runCommand(t, cmd); o.code != exitDone {
		t.Errorf("exit code %d: %s", o.code, o.stderr)
	}
	// The flag is stronger.
	cmd = program(t, "get", "k", "--server", s.endpoint)
	cmd.Env = append(cmd.Env, serverVariable+"=tcp://127.0.0.1:1")
	if o := runCommand(t, cmd); o.out != "v\n" {
		t.Errorf("stdout %q, stderr %q", o.out, o.stderr)
	}
	cmd = program(t, "get", "k")
	cmd.Env = append(cmd.Env, serverVariable+"=nonsense")
	runCommand(t, cmd).expect(t, exitUsage, "nonsense")
}

func TestBackupServer(t *testing.T) {
	t.Parallel()
	s := serve(t)
	args := []string{"--timeout", "1m", "--server", "tcp://127.0.0.1:1", "--server", s.endpoint}
	must(t, append([]string{"set", "k", "v"}, args...)...)
	if got := must(t, append([]string{"get", "k"}, args...)...); got != "v\n" {
		t.Errorf("got %q", got)
	}
}

// A command does not take a map of any size from a server, and says so at once.
func TestMapTooLargeForACommand(t *testing.T) {
	t.Parallel()
	s := serve(t)
	try(t, "set", "/k", strings.Repeat("v", 20_000), "--server", s.endpoint).expect(t, exitDone, "")
	for _, args := range []string{"ls", "dump", "get /k", "watch"} {
		args := append(strings.Fields(args), "--server", s.endpoint, "--timeout", "1h")
		try(t, append(args, "--max-map", "10KiB")...).expect(t, exitRefused, "it has more than 10240 bytes; increase --max-map (10KiB) if")
	}
	try(t, "get", "/k", "--server", s.endpoint, "--max-map", "0").expect(t, exitDone, "")
}
