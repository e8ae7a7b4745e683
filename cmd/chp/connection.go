package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"clustermap/chp"
	"clustermap/internal/command"
	"clustermap/internal/link"
	"clustermap/sockets"

	"github.com/spf13/cobra"
)

const (
	serverVariable = "CHP_SERVER"
	defaultServer  = "tcp://127.0.0.1:5556"

	// With a flag, other users of the machine could see the password.
	userVariable     = "CHP_USER"
	passwordVariable = "CHP_PASSWORD"

	// reachTimeout limits the time to reach a server if --timeout is not given. So a
	// command that waits longer for a whole map still reports a missing server soon.
	reachTimeout = 5 * time.Second
)

// connection holds the flags of a client command, such as --server and --timeout.
type connection struct {
	flags   []string
	context string
	curve   command.ClientKeys
	user    string // of PLAIN
	model   int    // 0 without registerModel
	maxMap  command.Bytes
	timeout time.Duration
	given   func() bool // reports whether --timeout was on the command line
	stderr  io.Writer

	list     []string         // of servers, set by that
	security sockets.Security // likewise
	news     chan string      // if not nil, receives a line when a server is lost, and when the client follows one again
}

// register adds the flags to cmd; timeout is the default of --timeout.
func (n *connection) register(cmd *cobra.Command, timeout time.Duration) {
	flags := cmd.Flags()
	flags.StringArrayVar(&n.flags, "server", nil,
		"server to use, tcp://HOST:PORT or ipc://PATH; repeat it to name backups in order (default $"+serverVariable+", comma-separated, or "+defaultServer+")")
	flags.StringVar(&n.context, "context", "", "`name` of a context with servers and keys; see chp context")
	n.maxMap = chp.DefaultMaxMapBytes
	flags.DurationVar(&n.timeout, "timeout", timeout, "how long to wait for the server")
	n.curve = command.ClientKeys{Keys: curve}
	n.curve.Register(flags)
	flags.StringVar(&n.user, "user", "", "`name` for a server with --plain; the password is in $"+passwordVariable+" (default $"+userVariable+")")
	n.given = func() bool { return flags.Changed("timeout") }
	n.stderr = errorOutput{cmd}
	if err := cmd.RegisterFlagCompletionFunc("context", func(cmd *cobra.Command, _ []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return completeContexts(cmd, nil, word)
	}); err != nil {
		panic(err) // the flag does not exist
	}
}

// registerModel adds the flag of commands that follow a server. It is called after
// register.
func (n *connection) registerModel(cmd *cobra.Command) {
	n.model = maxModel
	if timeout := cmd.Flags().Lookup("timeout"); n.timeout > reachTimeout {
		timeout.Usage += fmt.Sprintf("; without this flag, only %v to reach one", reachTimeout)
	}
	cmd.Flags().Var(&n.maxMap, "max-map", "largest total size of keys and values that the command takes from a server; 0 means no limit")
	cmd.Flags().Var((*command.Number)(&n.model), "server-model", "Clone model of the server, 1 to 6; 6 is the full protocol")
	command.Complete(cmd, "server-model", "1", "2", "3", "4", "5", "6")
}

// errorOutput writes to standard error of a command, which is set only when it runs.
type errorOutput struct{ cmd *cobra.Command }

// Write writes to standard error.
func (o errorOutput) Write(b []byte) (int, error) { return o.cmd.ErrOrStderr().Write(b) }

// servers returns the valid list of servers in order of preference. It also reads the
// keys. See useContext for where they come from.
func (n *connection) servers() ([]string, error) {
	if n.list != nil {
		return n.list, nil
	}
	if n.timeout <= 0 {
		return nil, fail(exitUsage, "--timeout %v: must be positive", n.timeout)
	}
	if n.model < 0 || n.model > maxModel {
		return nil, fail(exitUsage, "--server-model %d: must be 1 to %d", n.model, maxModel)
	}
	if err := n.useContext(); err != nil {
		return nil, err
	}
	list := n.flags
	if len(list) == 0 {
		for s := range strings.SplitSeq(os.Getenv(serverVariable), ",") {
			if s = strings.TrimSpace(s); s != "" {
				list = append(list, s)
			}
		}
	}
	list = complete(list)
	if len(list) == 0 {
		list = []string{defaultServer}
	}
	if err := checkServers(list); err != nil {
		return nil, err
	}
	var err error
	if n.security, err = n.curve.Security(); err != nil {
		return nil, err
	}
	if user := cmp.Or(n.user, os.Getenv(userVariable)); user != "" {
		if !n.security.CurveSecretKey.IsZero() {
			return nil, fail(exitUsage, "--user is for a server with --plain, and --curve-key for one with CURVE: use one of them")
		}
		n.security.PlainUsername, n.security.PlainPassword = user, os.Getenv(passwordVariable)
		if n.security.PlainPassword == "" {
			return nil, fail(exitUsage, "--user needs the password in $%s", passwordVariable)
		}
	}
	n.list = list
	return list, nil
}

