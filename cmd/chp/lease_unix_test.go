//go:build unix

package main

import (
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"clustermap/internal/testenv"
)

// leases returns what chp lease list prints, as objects by ID.
func leases(t *testing.T, at ...string) map[string]map[string]any {
	t.Helper()
	all := map[string]map[string]any{}
	for line := range strings.Lines(must(t, append([]string{"lease", "list", "--json"}, at...)...)) {
		l := object(t, line)
		all[l["id"].(string)] = l
	}
	return all
}

// A lease is granted, renewed, listed and revoked; its keys are those that were last set with it, and end with it.
func TestLeaseCommands(t *testing.T) {
	t.Parallel()
	s := serve(t)
	at := []string{"--server", s.endpoint}
	run := func(args ...string) string {
		t.Helper()
		return strings.TrimSuffix(must(t, append(args, at...)...), "\n")
	}
	if text := run("lease", "list"); text != "" {
		t.Errorf("without leases it prints %q", text)
	}
	granted := object(t, run("lease", "grant", "--ttl", "90s", "--json"))
	id, _ := granted["id"].(string)
	if len(id) != 32 || granted["ttl"] != 90.0 {
		t.Fatalf("grant prints %v", granted)
	}
	other := run("lease", "grant", "--ttl", "1h")
	run("set", "/a", "1", "--lease", id)
	run("set", "/b", "1", "--lease", id, "--if-absent")
	run("set", "/c", "1", "--lease", id, "--ttl", "1h", "--property", "by=alice")
	run("set", "/d", "1", "--lease", id)
	run("set", "/d", "2") // takes it away
	run("set", "/e", "1", "--lease", other)
	try(t, append([]string{"set", "/b", "2", "--lease", id, "--if-absent"}, at...)...).expect(t, exitRefused, `conflict: "/b" has sequence number`)

	all := leases(t, at...)
	for lease, want := range map[string]struct{ ttl, keys float64 }{id: {90, 3}, other: {3600, 1}} {
		l := all[lease]
		left, _ := l["left"].(float64)
		if len(all) != 2 || l["ttl"] != want.ttl || l["keys"] != want.keys || left <= 0 || left > want.ttl {
			t.Errorf("of %v, %s is %v", all, lease, l)
		}
	}
	lines := strings.Split(run("lease", "list"), "\n")
	if f := strings.Fields(lines[0]); len(lines) != 3 || !slices.Equal(f, []string{"ID", "TTL", "LEFT", "KEYS"}) {
		t.Errorf("list prints %q", lines)
	}
	if text := run("lease", "ttl", id); strings.Contains(text, "\n") {
		t.Errorf("ttl prints %q", text)
	} else if left, err := time.ParseDuration(text); err != nil || left <= 0 || left > 90*time.Second {
		t.Errorf("ttl prints %q", text)
	}
	if text := run("lease", "ttl", id, "--keys"); !strings.HasSuffix(text, "s\n/a\n/b\n/c") {
		t.Errorf("ttl --keys prints %q", text)
	}
	if l := object(t, run("lease", "ttl", other, "--json")); l["id"] != other || l["ttl"] != 3600.0 || l["keys"] != nil {
		t.Errorf("ttl --json prints %v", l)
	}
	if text := run("lease", "ttl", other, "--json", "--keys"); !strings.HasSuffix(text, `,"keys":[{"key":"/e"}]}`) {
		t.Errorf("ttl --json --keys prints %s", text)
	}
	if text := run("lease", "renew", id, other); text != "1m30s\n1h0m0s" {
		t.Errorf("renew prints %q", text)
	}
	words, _ := completions(t, append([]string{"lease", "revoke"}, append(at, "--timeout", "10s", id[:31])...)...)
	if !slices.Contains(words, id) {
		t.Errorf("the shell completes %q", words)
	}
	if words, _ := completions(t, append([]string{"set", "/k", "v"}, append(at, "--timeout", "10s", "--lease", "")...)...); len(words) != 2 {
		t.Errorf("the shell completes %q", words)
	}

	// Those who ask for them find the keys of leases; they are not set by hand.
	if text := run("ls", "$lease/"); text != strings.Join(slices.Sorted(slices.Values([]string{"$lease/" + id, "$lease/" + other})), "\n") {
		t.Errorf("ls prints %q", text)
	}
	if text := run("get", "$lease/"+id); text != "90" {
		t.Errorf("get prints %q", text)
	}
	for _, args := range [][]string{{"set", "$lease/" + id, "1h"}, {"set", "$lease/" + id, "3600", "--if-present"}, {"add", "$lease/" + id, "1"}} {
		try(t, append(args, at...)...).expect(t, exitRefused, "keys that begin with $lease/ are set by granting leases")
	}

	run("lease", "revoke", id)
	if text := run("ls"); text != "/d\n/e" {
		t.Errorf("left are %q", text)
	}
	for _, args := range [][]string{{"renew", id}, {"revoke", id}, {"ttl", id}, {"ttl", id, "--keys"}} {
		try(t, append(append([]string{"lease"}, args...), at...)...).expect(t, exitRefused, s.endpoint+" has no lease "+id)
	}
	try(t, append([]string{"set", "/a", "2", "--lease", id}, at...)...).expect(t, exitRefused, "has no lease "+id+"; nothing was changed")
	try(t, append([]string{"set", "/a", "2", "--lease", id, "--if-absent"}, at...)...).expect(t, exitRefused, "has no lease "+id+"; nothing was changed")
	// Of several it does what it can.
	o := try(t, append([]string{"lease", "revoke", id, other}, at...)...)
	o.expect(t, exitRefused, "has no lease "+id)
	if text := run("ls"); text != "/d" || strings.Contains(o.stderr, other) {
		t.Errorf("left are %q; %s", text, o.stderr)
	}
	if text := run("lease", "list"); text != "" {
		t.Errorf("left are %q", text)
	}
}

