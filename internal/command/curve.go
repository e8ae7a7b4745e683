package command

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"

	"clustermap/sockets"
	"clustermap/zmtp"

	"github.com/spf13/pflag"
)

// allowAny, in place of keys, accepts every client that knows the server's key.
const allowAny = "any"

// maxKeyFile is the maximum size of a file with keys in bytes.
const maxKeyFile = 1 << 20

// Keys holds names for the texts about the keys of a program.
type Keys struct {
	Program string // the program with the command keygen; in capitals, the prefix of its environment variables
	Server  string // the command that prints the public key that clients need
}

// ClientKeys holds the flags of a command that connects: its key and that of the
// server.
type ClientKeys struct {
	Keys
	key, server string
}

// Register adds --curve-key and --curve-server-key.
func (c *ClientKeys) Register(flags *pflag.FlagSet) {
	flags.StringVar(&c.key, "curve-key", "", "`file` with this client's key, from "+c.Program+" keygen, for a server with CURVE (default $"+c.keyVariable()+")")
	flags.StringVar(&c.server, "curve-server-key", "", "public `key` of that server, or a file with it (default $"+c.serverKeyVariable()+")")
}

// UseDefaults sets the values of flags that are not on the command line. Both are
// stronger than the environment.
func (c *ClientKeys) UseDefaults(key, server string) {
	c.key, c.server = cmp.Or(c.key, key), cmp.Or(c.server, server)
}

// Given reports whether one of the flags is on the command line.
func (c *ClientKeys) Given() bool { return c.key != "" || c.server != "" }

// Environment returns the variables with the keys, for the same program as a child process.
func (c *ClientKeys) Environment() []string {
	var env []string
	for variable, value := range map[string]string{c.keyVariable(): c.key, c.serverKeyVariable(): c.server} {
		if value != "" {
			env = append(env, variable+"="+value)
		}
	}
	return env
}

// Security returns the configuration in the flags and the environment.
func (c *ClientKeys) Security() (s sockets.Security, err error) {
	key, server := flagOr(c.key, c.keyVariable()), flagOr(c.server, c.serverKeyVariable())
	switch {
	case key == "" && server == "":
		return s, nil
	case server == "":
		return s, Fail(ExitUsage, "--curve-key needs --curve-server-key too: the public key that %s prints", c.Server)
	case key == "":
		return s, Fail(ExitUsage, "--curve-server-key needs --curve-key too: a file from %s keygen", c.Program)
	}
	return c.client(key, server)
}

// ServerKeys holds the flags of a command that binds: its key and those of the
// clients that it accepts.
type ServerKeys struct {
	Keys
	keys         []string
	allow, admin string
	administers  bool // it has --curve-admin

	// Others says that something else than --curve-allow decides which clients to accept.
	Others bool
}

// Register adds --curve-key and --curve-allow.
func (c *ServerKeys) Register(flags *pflag.FlagSet) {
	flags.StringArrayVar(&c.keys, "curve-key", nil, "`file` with the server's key, from "+c.Program+" keygen: require CURVE; repeat it for others that clients may know, while they change to the first (default $"+c.keyVariable()+")")
	flags.StringVar(&c.allow, "curve-allow", "", "public `keys` of the clients to accept, comma-separated, or a file with one per line, which is read again at SIGHUP; or "+allowAny+" (default $"+c.allowVariable()+")")
}

// RegisterAdmin adds --curve-admin, for a command that has administrators.
func (c *ServerKeys) RegisterAdmin(flags *pflag.FlagSet) {
	c.administers = true
	flags.StringVar(&c.admin, "curve-admin", "", "public `keys` of administrators, comma-separated, or a file with one per line; they are accepted as clients too (default $"+c.adminVariable()+")")
}

// Admins returns the keys of --curve-admin, or nil.
func (c *ServerKeys) Admins() ([]zmtp.PublicKey, error) {
	text := flagOr(c.admin, c.adminVariable())
	if text == "" || !c.administers {
		return nil, nil
	}
	keys, err := c.publicKeys(text)
	if err != nil {
		return nil, Fail(ExitUsage, "--curve-admin: %w", err)
	}
	return keys, nil
}

