//go:build unix

package upgrade

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"clustermap/internal/commandtest"
	"clustermap/internal/loopback"
	"clustermap/internal/testenv"
)

// TestCommandsOfEitherVersion: the commands of one version do with a server of the other one
// what they do with their own: by tcp, by ipc, with CURVE, and with the Clone models.
func TestCommandsOfEitherVersion(t *testing.T) {
	t.Parallel()
	programs := map[string]*commandtest.Program{"earlier": old(t), "today": today(t)}
	for _, way := range []string{"tcp", "ipc", "CURVE", "model 5"} {
		for of, at := range map[string]string{"earlier": "today", "today": "earlier"} {
			t.Run(fmt.Sprintf("%s, commands of %s, server of %s", way, of, at), func(t *testing.T) {
				t.Parallel()
				client, dir := programs[of], t.TempDir()
				args, use := []string{"--host", loopback.Own()}, []string(nil)
				switch way {
				case "ipc":
					args = []string{"--endpoint", "ipc://" + filepath.Join(scratch, at)} // a short path
				case "CURVE":
					for _, key := range []string{"server.key", "client.key"} {
						client.Must(t, "keygen", "--out", filepath.Join(dir, key))
					}
					args = append(args, "--curve-key", filepath.Join(dir, "server.key"), "--curve-allow", filepath.Join(dir, "client.key"))
					use = []string{"--curve-key", filepath.Join(dir, "client.key"), "--curve-server-key", filepath.Join(dir, "server.key")}
				case "model 5":
					args, use = append(args, "--model", "5"), []string{"--server-model", "5"}
				}
				s := serve(t, programs[at], args...)
				commands(t, client, append(use, "--server", s.endpoint), way != "model 5")
			})
		}
	}
}

// commands runs the commands of a client. A server of this protocol does more than one of
// the guide's models.
func commands(t *testing.T, client *commandtest.Program, use []string, full bool) {
	do := func(input string, args ...string) string {
		t.Helper()
		return client.MustInput(t, input, append(args, use...)...)
	}
	expect := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	watch := client.Start(t, append([]string{"watch", "--json"}, use...)...)
	event := func(op, key, value string) {
		t.Helper()
		if e := commandtest.Object(t, watch.Line()); e["op"] != op || key != "" && (e["key"] != key || value != "" && e["value"] != value) {
			t.Errorf("watch: %v, want %s %s %s", e, op, key, value)
		}
	}
	event("synced", "", "")
	do("", "set", "/a", "1")
	event("set", "/a", "1")
	do("two\nlines", "set", "/b", "-", "--ttl", "1h")
	event("set", "/b", "two\nlines")
	do(`{"key":"/c","value":"3"}`+"\n"+`{"key_base64":"/WQ=","value_base64":"AP8="}`+"\n", "load")
	event("set", "/c", "3")
	event("set", "", "")
	do("", "del", "/c")
	event("del", "/c", "")

	expect("get", do("", "get", "/b", "--raw"), "two\nlines")
	expect("ls", do("", "ls", "/"), "/a\n/b\n")
	dump := strings.Split(strings.TrimSpace(do("", "dump")), "\n")
	if len(dump) != 3 {
		t.Fatalf("dump: %q", dump)
	}
	if e := commandtest.Object(t, dump[1]); e["key"] != "/b" || e["value"] != "two\nlines" {
		t.Errorf("dump: %v", e)
	} else if ttl, ok := e["ttl"].(float64); full && (!ok || ttl < 3600-testenv.Hang.Seconds() || ttl > 3600) {
		t.Errorf("dump: %v", e)
	}
	if e := commandtest.Object(t, dump[2]); e["key_base64"] != "/WQ=" || e["value_base64"] != "AP8=" {
		t.Errorf("dump: %v", e)
	}
	if !full {
		return
	}
	if s := commandtest.Object(t, strings.TrimSpace(do("", "status", "--json"))); s["state"] != "active" || s["keys"] != 3.0 {
		t.Errorf("status: %v", s)
	}
	file, data := filepath.Join(t.TempDir(), "backup"), filepath.Join(t.TempDir(), "map")
	do("", "backup", file)
	for _, p := range []*commandtest.Program{old(t), today(t)} {
		p.Must(t, "fsck", file)
	}
	client.Must(t, "restore", file, data)
}