// A lease that is kept is renewed, and revoked when the command is interrupted. If the command is killed, the keys end by
// themselves.
func TestLeaseIsKept(t *testing.T) {
	t.Parallel()
	s := serve(t)
	at := []string{"--server", s.endpoint}
	grant := func(ttl string) (p *process, id string) {
		t.Helper()
		p = start(t, append([]string{"lease", "grant", "--keep", "--ttl", ttl}, at...)...)
		return p, p.line()
	}
	keys := func() string { t.Helper(); return must(t, append([]string{"ls"}, at...)...) }
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		p, id := grant("1h")
		must(t, append([]string{"set", "/k", "v", "--lease", id}, at...)...)
		p.signal(sig)
		if code, text := p.wait(), p.stderr.String(); code != exitDone || text != "" {
			t.Errorf("exit code %d: %s", code, text)
		}
		if text := keys(); text != "" {
			t.Errorf("keys are left: %q", text)
		}
	}
	p, id := grant("1h")
	must(t, append([]string{"set", "/a", "v", "--lease", id}, at...)...)
	must(t, append([]string{"set", "/b", "v", "--lease", id}, at...)...)
	must(t, append([]string{"lease", "revoke", id}, at...)...)
	if text := keys(); text != "" {
		t.Errorf("keys are left: %q", text)
	}
	p.signal(syscall.SIGKILL)
	p.wait()

	p, id = grant("5s")
	must(t, append([]string{"set", "/a", "v", "--lease", id}, at...)...)
	must(t, append([]string{"set", "/b", "v", "--lease", id}, at...)...)
	p.signal(syscall.SIGKILL)
	p.wait()
	testenv.Eventually(t, "the keys end", func() bool { return keys() == "" })

	// Somebody else revokes it: the command learns that when it renews.
	p, id = grant("3s")
	must(t, append([]string{"lease", "revoke", id}, at...)...)
	if code, text := p.wait(), p.stderr.String(); code != exitRefused || !strings.HasSuffix(text, "chp: the lease "+id+" has ended\n") {
		t.Errorf("exit code %d: %s", code, text)
	}
}

// A server that is stopped for longer than the time to live of a lease does not end it when it goes on: the
// next renewal comes in time.
func TestLeaseOutlivesStandstill(t *testing.T) {
	t.Parallel()
	s := serveApart(t, "--port", "5556", "--expiry-grace", "1h")
	at := []string{"--server", s.endpoint, "--timeout", testenv.Hang.String()}
	const ttl = 3 * time.Second
	var id string
	for {
		began := time.Now()
		id = strings.TrimSuffix(must(t, append([]string{"lease", "grant", "--ttl", ttl.String()}, at...)...), "\n")
		set := try(t, append([]string{"set", "/k", "v", "--lease", id}, at...)...)
		s.signal(syscall.SIGSTOP)
		intime := set.code == exitDone && time.Since(began) < ttl/2
		time.Sleep(2 * ttl)
		s.signal(syscall.SIGCONT)
		if intime { // otherwise the lease may have ended before
			break
		}
	}
	text := must(t, append([]string{"lease", "ttl", id}, at...)...)
	if left, err := time.ParseDuration(strings.TrimSuffix(text, "\n")); err != nil || left < 30*time.Minute {
		t.Errorf("within the grace %q is left", text)
	}
	if text := must(t, append([]string{"lease", "renew", id}, at...)...); text != "3s\n" {
		t.Errorf("renew prints %q", text)
	}
	if text := must(t, append([]string{"get", "/k"}, at...)...); text != "v\n" {
		t.Errorf("it is %q", text)
	}
	must(t, append([]string{"lease", "revoke", id}, at...)...)
	if o := try(t, append([]string{"get", "/k"}, at...)...); o.code != exitRefused || o.out != "" {
		t.Errorf("after revoke: exit code %d, %q", o.code, o.out)
	}
}