// Security returns the configuration in the flags and the environment.
func (c *ServerKeys) Security() (s sockets.Security, err error) {
	if slices.Contains(c.keys, "") {
		return s, Fail(ExitUsage, "--curve-key: the value is empty")
	}
	first, more := "", []string(nil)
	if len(c.keys) > 0 {
		first, more = c.keys[0], c.keys[1:]
	}
	key, allow := flagOr(first, c.keyVariable()), flagOr(c.allow, c.allowVariable())
	defer func() {
		for _, name := range more {
			if err != nil {
				return
			}
			var pair zmtp.KeyPair
			if pair, err = c.readKeyFile(name); err == nil {
				s.CurveMoreKeys = append(s.CurveMoreKeys, pair.Secret)
			}
		}
	}()
	switch {
	case key == "" && c.admin != "":
		return s, Fail(ExitUsage, "--curve-admin needs --curve-key too: a file from %s keygen", c.Program)
	case c.Others && allow != "":
		return s, Fail(ExitUsage, "--curve-allow does not go with --access: that file has the keys of the clients to accept")
	case key == "" && allow == "":
		return s, nil
	case c.Others:
		return c.server(key, allowAny)
	case key == "":
		return s, Fail(ExitUsage, "--curve-allow needs --curve-key too: a file from %s keygen", c.Program)
	case allow == "":
		return s, Fail(ExitUsage, "--curve-key needs --curve-allow too: the public keys of the clients to accept, comma-separated or in a file, or %s", allowAny)
	}
	admins, err := c.Admins()
	if err != nil {
		return s, err
	}
	return c.server(key, allow, admins...)
}

// DeviceKeys holds the flags of a command that may both bind and connect: one key for
// all its sockets, the keys of the peers that it accepts where it binds, and the
// server's key where it connects.
type DeviceKeys struct {
	Keys
	key, allow, server string
}

// Register adds --curve-key, --curve-allow and --curve-server-key.
func (c *DeviceKeys) Register(flags *pflag.FlagSet) {
	flags.StringVar(&c.key, "curve-key", "", "`file` with this device's key, from "+c.Program+" keygen (default $"+c.keyVariable()+")")
	flags.StringVar(&c.allow, "curve-allow", "", "require CURVE at bound endpoints: public `keys` of the peers to accept, comma-separated, or a file with one per line, which is read again at SIGHUP; or "+allowAny+" (default $"+c.allowVariable()+")")
	flags.StringVar(&c.server, "curve-server-key", "", "use CURVE at connected endpoints: public `key` of the server there, or a file with it (default $"+c.serverKeyVariable()+")")
}

