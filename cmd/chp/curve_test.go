package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"clustermap/zmtp"
)

// keygen makes a key file and returns its name and the public key.
func keygen(t *testing.T, name string) (file, public string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), name)
	return file, strings.TrimSuffix(must(t, "keygen", "--out", file), "\n")
}

func TestKeygen(t *testing.T) {
	t.Parallel()
	file, public := keygen(t, "key")
	info, err := os.Stat(file)
	if err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	before, _ := os.ReadFile(file)
	if !strings.Contains(string(before), "\npublic "+public+"\n") {
		t.Errorf("printed %q, written %q", public, before)
	}
	o := try(t, "keygen", "--out", file)
	o.expect(t, exitRefused, "exists")
	if after, _ := os.ReadFile(file); string(after) != string(before) {
		t.Error("a key was replaced")
	}
	if _, other := keygen(t, "key"); other == public {
		t.Error("the same key twice")
	}
	try(t, "keygen", "--out", filepath.Join(file, "in a file")).expect(t, exitRefused, "cannot write")
}

// TestServeCurve: a client on the list may do everything, with flags as with the
// environment, and other clients nothing.
func TestServeCurve(t *testing.T) {
	t.Parallel()
	serverFile, serverKey := keygen(t, "server")
	known, knownKey := keygen(t, "known")
	other, otherKey := keygen(t, "other")
	unknown, unknownKey := keygen(t, "unknown")
	list := filepath.Join(t.TempDir(), "list")
	if err := os.WriteFile(list, []byte("# clients\n\n"+knownKey+" the first\r\n"+otherKey+"\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	s := serve(t, "--curve-key", serverFile, "--curve-allow", list)
	if text := s.stderr.String(); !strings.Contains(text, "'"+serverKey+"'") {
		t.Errorf("the server's key is not in %q", text)
	}
	as := func(file string, args ...string) []string {
		return append(args, "--server", s.endpoint, "--curve-key", file, "--curve-server-key", serverKey)
	}
	must(t, as(known, "set", "k", "v")...)
	if got := must(t, as(other, "get", "k")...); got != "v\n" {
		t.Errorf("got %q", got)
	}
	dump := must(t, as(known, "dump")...)
	mustInput(t, dump, as(other, "load")...)
	cmd := program(t, "get", "k", "--server", s.endpoint)
	cmd.Env = append(cmd.Env, keyVariable+"="+known, serverKeyVariable+"="+serverFile)
	if o := runCommand(t, cmd); o.out != "v\n" {
		t.Errorf("with the environment: %q, %s", o.out, o.stderr)
	}

	for _, args := range [][]string{{"get", "k"}, {"set", "k", "w"}, {"watch"}} {
		o := try(t, as(unknown, args...)...)
		o.expect(t, exitRefused, "the server "+s.endpoint+" does not accept this key; start it with '"+unknownKey+"' in its --curve-allow")
		if o.out != "" {
			t.Errorf("%s: stdout %q", o.name, o.out)
		}
	}
	_, rest, _ := strings.Cut(s.stderr.String(), "publisher ")
	publisher, _, _ := strings.Cut(rest, ",")
	try(t, "get", "k", "--server", publisher, "--curve-key", known, "--curve-server-key", serverKey).
		expect(t, exitRefused, "as a port does that is not the first of a server's three")
	try(t, "get", "k", "--server", s.endpoint).expect(t, exitRefused, "use --curve-key and --curve-server-key")
	try(t, "get", "k", "--server", s.endpoint, "--curve-key", known, "--curve-server-key", unknownKey).
		expect(t, exitRefused, "the server "+s.endpoint+" cannot read what this client sends: compare --curve-server-key")
	if got := must(t, as(known, "get", "k")...); got != "v\n" {
		t.Errorf("it was changed to %q", got)
	}

	must(t, as(other, "bench", "--updates", "1000", "--warmup", "100", "--keys", "10")...)
	if got := must(t, as(known, "get", "k")...); got != "v\n" {
		t.Errorf("the benchmark left %q", got)
	}

	plain := serve(t)
	try(t, "get", "k", "--server", plain.endpoint, "--curve-key", known, "--curve-server-key", serverKey).
		expect(t, exitRefused, "does not use CURVE")
	o := try(t, "status", "--server", s.endpoint, "--server", plain.endpoint)
	o.expect(t, exitDone, "chp: the server "+s.endpoint+" requires CURVE; use --curve-key and --curve-server-key")
	if states := cells(o.out, "state"); !slices.Equal(states, []string{"refused", "active"}) {
		t.Errorf("states %q", states)
	}
}

// TestServeCurveForAny: keys on the command line, and clients with any key.
func TestServeCurveForAny(t *testing.T) {
	t.Parallel()
	serverFile, serverKey := keygen(t, "server")
	first, firstKey := keygen(t, "first")
	second, secondKey := keygen(t, "second")
	for _, allow := range []string{"any", firstKey + ", " + secondKey} {
		cmd := program(t, "serve", "--port", "0", "--curve-allow", allow)
		cmd.Env = append(cmd.Env, keyVariable+"="+serverFile)
		p := startCommand(t, cmd)
		endpoint := p.ready()
		must(t, "set", "k", "v", "--server", endpoint, "--curve-key", first, "--curve-server-key", serverKey)
		must(t, "get", "k", "--server", endpoint, "--curve-key", second, "--curve-server-key", serverKey)
	}
}

// TestKeyFaults: flags without a key are refused with the reason.
func TestKeyFaults(t *testing.T) {
	t.Parallel()
	key, public := keygen(t, "key")
	foreign := zmtp.GenerateKeyPair()
	many := filepath.Join(t.TempDir(), "many")
	lines := public + "\n"
	for range 16 {
		lines += zmtp.GenerateKeyPair().Public.String() + "\n"
	}
	if err := os.WriteFile(many, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	o := try(t, "serve", "--curve-key", key, "--curve-allow", foreign.Public.String()+",x")
	o.expect(t, exitUsage, "40 characters")
	try(t, "get", "k", "--curve-server-key", foreign.Public.String(), "--curve-key", foreign.Secret.Z85()).expect(t, exitUsage, "--curve-key takes the name of a file")
	try(t, "get", "k", "--curve-key", key, "--curve-server-key", many).expect(t, exitUsage, "17 keys; the most is 16")
}

// A key that may read and write may not make a server hand over; one of --curve-admin,
// which is let in without being in --curve-allow, may.
func TestOnlyAdminKeysHandOver(t *testing.T) {
	t.Parallel()
	serverFile, serverKey := keygen(t, "server")
	clientFile, _ := keygen(t, "client")
	adminFile, _ := keygen(t, "admin")
	s := serve(t, "--curve-key", serverFile, "--curve-allow", clientFile, "--curve-admin", adminFile)
	failover := func(key string) outcome {
		return try(t, "failover", "--server", s.endpoint, "--curve-key", key, "--curve-server-key", serverKey)
	}
	failover(clientFile).expect(t, exitRefused, "does not hand over: this client is not an administrator")
	failover(adminFile).expect(t, exitRefused, "does not hand over: the server is not part of a pair")
	failover(serverFile).expect(t, exitRefused, "does not hand over: the server is not part of a pair")
}

// A client with another server's key fails at once, as one with a wrong key of its own does.
func TestWrongServerKeyFailsAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	public := strings.TrimSpace(must(t, "keygen", "--out", dir+"/server.key"))
	must(t, "keygen", "--out", dir+"/client.key")
	other := strings.TrimSpace(must(t, "keygen", "--out", dir+"/other.key"))
	s := start(t, "serve", "--port", "0", "--curve-key", dir+"/server.key", "--curve-allow", dir+"/client.key", "--log-format", "json")
	at := s.Await(`"msg":"chp: ready: snapshots (tcp://[0-9.:]+)`)[1]
	get := func(key string) outcome {
		return try(t, "get", "/k", "--server", at, "--timeout", "100s", "--curve-key", dir+"/client.key", "--curve-server-key", key)
	}
	get(other).expect(t, exitRefused, "compare --curve-server-key")
	get(public).expect(t, exitRefused, "is not in the map")
	s.Await("clients need --curve-server-key")
	for line := range strings.Lines(s.Stderr.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("a line of the log is not JSON: %s", line)
		}
	}
}
