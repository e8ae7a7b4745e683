package command

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"iter"
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

// maxServerKeys bounds the keys of a server: each handshake tries them one after the other.
const maxServerKeys = 16

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
	key     string
	servers []string
}

// Register adds --curve-key and --curve-server-key.
func (c *ClientKeys) Register(flags *pflag.FlagSet) {
	flags.StringVar(&c.key, "curve-key", "", "`file` with this client's key, from "+c.Program+" keygen, for a server with CURVE (default $"+c.keyVariable()+")")
	serverKeyFlag(flags, &c.servers, "public `key` of that server, or a file with it; repeat it for others that it may have, such as the next one (default $"+c.serverKeyVariable()+")")
}

// serverKeyFlag adds --curve-server-key.
func serverKeyFlag(flags *pflag.FlagSet, servers *[]string, usage string) {
	flags.StringArrayVar(servers, "curve-server-key", nil, usage)
	flags.Lookup("curve-server-key").DefValue = "" // the help does not show it
}

// UseDefaults sets the values of flags that are not on the command line. Both are
// stronger than the environment.
func (c *ClientKeys) UseDefaults(key, server string) {
	if c.key = cmp.Or(c.key, key); len(c.servers) == 0 && server != "" {
		c.servers = []string{server}
	}
}

// Given reports whether one of the flags is on the command line.
func (c *ClientKeys) Given() bool { return c.key != "" || len(c.servers) > 0 }

// Environment returns the variables with the keys, for the same program as a child process.
func (c *ClientKeys) Environment() []string {
	var env []string
	servers := strings.Join(c.servers, ",")
	if len(c.servers) > 1 { // some may be files
		if keys, err := c.serverKeys(c.servers); err == nil {
			servers = keysText(keys)
		}
	}
	for variable, value := range map[string]string{c.keyVariable(): c.key, c.serverKeyVariable(): servers} {
		if value != "" {
			env = append(env, variable+"="+value)
		}
	}
	return env
}

// Security returns the configuration in the flags and the environment.
func (c *ClientKeys) Security() (s sockets.Security, err error) {
	key, servers := flagOr(c.key, c.keyVariable()), flagsOr(c.servers, c.serverKeyVariable())
	switch {
	case key == "" && len(servers) == 0:
		return s, nil
	case len(servers) == 0:
		return s, Fail(ExitUsage, "--curve-key needs --curve-server-key too: the public key that %s prints", c.Server)
	case key == "":
		return s, Fail(ExitUsage, "--curve-server-key needs --curve-key too: a file from %s keygen", c.Program)
	}
	return c.client(key, servers)
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

	// Again says that the program reads its keys and those of administrators again: see Follow.
	Again bool

	files *serverFiles // after Security, with CURVE
}

// Register adds --curve-key and --curve-allow.
func (c *ServerKeys) Register(flags *pflag.FlagSet) {
	flags.StringArrayVar(&c.keys, "curve-key", nil, "`file` with the server's key, from "+c.Program+" keygen: require CURVE; it can have several keys, one behind the other, and the flag can be repeated: clients may know any of them (default $"+c.keyVariable()+")")
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
	keys := flagsOr(c.keys, c.keyVariable())
	key, allow := strings.Join(keys, ", "), flagOr(c.allow, c.allowVariable())
	switch {
	case key == "" && c.admin != "":
		return s, Fail(ExitUsage, "--curve-admin needs --curve-key too: a file from %s keygen", c.Program)
	case c.Others && allow != "":
		return s, Fail(ExitUsage, "--curve-allow does not go with --access: that file has the keys of the clients to accept")
	case key == "" && allow == "":
		return s, nil
	case c.Others:
		allow = allowAny
	case key == "":
		return s, Fail(ExitUsage, "--curve-allow needs --curve-key too: a file from %s keygen", c.Program)
	case allow == "":
		return s, Fail(ExitUsage, "--curve-key needs --curve-allow too: the public keys of the clients to accept, comma-separated or in a file, or %s", allowAny)
	}
	if c.Again {
		c.readAgain(keys)
	}
	admins, err := c.Admins()
	if err != nil {
		return s, err
	}
	c.files, err = c.Keys.server(keys, allow, admins)
	if err != nil {
		return s, err
	}
	return c.files.security(), nil
}

// Accepts reports whether a client with a key is accepted now, as --curve-allow and the other files say.
func (c *ServerKeys) Accepts(key zmtp.PublicKey) bool { return c.files.current.Load().accepts(key) }