// complete returns the servers of a list as endpoints: HOST:PORT stands for
// tcp://HOST:PORT.
func complete(list []string) []string {
	all := make([]string, len(list))
	for i, s := range list {
		all[i] = link.Complete(s)
	}
	return all
}

// checkServers returns an error if a server is invalid or listed twice.
func checkServers(list []string) error {
	for i, s := range list {
		if err := checkServer(s); err != nil {
			return err
		}
		if slices.Contains(list[:i], s) {
			return fail(exitUsage, "the server %s is listed twice", s)
		}
	}
	return nil
}

// checkServer returns an error unless s names a server that a command can reach.
func checkServer(s string) error {
	e, err := link.ParseServer(s, false)
	if err == nil && e.Scheme != link.Inproc {
		return nil
	}
	if !strings.Contains(s, "://") { // what link.Complete did not complete
		_, err = link.ParseServer(link.TCP+"://"+s, false)
	}
	reason := ""
	if wrong := (*link.EndpointError)(nil); errors.As(err, &wrong) {
		fault, _, _ := strings.Cut(wrong.Reason, ";") // the rest is advice for other endpoints
		reason = ": it " + fault
	}
	return fail(exitUsage, "%q is not a server%s; want tcp://HOST:PORT or HOST:PORT, with PORT from 1 to %d, such as %s, or ipc://PATH", s, reason, maxPort, defaultServer)
}

// read is like open for a command that needs a snapshot.
func (n *connection) read(ctx context.Context, o chp.ClientOptions) (*client, error) {
	if _, err := n.servers(); err != nil {
		return nil, err
	}
	if n.model == 1 {
		return nil, fail(exitUsage, "--server-model 1: servers of this model have no snapshots; use chp watch to see updates")
	}
	return n.open(ctx, o)
}

// fewKeys is the number of keys up to which openKeys copies only these: a client has a
// limited number of subtrees.
const fewKeys = 4096

// openKeys calls open, which is that of n or read, for a client that holds keys.
func (n *connection) openKeys(ctx context.Context, open func(context.Context, chp.ClientOptions) (*client, error), keys ...string) (*client, error) {
	var subtrees []string
	for _, key := range keys {
		subtree, err := subtreeOf(key)
		if err != nil {
			return nil, err
		}
		subtrees = append(subtrees, subtree)
	}
	if len(keys) > fewKeys {
		subtrees = nil
	}
	c, err := open(ctx, chp.ClientOptions{Subtrees: subtrees})
	if err == nil {
		n.warnOutside(keys...)
	}
	return c, err
}

// absentKey is a part of a key that nobody has.
var absentKey = strings.Repeat("0", 32)

// openNothing calls open, which is that of n or read, for a client that holds no part of the map. One that may read
// only some parts names a key there.
func (n *connection) openNothing(ctx context.Context, open func(context.Context, chp.ClientOptions) (*client, error)) (*client, error) {
	c, err := open(ctx, chp.ClientOptions{Subtrees: []string{"/" + absentKey}})
	if asDenied(err) != nil {
		if readable := n.readable(ctx); readable != "" {
			return open(ctx, chp.ClientOptions{Subtrees: []string{readable}})
		}
	}
	return c, err
}

// readable returns a key of which this client may know that nobody has it, or "".
func (n *connection) readable(ctx context.Context) string {
	var who chp.Identity
	err := n.firstAnswer(ctx, func(ctx context.Context, server string) (err error) {
		who, err = chp.WhoAmI(ctx, server, n.security)
		return err
	})
	if err != nil || len(who.Read) == 0 {
		return ""
	}
	if part := who.Read[0]; !strings.HasSuffix(part, "/") {
		return part // one key, which may be there
	} else if len(part)+len(absentKey) <= maxKey {
		return part + absentKey
	}
	return ""
}

// maxKey is the maximum size of a key in bytes (RFC 12).
const maxKey = 255

// subtreeOf returns the smallest subtree that contains key: key itself, unless it would
// not be a valid subtree because of its final slash.
func subtreeOf(key string) (string, error) {
	switch {
	case key == "":
		return "", fail(exitUsage, "the key is empty; a key has 1 to 255 bytes")
	case len(key) > maxKey:
		return "", fail(exitUsage, "the key %.40q… has %d bytes; a key has 1 to %d", key, len(key), maxKey)
	case strings.Contains(key, "\x00"):
		return "", fail(exitUsage, "the key %q contains NUL", key)
	case key == "KTHXBAI", strings.HasPrefix(key, "HUGZ"):
		return "", fail(exitUsage, "the key %q is reserved: a key must not be KTHXBAI or begin with HUGZ", key)
	case strings.HasSuffix(key, "/") && (key[0] != '/' || len(key) < 3):
		return "", nil // only the whole map contains it
	}
	return key, nil
}

// curve holds chp's names for texts about keys.
var curve = command.Keys{Program: "chp", Server: "chp serve"}

const (
	maxPort  = 65533 // the highest first port of a server, which also uses the next two
	maxModel = 6     // the last Clone model, the full protocol

	schemeIPC = "ipc://" // begins endpoints that are Unix sockets
)
