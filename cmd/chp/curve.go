package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"clustermap/sockets"
	"clustermap/zmtp"

	"github.com/spf13/pflag"
)

// The environment variables that stand for flags about keys.
const (
	keyVariable       = "CHP_CURVE_KEY"
	serverKeyVariable = "CHP_CURVE_SERVER_KEY"
	allowVariable     = "CHP_CURVE_ALLOW"
)

// allowAny, instead of keys, lets every client in that knows the server's key.
const allowAny = "any"

// A key file is what chp keygen writes: the three lines below, a key after each
// of the words. Nothing else is taken for one, so that a mistake shows.
const (
	keyFileHead   = "chp CURVE key 1"
	keyFilePublic = "public "
	keyFileSecret = "secret "
)

// maxKeyFile bounds what is read of a file with keys, in octets.
const maxKeyFile = 1 << 20

// clientCurve is how a client command comes to its key and its server's.
type clientCurve struct{ key, server string }

func (c *clientCurve) register(flags *pflag.FlagSet) {
	flags.StringVar(&c.key, "curve-key", "", "`file` with this client's key, from chp keygen, for a server with CURVE (default $"+keyVariable+")")
	flags.StringVar(&c.server, "curve-server-key", "", "public `key` of that server, or a file with it (default $"+serverKeyVariable+")")
}

// security returns what the flags and the environment say.
func (c *clientCurve) security() (s sockets.Security, err error) {
	key, server := flagOr(c.key, keyVariable), flagOr(c.server, serverKeyVariable)
	switch {
	case key == "" && server == "":
		return s, nil
	case server == "":
		return s, fail(exitUsage, "--curve-key needs --curve-server-key too: the public key that chp serve prints")
	case key == "":
		return s, fail(exitUsage, "--curve-server-key needs --curve-key too: a file that chp keygen makes")
	}
	pair, err := readKeyFile(key)
	if err != nil {
		return s, err
	}
	s.CurveSecretKey = pair.Secret
	if s.CurveServerKey, err = publicKey(server); err != nil {
		return s, fail(exitUsage, "--curve-server-key: %w", err)
	}
	return s, nil
}

// serverSecurity returns what chp serve was told about keys.
func serverSecurity(key, allow string) (s sockets.Security, err error) {
	key, allow = flagOr(key, keyVariable), flagOr(allow, allowVariable)
	switch {
	case key == "" && allow == "":
		return s, nil
	case key == "":
		return s, fail(exitUsage, "--curve-allow needs --curve-key too: a file that chp keygen makes")
	case allow == "":
		return s, fail(exitUsage, "--curve-key needs --curve-allow too: the public keys of the clients to let in, comma-separated or in a file, or %s", allowAny)
	}
	pair, err := readKeyFile(key)
	if err != nil {
		return s, err
	}
	s.CurveServer, s.CurveSecretKey = true, pair.Secret
	if allow == allowAny {
		return s, nil
	}
	keys, err := publicKeys(allow)
	if err != nil {
		return s, fail(exitUsage, "--curve-allow: %w", err)
	}
	s.Authenticate = sockets.AllowKeys(append(keys, pair.Public)...) // the other server of a pair has the same key
	return s, nil
}

// flagOr returns a flag's value, or a variable's where the flag is not given.
func flagOr(value, variable string) string {
	if value == "" {
		value = os.Getenv(variable)
	}
	return value
}

// writeKeyFile writes a new file that only its owner can read. It replaces
// nothing: a lost key is lost.
func writeKeyFile(name string, pair zmtp.KeyPair) error {
	text := keyFileHead + "\n" + keyFilePublic + pair.Public.String() + "\n" + keyFileSecret + pair.Secret.Z85() + "\n"
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Close()); err != nil {
		os.Remove(name)
	}
	return err
}

