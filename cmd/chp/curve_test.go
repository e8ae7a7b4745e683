package main

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
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
	pair, err := readKeyFile(file)
	if err != nil || pair.Public.String() != public {
		t.Errorf("printed %q, written %v: %v", public, pair.Public, err)
	}
	info, err := os.Stat(file)
	if err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	before, _ := os.ReadFile(file)
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

// TestServeCurve: who is on the list does everything, with flags as with the
// environment, and nobody else does anything.
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
	cmd := command(t, "get", "k", "--server", s.endpoint)
	cmd.Env = append(cmd.Env, keyVariable+"="+known, serverKeyVariable+"="+serverFile)
	if o := runCommand(t, cmd); o.out != "v\n" {
		t.Errorf("with the environment: %q, %s", o.out, o.stderr)
	}

	for _, args := range [][]string{{"get", "k"}, {"set", "k", "w"}, {"watch"}} {
		o := try(t, as(unknown, args...)...)
		o.expect(t, exitRefused, "the server "+s.endpoint+" does not let our key in; start it with '"+unknownKey+"' in its --curve-allow")
		if o.out != "" {
			t.Errorf("%s: stdout %q", o.name, o.out)
		}
	}
	try(t, "get", "k", "--server", s.endpoint).expect(t, exitRefused, "give --curve-key and --curve-server-key")
	try(t, "get", "k", "--server", s.endpoint, "--curve-key", known, "--curve-server-key", unknownKey, "--timeout", "500ms").
		expect(t, exitNoServer, "start one with: chp serve; if one runs there, compare --curve-server-key")
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
}

// TestServeCurveForAny: keys on the command line, and nobody's in particular.
func TestServeCurveForAny(t *testing.T) {
	t.Parallel()
	serverFile, serverKey := keygen(t, "server")
	first, firstKey := keygen(t, "first")
	second, secondKey := keygen(t, "second")
	for _, allow := range []string{"any", firstKey + ", " + secondKey} {
		cmd := command(t, "serve", "--port", "0", "--curve-allow", allow)
		cmd.Env = append(cmd.Env, keyVariable+"="+serverFile)
		p := startCommand(t, cmd)
		endpoint := p.ready()
		must(t, "set", "k", "v", "--server", endpoint, "--curve-key", first, "--curve-server-key", serverKey)
		must(t, "get", "k", "--server", endpoint, "--curve-key", second, "--curve-server-key", serverKey)
	}
}

// TestKeyFaults: what is no key is refused with the reason, and no secret is
// repeated.
func TestKeyFaults(t *testing.T) {
	t.Parallel()
	key, public := keygen(t, "key")
	pair, err := readKeyFile(key)
	if err != nil {
		t.Fatal(err)
	}
	secret := pair.Secret.Z85()
	write := func(text string) string {
		name := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	foreign := zmtp.GenerateKeyPair().Public.String()
	for name, file := range map[string]string{
		"empty":           write(""),
		"something else":  write("hello\n"),
		"cut short":       write(keyFileHead + "\n" + keyFilePublic + public + "\n" + keyFileSecret + secret[:39] + "\n"),
		"another's":       write(keyFileHead + "\n" + keyFilePublic + foreign + "\n" + keyFileSecret + secret + "\n"),
		"without a head":  write(keyFilePublic + public + "\n" + keyFileSecret + secret + "\n"),
		"the key itself":  secret,
		"a folder":        t.TempDir(),
		"too large":       write(strings.Repeat("x", maxKeyFile+1)),
		"a secret alone":  write(secret + "\n"),
		"an empty public": write(keyFileHead + "\n" + keyFilePublic + "\n" + keyFileSecret + secret + "\n"),
	} {
		_, err := readKeyFile(file)
		var failed *commandError
		if !errors.As(err, &failed) || failed.code != exitUsage || !strings.Contains(err.Error(), "key") {
			t.Errorf("%s: %v", name, err)
		} else if strings.Contains(err.Error(), secret[:39]) {
			t.Errorf("%s: the secret is in %q", name, err)
		}
	}
	for _, c := range []struct{ allow, want string }{
		{"nothing there", "40 characters"},
		{foreign + ",x", "40 characters"},
		{write("# only a comment\n"), "no key"},
		{write(foreign + "\n" + public[:39] + "\n"), "line 2"},
		{write(keyFileHead + "\n" + secret + "\n"), "not a key file"},
	} {
		_, err := publicKeys(c.allow)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), secret[:39]) {
			t.Errorf("%s: %v", c.allow, err)
		}
	}
	o := try(t, "serve", "--curve-key", key, "--curve-allow", foreign+",x")
	o.expect(t, exitUsage, "40 characters")
	try(t, "get", "k", "--curve-server-key", foreign, "--curve-key", secret).expect(t, exitUsage, "--curve-key takes the name of a file")
	try(t, "get", "k", "--curve-key", key, "--curve-server-key", write(foreign+"\n"+public+"\n")).expect(t, exitUsage, "2 keys")
	if _, err := publicKeys(strings.Join([]string{public, foreign}, ",")); err != nil {
		t.Error(err)
	}
}