// Follow calls f with the server's keys and those of administrators: now, and each time when these or those of clients were read
// again. It is for a program with Again. Without CURVE it does nothing.
func (c *ServerKeys) Follow(f func(own []zmtp.SecretKey, admins []zmtp.PublicKey) error) error {
	if c.files == nil {
		return nil
	}
	return c.files.follow(f)
}

// readAgain makes the program read the keys of the server and of administrators again.
func (c *ServerKeys) readAgain(names []string) {
	change := func(how func(*lists)) func() error { return func() error { return c.files.change(how) } }
	AddSource(Source{Flag: "curve-key", Files: names, Stays: "the server's keys stay as they were", Load: func() (func() error, string, error) {
		pairs, err := c.readKeyFiles(names)
		return change(func(l *lists) { l.own = pairs }), keyCount(pairs), err
	}})
	if name := flagOr(c.admin, c.adminVariable()); isFile(name) {
		AddSource(Source{Flag: "curve-admin", Files: []string{name}, Stays: "the administrators stay as they were", Load: func() (func() error, string, error) {
			admins, err := c.Admins()
			return change(func(l *lists) { l.admins = admins }), Count(len(admins), "key"), err
		}})
	}
}

// keyCount says how many keys a server has, and which is the first.
func keyCount(pairs []zmtp.KeyPair) string {
	if len(pairs) == 0 {
		return ""
	}
	return Count(len(pairs), "key") + ", of which clients are shown " + pairs[0].Public.String()
}

// DeviceKeys holds the flags of a command that may both bind and connect: one key for
// all its sockets, the keys of the peers that it accepts where it binds, and the
// server's key where it connects.
type DeviceKeys struct {
	Keys
	key, allow string
	servers    []string
}

// Register adds --curve-key, --curve-allow and --curve-server-key.
func (c *DeviceKeys) Register(flags *pflag.FlagSet) {
	flags.StringVar(&c.key, "curve-key", "", "`file` with this device's key, from "+c.Program+" keygen (default $"+c.keyVariable()+")")
	flags.StringVar(&c.allow, "curve-allow", "", "require CURVE at bound endpoints: public `keys` of the peers to accept, comma-separated, or a file with one per line, which is read again at SIGHUP; or "+allowAny+" (default $"+c.allowVariable()+")")
	serverKeyFlag(flags, &c.servers, "use CURVE at connected endpoints: public `key` of the server there, or a file with it; repeat it for others that it may have (default $"+c.serverKeyVariable()+")")
}

// Security returns the configuration in the flags and the environment, for sockets
// that bind and for sockets that connect.
func (c *DeviceKeys) Security() (bound, connected sockets.Security, err error) {
	key, allow, servers := flagOr(c.key, c.keyVariable()), flagOr(c.allow, c.allowVariable()), flagsOr(c.servers, c.serverKeyVariable())
	switch {
	case key == "" && allow == "" && len(servers) == 0:
		return bound, connected, nil
	case key == "":
		return bound, connected, Fail(ExitUsage, "--curve-allow and --curve-server-key need --curve-key too: a file from %s keygen", c.Program)
	case allow == "" && len(servers) == 0:
		return bound, connected, Fail(ExitUsage, "--curve-key needs --curve-allow or --curve-server-key too: the keys of the peers to accept, or of the server")
	}
	if allow != "" {
		files, err := c.Keys.server([]string{key}, allow, nil)
		if err != nil {
			return bound, connected, err
		}
		bound = files.security()
	}
	if len(servers) > 0 {
		connected, err = c.client(key, servers)
	}
	return bound, connected, err
}

func (k Keys) variable(name string) string { return strings.ToUpper(k.Program) + "_CURVE_" + name }

func (k Keys) keyVariable() string       { return k.variable("KEY") }
func (k Keys) serverKeyVariable() string { return k.variable("SERVER_KEY") }
func (k Keys) allowVariable() string     { return k.variable("ALLOW") }
func (k Keys) adminVariable() string     { return k.variable("ADMIN") }

// client returns the security of a client with the key in file, of a server that has one of some keys.
func (k Keys) client(file string, servers []string) (s sockets.Security, err error) {
	pair, err := k.readKeyFile(file)
	if err != nil {
		return s, err
	}
	keys, err := k.serverKeys(servers)
	if err != nil {
		return s, Fail(ExitUsage, "--curve-server-key: %w", err)
	}
	s.CurveSecretKey, s.CurveServerKey, s.CurveMoreServerKeys = pair.Secret, keys[0], keys[1:]
	return s, nil
}