// Security returns the configuration in the flags and the environment, for sockets
// that bind and for sockets that connect.
func (c *DeviceKeys) Security() (bound, connected sockets.Security, err error) {
	key, allow, server := flagOr(c.key, c.keyVariable()), flagOr(c.allow, c.allowVariable()), flagOr(c.server, c.serverKeyVariable())
	switch {
	case key == "" && allow == "" && server == "":
		return bound, connected, nil
	case key == "":
		return bound, connected, Fail(ExitUsage, "--curve-allow and --curve-server-key need --curve-key too: a file from %s keygen", c.Program)
	case allow == "" && server == "":
		return bound, connected, Fail(ExitUsage, "--curve-key needs --curve-allow or --curve-server-key too: the keys of the peers to accept, or of the server")
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
func (k Keys) adminVariable() string     { return k.variable("ADMIN") }

// client returns the security of a client with the key in file.
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

// server returns the security of a server with the key in a file. It accepts the keys
// in allow, which are read again at SIGHUP if that names a file, or any key, and in all cases those of administrators and its own, which the
// other server of a pair uses too.
func (k Keys) server(keyFile, allow string, admins ...zmtp.PublicKey) (s sockets.Security, err error) {
	pair, err := k.readKeyFile(keyFile)
	if err != nil {
		return s, err
	}
	s.CurveServer, s.CurveSecretKey = true, pair.Secret
	if allow == allowAny {
		return s, nil
	}
	file := &allowedFile{Keys: k, name: allow, more: append(admins, pair.Public)}
	if _, err := file.read(); err != nil {
		return s, Fail(ExitUsage, "--curve-allow: %w", err)
	}
	if _, err := os.Stat(allow); err == nil {
		hangups.add(file)
	}
	s.Authenticate = file.authenticate
	return s, nil
}

// flagOr returns the value of a flag or, if that is empty, of an environment variable.
func flagOr(value, variable string) string { return cmp.Or(value, os.Getenv(variable)) }

// writeKeyFile writes a new file that only its owner can read. It never replaces a
// file, because that might be a key.
func writeKeyFile(name string, pair zmtp.KeyPair) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(zmtp.AppendKeyFile(nil, pair))
	if err = errors.Join(err, f.Close()); err != nil {
		os.Remove(name)
	}
	return err
}

// readKeyFile reads a file written by writeKeyFile. Errors do not reveal its contents. It
// warns if other users can read or change the file.
func (k Keys) readKeyFile(name string) (zmtp.KeyPair, error) {
	var pair zmtp.KeyPair
	text, err := readFile(name)
	switch {
	case err == nil:
		warnings.aboutFile(k.Program, name)
	case HasKey(name):
		return pair, Fail(ExitUsage, "--curve-key takes the name of a file, not a key: other users can see the command line")
	case errors.Is(err, fs.ErrNotExist):
		return pair, Fail(ExitUsage, "there is no key file %s; create one with: %s keygen --out %s", name, k.Program, ShellWord(name))
	default:
		return pair, Fail(ExitUsage, "cannot read the key file: %w", err)
	}
	if pair, err = zmtp.ParseKeyFile([]byte(text)); err == nil {
		return pair, nil
	}
	return zmtp.KeyPair{}, Fail(ExitUsage, "%s is not a key file of %s keygen", name, k.Program)
}

// readFile reads a file of at most maxKeyFile bytes.
func readFile(name string) (string, error) {
	info, err := os.Stat(name)
	if err != nil {
		return "", err
	}
	if info.Size() > maxKeyFile {
		return "", fmt.Errorf("the file has %d bytes, which is too large for keys", info.Size())
	}
	text, err := os.ReadFile(name)
	return string(text), err
}

// publicKey returns the key in text, or in the file with that name.
func (k Keys) publicKey(text string) (zmtp.PublicKey, error) {
	keys, err := k.publicKeys(text)
	if err == nil && len(keys) != 1 {
		err = fmt.Errorf("%s has %d keys; one is needed", keyless(text), len(keys))
	}
	if err != nil {
		return zmtp.PublicKey{}, err
	}
	return keys[0], nil
}

// publicKeys returns the comma-separated keys in text, or the keys in the file with
// that name. Each line of the file begins with a key, which a space and a comment may
// follow. Empty lines and lines that begin with "# " are ignored. The file may also be
// a key file, of which the public key is used.
func (k Keys) publicKeys(text string) ([]zmtp.PublicKey, error) { return k.namedKeys(text, nil) }

// namedKeys is publicKeys, and stores the comments behind keys in names, unless that is nil.
func (k Keys) namedKeys(text string, names map[zmtp.PublicKey]string) ([]zmtp.PublicKey, error) {
	content, err := readFile(text) // first, because a file name can look like a key
	if err != nil {
		return keysOf(text, err)
	}
	if zmtp.IsKeyFile([]byte(content)) {
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
		word, comment, _ := strings.Cut(line, " ")
		key, err := zmtp.ParsePublicKey(word)
		if err != nil {
			return nil, fmt.Errorf("%s, line %d: not a public key of %d characters", keyless(text), number, zmtp.KeyText)
		}
		keys = append(keys, key)
		if comment = strings.TrimSpace(comment); comment != "" && names != nil {
			names[key] = comment
		}
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%s contains no key", keyless(text))
	}
	return keys, nil
}

// keysOf parses comma-separated keys. noFile is the reason why text is not a file.
func keysOf(text string, noFile error) ([]zmtp.PublicKey, error) {
	var keys []zmtp.PublicKey
	for one := range strings.SplitSeq(text, ",") {
		k, err := zmtp.ParsePublicKey(strings.TrimSpace(one))
		if err != nil {
			// Without the path, which would repeat the text.
			if number := syscall.Errno(0); errors.As(noFile, &number) {
				noFile = number
			}
			return nil, fmt.Errorf("%s is neither a comma-separated list of keys of %d characters nor a readable file: %w", keyless(text), zmtp.KeyText, noFile)
		}
		keys = append(keys, k)
	}
	return keys, nil
}
