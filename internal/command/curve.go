package command

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

// allowAny, instead of keys, lets every client in that knows the server's key.
const allowAny = "any"

// A key file is what keygen writes: the three lines below, a key after each
// of the words. Nothing else is taken for one, so that a mistake shows.
const (
	keyFileHead   = "chp CURVE key 1"
	keyFilePublic = "public "
	keyFileSecret = "secret "
)

// maxKeyFile bounds what is read of a file with keys, in bytes.
const maxKeyFile = 1 << 20

// Keys are the words that a program's texts about keys have for the program.
type Keys struct {
	Program string // has the command keygen; in capitals, the beginning of its environment variables
	Server  string // the command that prints the public key which clients need
}

// ClientKeys are the flags of a command that connects: its key and its server's.
type ClientKeys struct {
	Keys
	key, server string
}

// Register adds --curve-key and --curve-server-key.
func (c *ClientKeys) Register(flags *pflag.FlagSet) {
	flags.StringVar(&c.key, "curve-key", "", "`file` with this client's key, from "+c.Program+" keygen, for a server with CURVE (default $"+c.keyVariable()+")")
	flags.StringVar(&c.server, "curve-server-key", "", "public `key` of that server, or a file with it (default $"+c.serverKeyVariable()+")")
}

// Given tells whether one of the flags is on the command line.
func (c *ClientKeys) Given() bool { return c.key != "" || c.server != "" }

// Security returns what the flags and the environment say.
func (c *ClientKeys) Security() (s sockets.Security, err error) {
	key, server := flagOr(c.key, c.keyVariable()), flagOr(c.server, c.serverKeyVariable())
	switch {
	case key == "" && server == "":
		return s, nil
	case server == "":
		return s, Fail(ExitUsage, "--curve-key needs --curve-server-key too: the public key that %s prints", c.Server)
	case key == "":
		return s, Fail(ExitUsage, "--curve-server-key needs --curve-key too: a file that %s keygen makes", c.Program)
	}
	return c.client(key, server)
}

// ServerKeys are the flags of a command that binds: its key, and whom it lets in.
type ServerKeys struct {
	Keys
	key, allow string
}

// Register adds --curve-key and --curve-allow.
func (c *ServerKeys) Register(flags *pflag.FlagSet) {
	flags.StringVar(&c.key, "curve-key", "", "`file` with the server's key, from "+c.Program+" keygen: demand CURVE (default $"+c.keyVariable()+")")
	flags.StringVar(&c.allow, "curve-allow", "", "public `keys` of the clients to let in, comma-separated, or a file with one a line; or "+allowAny+" (default $"+c.allowVariable()+")")
}

// Security returns what the flags and the environment say.
func (c *ServerKeys) Security() (s sockets.Security, err error) {
	key, allow := flagOr(c.key, c.keyVariable()), flagOr(c.allow, c.allowVariable())
	switch {
	case key == "" && allow == "":
		return s, nil
	case key == "":
		return s, Fail(ExitUsage, "--curve-allow needs --curve-key too: a file that %s keygen makes", c.Program)
	case allow == "":
		return s, Fail(ExitUsage, "--curve-key needs --curve-allow too: the public keys of the clients to let in, comma-separated or in a file, or %s", allowAny)
	}
	return c.server(key, allow)
}

// DeviceKeys are the flags of a command that may both bind and connect: one key for
// all its sockets, whom it lets in where it binds, and the server's key where it
// connects.
type DeviceKeys struct {
	Keys
	key, allow, server string
}

// Register adds --curve-key, --curve-allow and --curve-server-key.
func (c *DeviceKeys) Register(flags *pflag.FlagSet) {
	flags.StringVar(&c.key, "curve-key", "", "`file` with this device's key, from "+c.Program+" keygen (default $"+c.keyVariable()+")")
	flags.StringVar(&c.allow, "curve-allow", "", "demand CURVE at endpoints that are bound: public `keys` of the peers to let in, comma-separated, or a file with one a line; or "+allowAny+" (default $"+c.allowVariable()+")")
	flags.StringVar(&c.server, "curve-server-key", "", "use CURVE at endpoints that are connected: public `key` of the server there, or a file with it (default $"+c.serverKeyVariable()+")")
}