// A server that knows no leases is sent nothing.
func TestLeaseMistakes(t *testing.T) {
	t.Parallel()
	s := serve(t, "--model", "5")
	id := strings.Repeat("a", 32)
	for _, args := range []string{"lease grant --ttl 30s", "lease grant --ttl 30s --keep", "lease list", "lease renew " + id, "lease revoke " + id, "lease ttl " + id, "set /k v --lease " + id, "set /k v --if-absent --lease " + id} {
		try(t, append(strings.Fields(args), "--server", s.endpoint, "--server-model", "5")...).expect(t, exitRefused, "nothing was sent: "+s.endpoint+" knows no leases")
	}
	for args, want := range map[string]string{
		"lease":                      "name a command",
		"lease give":                 `there is no command "give"`,
		"lease grant":                "--ttl is missing",
		"lease grant --ttl 99ms":     "--ttl 99ms: must be from 100ms",
		"lease grant --ttl 100000h":  "ten years",
		"lease grant x --ttl 30s":    "takes at most 0 arguments",
		"lease renew":                "takes at least 1 argument",
		"lease ttl":                  "takes 1 argument",
		"lease revoke " + id + " 5":  `"5" is not the ID of a lease`,
		"lease ttl " + id[1:] + "A":  "in lower case",
		"set /k v --lease " + id[1:]: "is not the ID of a lease",
		"set /k v --lease=":          "--lease: the value is empty",
	} {
		try(t, strings.Fields(args)...).expect(t, exitUsage, want)
	}
}

// edit, revert and txn leave a key with its lease, or give it one; get --json shows it.
func TestKeyStaysWithItsLease(t *testing.T) {
	t.Parallel()
	s := serve(t, "--history", "5")
	at := []string{"--server", s.endpoint}
	run := func(args ...string) string {
		t.Helper()
		return strings.TrimSuffix(must(t, append(args, at...)...), "\n")
	}
	id := run("lease", "grant", "--ttl", "1h")
	lease := func(key string) any { return object(t, run("get", "--json", key))["lease"] }
	first := run("set", "/edited", "1", "--lease", id)
	edit := program(t, append([]string{"edit", "/edited"}, at...)...)
	edit.Env = append(edit.Env, "VISUAL=", "EDITOR=sed -i s/1/2/")
	runCommand(t, edit).expect(t, exitDone, "")
	if got := run("get", "/edited"); got != "2" || lease("/edited") != id {
		t.Errorf("edited it is %q, of %v", got, lease("/edited"))
	}
	run("revert", "/edited", "--to", first)
	if got := run("get", "/edited"); got != "1" || lease("/edited") != id {
		t.Errorf("reverted it is %q, of %v", got, lease("/edited"))
	}
	mustInput(t, `{"op":"set","key":"/made","value":"x","lease":"`+id+`"}`, append([]string{"txn"}, at...)...)
	if lease("/made") != id {
		t.Errorf("it is of %v", lease("/made"))
	}
	tryInput(t, `{"op":"set","key":"/made","value":"x","lease":"nonsense"}`, append([]string{"txn"}, at...)...).expect(t, exitRefused, "")
	run("lease", "revoke", id)
	try(t, append([]string{"ls"}, at...)...).expect(t, exitDone, "")
	for _, key := range []string{"/edited", "/made"} {
		if o := try(t, append([]string{"get", key}, at...)...); o.code != exitRefused {
			t.Errorf("%s outlives its lease: %q", key, o.out)
		}
	}
}

// After a restart list and ttl say the same: each lease has all of its time, behind the grace.
func TestLeaseListKnowsTheGrace(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	s := serveApart(t, "--port", "5556", "--data", folder, "--sync", "always", "--expiry-grace", "1h")
	at := []string{"--server", s.endpoint}
	id := strings.TrimSuffix(must(t, append([]string{"lease", "grant", "--ttl", "10m"}, at...)...), "\n")
	s.signal(syscall.SIGKILL)
	s.wait()
	serve(t, "--host", s.host(), "--port", "5556", "--data", folder, "--sync", "always", "--expiry-grace", "1h")
	if left, _ := leases(t, at...)[id]["left"].(float64); left < 3600 {
		t.Errorf("list says %v seconds", left)
	}
	text := must(t, append([]string{"lease", "ttl", id}, at...)...)
	if left, err := time.ParseDuration(strings.TrimSuffix(text, "\n")); err != nil || left < time.Hour {
		t.Errorf("ttl says %q", text)
	}
}
