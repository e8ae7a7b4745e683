package command

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"clustermap/zmtp"

	"github.com/spf13/pflag"
)

// What a key file begins with, and what its keys follow.
const (
	keyFileHead   = "chp CURVE key 1"
	keyFilePublic = "public "
	keyFileSecret = "secret "
)

var testKeys = Keys{Program: "test", Server: "test serve"}

// keyFile writes a new key file and returns its name.
func keyFile(t *testing.T) (string, zmtp.KeyPair) {
	t.Helper()
	name, pair := filepath.Join(t.TempDir(), "key"), zmtp.GenerateKeyPair()
	if err := writeKeyFile(name, pair); err != nil {
		t.Fatal(err)
	}
	return name, pair
}

// TestKeyFaults: an invalid key is refused with the reason, and no secret is repeated.
func TestKeyFaults(t *testing.T) {
	t.Parallel()
	_, pair := keyFile(t)
	public, secret := pair.Public.String(), pair.Secret.Z85()
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
		_, err := testKeys.readKeyFile(file)
		var failed *Error
		if !errors.As(err, &failed) || failed.Code != ExitUsage || !strings.Contains(err.Error(), "key") {
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
		_, err := testKeys.publicKeys(c.allow)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), secret[:39]) {
			t.Errorf("%s: %v", c.allow, err)
		}
	}
	if _, err := testKeys.publicKeys(strings.Join([]string{public, foreign}, ",")); err != nil {
		t.Error(err)
	}
}

// TestDeviceKeys: a device has CURVE where it binds, where it connects, or in both
// places, and its error names the missing key.
func TestDeviceKeys(t *testing.T) {
	t.Parallel()
	file, pair := keyFile(t)
	server := zmtp.GenerateKeyPair().Public
	for _, c := range []struct {
		args             []string
		bound, connected bool
		fault            string
	}{
		{args: nil},
		{args: []string{"--curve-key", file, "--curve-allow", "any"}, bound: true},
		{args: []string{"--curve-key", file, "--curve-server-key", server.String()}, connected: true},
		{args: []string{"--curve-key", file, "--curve-allow", server.String(), "--curve-server-key", server.String()}, bound: true, connected: true},
		{args: []string{"--curve-key", file}, fault: "--curve-allow or --curve-server-key"},
		{args: []string{"--curve-allow", "any"}, fault: "need --curve-key"},
		{args: []string{"--curve-server-key", server.String()}, fault: "need --curve-key"},
		{args: []string{"--curve-key", file, "--curve-server-key", "x"}, fault: "--curve-server-key"},
		{args: []string{"--curve-key", file, "--curve-allow", "x"}, fault: "--curve-allow"},
	} {
		keys := DeviceKeys{Keys: testKeys}
		flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
		keys.Register(flags)
		if err := flags.Parse(c.args); err != nil {
			t.Fatal(err)
		}
		bound, connected, err := keys.Security()
		if c.fault != "" {
			var failed *Error
			if !errors.As(err, &failed) || failed.Code != ExitUsage || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("%q: %v, want %q", c.args, err, c.fault)
			}
			continue
		}
		if err != nil || bound.CurveServer != c.bound || c.bound && bound.CurveSecretKey != pair.Secret {
			t.Errorf("%q: bound %v, %v", c.args, bound, err)
		}
		if (connected.CurveServerKey == server) != c.connected || c.connected && connected.CurveSecretKey != pair.Secret {
			t.Errorf("%q: connected %v", c.args, connected)
		}
	}
}

// The keys of --curve-admin are those of administrators, and are let in as clients.
func TestAdminKeys(t *testing.T) {
	t.Parallel()
	file, pair := keyFile(t)
	admin, client := zmtp.GenerateKeyPair().Public, zmtp.GenerateKeyPair().Public
	parse := func(args ...string) *ServerKeys {
		keys := &ServerKeys{Keys: testKeys}
		flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
		keys.Register(flags)
		keys.RegisterAdmin(flags)
		if err := flags.Parse(args); err != nil {
			t.Fatal(err)
		}
		return keys
	}
	keys := parse("--curve-key", file, "--curve-allow", client.String(), "--curve-admin", admin.String())
	if admins, err := keys.Admins(); err != nil || !slices.Equal(admins, []zmtp.PublicKey{admin}) {
		t.Errorf("%v, %v", admins, err)
	}
	if s, err := keys.Security(); err != nil || s.CurveSecretKey != pair.Secret || s.Authenticate == nil {
		t.Errorf("%v, %v", s, err)
	}
	for fault, args := range map[string][]string{
		"--curve-admin needs --curve-key": {"--curve-admin", admin.String()},
		"--curve-admin: ":                 {"--curve-key", file, "--curve-allow", "any", "--curve-admin", "any"},
	} {
		var failed *Error
		if _, err := parse(args...).Security(); !errors.As(err, &failed) || failed.Code != ExitUsage || !strings.HasPrefix(failed.Error(), fault) {
			t.Errorf("%q: %v", args, err)
		}
	}
}