// Security returns what the flags and the environment say: for sockets that are
// bound, and for those that are connected.
func (c *DeviceKeys) Security() (bound, connected sockets.Security, err error) {
	key, allow, server := flagOr(c.key, c.keyVariable()), flagOr(c.allow, c.allowVariable()), flagOr(c.server, c.serverKeyVariable())
	switch {
	case key == "" && allow == "" && server == "":
		return bound, connected, nil
	case key == "":
		return bound, connected, Fail(ExitUsage, "--curve-allow and --curve-server-key need --curve-key too: a file that %s keygen makes", c.Program)
	case allow == "" && server == "":
		return bound, connected, Fail(ExitUsage, "--curve-key needs --curve-allow or --curve-server-key too: whom to let in, or whom to talk to")
	}
	if allow != "" {
		if bound, err = c.Keys.server(key, allow); err != nil {
			return bound, connected, err
		}
	}
	if server != "" {
		connected, err = c.client(key, server)
	}
	return bound, connected, err
}

func (k Keys) variable(name string) string { return strings.ToUpper(k.Program) + "_CURVE_" + name }

func (k Keys) keyVariable() string       { return k.variable("KEY") }
func (k Keys) serverKeyVariable() string { return k.variable("SERVER_KEY") }
func (k Keys) allowVariable() string     { return k.variable("ALLOW") }

// client returns the security of a socket with the key in a file, which talks to
// one server.
func (k Keys) client(file, server string) (s sockets.Security, err error) {
	pair, err := k.readKeyFile(file)
	if err != nil {
		return s, err
	}
	s.CurveSecretKey = pair.Secret
	if s.CurveServerKey, err = k.publicKey(server); err != nil {
		return s, Fail(ExitUsage, "--curve-server-key: %w", err)
	}
	return s, nil
}

// server returns the security of a socket with the key in a file, which lets some
// keys in, or any. Whoever has the same key is let in as well, such as the other
// server of a pair.
func (k Keys) server(file, allow string) (s sockets.Security, err error) {
	pair, err := k.readKeyFile(file)
	if err != nil {
		return s, err
	}
	s.CurveServer, s.CurveSecretKey = true, pair.Secret
	if allow == allowAny {
		return s, nil
	}
	keys, err := k.publicKeys(allow)
	if err != nil {
		return s, Fail(ExitUsage, "--curve-allow: %w", err)
	}
	s.Authenticate = sockets.AllowKeys(append(keys, pair.Public)...)
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
func (k Keys) readKeyFile(name string) (zmtp.KeyPair, error) {
	var pair zmtp.KeyPair
	text, err := readFile(name)
	switch {
	case err == nil:
	case isKey(name):
		return pair, Fail(ExitUsage, "--curve-key takes the name of a file, not a key: on a command line everyone can see it")
	case errors.Is(err, fs.ErrNotExist):
		return pair, Fail(ExitUsage, "there is no key file %s; make one with: %s keygen --out %s", name, k.Program, name)
	default:
		return pair, Fail(ExitUsage, "cannot read the key file: %w", err)
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
	return zmtp.KeyPair{}, Fail(ExitUsage, "%s is not a key file as %s keygen makes it", name, k.Program)
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
		return "", fmt.Errorf("%s has %d bytes, which is too large for keys", name, info.Size())
	}
	text, err := os.ReadFile(name)
	return string(text), err
}

// publicKey returns the key that text is, or that the file of that name holds.
func (k Keys) publicKey(text string) (zmtp.PublicKey, error) {
	keys, err := k.publicKeys(text)
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
func (k Keys) publicKeys(text string) ([]zmtp.PublicKey, error) {
	content, err := readFile(text) // first: a file's name can look like a key
	if err != nil {
		return keysOf(text, err)
	}
	if strings.HasPrefix(content, keyFileHead) {
		pair, err := k.readKeyFile(text)
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
		key, err := zmtp.ParsePublicKey(word)
		if err != nil {
			return nil, fmt.Errorf("%s, line %d: %q is not a public key of %d characters", text, number, word, zmtp.KeyText)
		}
		keys = append(keys, key)
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