// serverKeys returns the keys in texts and in files with such names.
func (k Keys) serverKeys(texts []string) (all []zmtp.PublicKey, err error) {
	for _, text := range texts {
		keys, err := k.publicKeys(text)
		if err != nil {
			return nil, err
		}
		for _, key := range keys {
			if !slices.Contains(all, key) {
				all = append(all, key)
			}
		}
	}
	if len(all) > maxServerKeys {
		return nil, fmt.Errorf("there are %d keys; the most is %d", len(all), maxServerKeys)
	}
	return all, nil
}

// keysText is the reverse of publicKeys.
func keysText(keys []zmtp.PublicKey) string {
	var all []string
	for _, key := range keys {
		all = append(all, key.String())
	}
	return strings.Join(all, ",")
}

// flagOr returns the value of a flag or, if that is empty, of an environment variable.
func flagOr(value, variable string) string { return cmp.Or(value, os.Getenv(variable)) }

// flagsOr is flagOr for a flag that can be repeated.
func flagsOr(values []string, variable string) []string {
	if value := os.Getenv(variable); len(values) == 0 && value != "" {
		return []string{value}
	}
	return values
}

// isFile reports whether a text, which may be keys, is the name of a file.
func isFile(text string) bool {
	_, err := os.Stat(text)
	return err == nil
}

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

// readKeyFile reads a file written by writeKeyFile, and returns its first key.
func (k Keys) readKeyFile(name string) (zmtp.KeyPair, error) {
	pairs, err := k.readKeyFiles([]string{name})
	if err != nil {
		return zmtp.KeyPair{}, err
	}
	return pairs[0], nil
}

// readKeyFiles reads files written by writeKeyFile, each with one key or with several, one behind the other.
func (k Keys) readKeyFiles(names []string) (all []zmtp.KeyPair, err error) {
	for _, name := range names {
		pairs, err := k.readPairs(name)
		if err != nil {
			return nil, err
		}
		for _, pair := range pairs {
			if !slices.ContainsFunc(all, func(p zmtp.KeyPair) bool { return p.Public == pair.Public }) {
				all = append(all, pair)
			}
		}
	}
	if len(all) > maxServerKeys {
		return nil, Fail(ExitUsage, "--curve-key: there are %d keys; the most is %d", len(all), maxServerKeys)
	}
	return all, nil
}

// readPairs reads one file with keys. Errors do not reveal its contents. It
// warns if other users can read or change the file.
func (k Keys) readPairs(name string) (pairs []zmtp.KeyPair, err error) {
	text, err := readFile(name)
	switch {
	case err == nil:
		warnings.aboutFile(k.Program, name)
	case HasKey(name):
		return nil, Fail(ExitUsage, "--curve-key takes the name of a file, not a key: other users can see the command line")
	case errors.Is(err, fs.ErrNotExist):
		return nil, Fail(ExitUsage, "there is no key file %s; create one with: %s keygen --out %s", name, k.Program, ShellWord(name))
	default:
		return nil, Fail(ExitUsage, "cannot read the key file: %w", err)
	}
	for one := range keyParts(text) {
		pair, err := zmtp.ParseKeyFile([]byte(one))
		if err != nil {
			return nil, Fail(ExitUsage, "%s is not a key file of %s keygen", name, k.Program)
		}
		pairs = append(pairs, pair)
	}
	return pairs, nil
}

// keyParts yields the parts of a text that begin as a key file does: at least one, of which the first may not.
func keyParts(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		start, at := 0, 0
		for line := range strings.Lines(text) {
			if at > start && zmtp.IsKeyFile([]byte(line)) {
				if !yield(text[start:at]) {
					return
				}
				start = at
			}
			at += len(line)
		}
		yield(text[start:])
	}
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

// publicKeys returns the comma-separated keys in text, or the keys in the file with
// that name. Each line of the file begins with a key, which a space and a comment may
// follow. Empty lines and lines that begin with "# " are ignored. The file may also be
// a key file, of which the public key is used.
func (k Keys) publicKeys(text string) ([]zmtp.PublicKey, error) { return k.namedKeys(text, nil) }

// namedKeys is publicKeys, and stores the comments behind keys in names, unless that is nil.
func (k Keys) namedKeys(text string, names map[zmtp.PublicKey]string) (keys []zmtp.PublicKey, err error) {
	content, err := readFile(text) // first, because a file name can look like a key
	if err != nil {
		return keysOf(text, err)
	}
	if zmtp.IsKeyFile([]byte(content)) {
		pairs, err := k.readPairs(text)
		for _, pair := range pairs {
			keys = append(keys, pair.Public)
		}
		return keys, err
	}
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