// readKeyFile reads what writeKeyFile wrote. No error tells of what is in it.
func readKeyFile(name string) (zmtp.KeyPair, error) {
	var pair zmtp.KeyPair
	text, err := readFile(name)
	switch {
	case err == nil:
	case isKey(name):
		return pair, fail(exitUsage, "--curve-key takes the name of a file, not a key: on a command line everyone can see it")
	case errors.Is(err, fs.ErrNotExist):
		return pair, fail(exitUsage, "there is no key file %s; make one with: chp keygen --out %s", name, name)
	default:
		return pair, fail(exitUsage, "cannot read the key file: %w", err)
	}
	lines := strings.Split(strings.TrimRight(text, "\r\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], "\r")
	}
	if len(lines) == 3 && lines[0] == keyFileHead {
		public, foundPublic := strings.CutPrefix(lines[1], keyFilePublic)
		secret, foundSecret := strings.CutPrefix(lines[2], keyFileSecret)
		if foundPublic && foundSecret {
			var e1, e2 error
			pair.Public, e1 = zmtp.ParsePublicKey(public)
			pair.Secret, e2 = zmtp.ParseSecretKey(secret)
			if e1 == nil && e2 == nil && pair.Secret.Public() == pair.Public {
				return pair, nil
			}
		}
	}
	return zmtp.KeyPair{}, fail(exitUsage, "%s is not a key file as chp keygen makes it", name)
}

func isKey(text string) bool {
	_, err := zmtp.ParseSecretKey(text)
	return err == nil
}

// readFile reads a file that should be small.
func readFile(name string) (string, error) {
	info, err := os.Stat(name)
	if err != nil {
		return "", err
	}
	if info.Size() > maxKeyFile {
		return "", fmt.Errorf("%s has %d octets, which is too large for keys", name, info.Size())
	}
	text, err := os.ReadFile(name)
	return string(text), err
}

// publicKey returns the key that text is, or that the file of that name holds.
func publicKey(text string) (zmtp.PublicKey, error) {
	keys, err := publicKeys(text)
	if err == nil && len(keys) != 1 {
		err = fmt.Errorf("%s has %d keys; one is needed", text, len(keys))
	}
	if err != nil {
		return zmtp.PublicKey{}, err
	}
	return keys[0], nil
}

// publicKeys returns the keys that text lists, with commas between them, or that
// the file of that name lists: a key at the beginning of a line, and a blank and
// a comment behind it if need be; lines that begin with "# " and empty ones do not
// count. A key file has the public key that is in it.
func publicKeys(text string) ([]zmtp.PublicKey, error) {
	content, err := readFile(text) // first: a file's name can look like a key
	if err != nil {
		return keysOf(text, err)
	}
	if strings.HasPrefix(content, keyFileHead) {
		pair, err := readKeyFile(text)
		return []zmtp.PublicKey{pair.Public}, err
	}
	var keys []zmtp.PublicKey
	number := 0
	for line := range strings.Lines(content) {
		number++
		line = strings.TrimRight(line, "\r\n")
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "# ") || line == "#" {
			continue
		}
		word, _, _ := strings.Cut(line, " ")
		k, err := zmtp.ParsePublicKey(word)
		if err != nil {
			return nil, fmt.Errorf("%s, line %d: %q is not a public key of %d characters", text, number, word, zmtp.KeyText)
		}
		keys = append(keys, k)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%s has no key in it", text)
	}
	return keys, nil
}

// keysOf parses keys with commas between them. It says why they are no file.
func keysOf(text string, noFile error) ([]zmtp.PublicKey, error) {
	var keys []zmtp.PublicKey
	for one := range strings.SplitSeq(text, ",") {
		k, err := zmtp.ParsePublicKey(strings.TrimSpace(one))
		if err != nil {
			return nil, fmt.Errorf("%q is neither keys of %d characters, with commas between them, nor a file that can be read: %w", text, zmtp.KeyText, noFile)
		}
		keys = append(keys, k)
	}
	return keys, nil
}
