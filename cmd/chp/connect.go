package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"clustermap/chp"
	"clustermap/internal/command"
	"clustermap/sockets"
	"clustermap/zmtp"

	"github.com/spf13/cobra"
)

const (
	serverVariable = "CHP_SERVER"
	defaultServer  = "tcp://127.0.0.1:5556"

	// reachTimeout is how long a server may take to be there, where --timeout is
	// not given: a command that waits longer for a whole map still says soon
	// that nobody is there to send it.
	reachTimeout = 5 * time.Second
)

// connection is how a client command finds its server: the flags --server and
// --timeout, and the environment variable.
type connection struct {
	flags   []string
	curve   command.ClientKeys
	model   int // 0 without registerModel
	timeout time.Duration
	given   func() bool // tells whether --timeout was on the command line
	stderr  io.Writer

	security sockets.Security // after servers
	news     chan string      // if made, gets a line when a server is lost, and when one is followed again
}

// register adds the flags to cmd; timeout is the default of --timeout.
func (n *connection) register(cmd *cobra.Command, timeout time.Duration) {
	flags := cmd.Flags()
	flags.StringArrayVar(&n.flags, "server", nil,
		"server to use, tcp://HOST:PORT; repeat it to name backups in order (default $"+serverVariable+", comma-separated, or "+defaultServer+")")
	flags.DurationVar(&n.timeout, "timeout", timeout, "how long to wait for the server")
	n.curve = command.ClientKeys{Keys: curve}
	n.curve.Register(flags)
	n.given = func() bool { return flags.Changed("timeout") }
	n.stderr = errorOutput{cmd}
}

// registerModel adds the flag of commands that follow a server.
func (n *connection) registerModel(cmd *cobra.Command) {
	n.model = maxModel
	cmd.Flags().Var((*command.Number)(&n.model), "server-model", "Clone model of the server, 1 to 6; 6 is the full protocol")
}

// errorOutput is standard error of a command, which is known only when it runs.
type errorOutput struct{ cmd *cobra.Command }

// Write writes to standard error.
func (o errorOutput) Write(b []byte) (int, error) { return o.cmd.ErrOrStderr().Write(b) }

// servers returns the servers in order of preference, each checked. It also looks
// for keys.
func (n *connection) servers() ([]string, error) {
	if n.timeout <= 0 {
		return nil, fail(exitUsage, "--timeout %v: must be positive", n.timeout)
	}
	if n.model < 0 || n.model > maxModel {
		return nil, fail(exitUsage, "--server-model %d: must be 1 to %d", n.model, maxModel)
	}
	list := n.flags
	if len(list) == 0 {
		for s := range strings.SplitSeq(os.Getenv(serverVariable), ",") {
			if s = strings.TrimSpace(s); s != "" {
				list = append(list, s)
			}
		}
	}
	if len(list) == 0 {
		list = []string{defaultServer}
	}
	for i, s := range list {
		if err := checkServer(s); err != nil {
			return nil, err
		}
		if slices.Contains(list[:i], s) {
			return nil, fail(exitUsage, "the server %s is listed twice", s)
		}
	}
	var err error
	n.security, err = n.curve.Security()
	return list, err
}

// checkServer accepts tcp://HOST:PORT, PORT leaving room for the two above it.
func checkServer(s string) error {
	u, err := url.Parse(s)
	if err == nil && u.Scheme == "tcp" && u.User == nil && s == "tcp://"+u.Host {
		host, port, err := net.SplitHostPort(u.Host)
		if host == "*" {
			return fail(exitUsage, "%q is not a server: clients cannot connect to a wildcard address; give a host", s)
		}
		if n, e := strconv.Atoi(port); err == nil && e == nil && host != "" && 0 < n && n <= maxPort {
			return nil
		}
	}
	return fail(exitUsage, "%q is not a server: want tcp://HOST:PORT, with PORT from 1 to %d, such as %s", s, maxPort, defaultServer)
}

// client is a client of package chp and how long to wait for its server.
type client struct {
	*chp.Client
	connection *connection
	servers    []string
	connected  chan struct{} // closed once any server is connected
	gone       chan struct{} // closed once a server is lost that was followed, and none is followed for the timeout
	refused    chan struct{} // closed once every server has failed for a reason that stays: see hopeless
	nobody     chan struct{} // closed once no server was reached, and at least one may just not have started

	refuse, miss sync.Once // close the two

	mu       sync.Mutex
	failures map[string]error // why each server was not followed when it was last tried
	foreign  map[string]error // how each answered last that is no CHP server
}

// start returns a client that connects. The caller closes it.
func (n *connection) start(o chp.ClientOptions) (*client, error) {
	c := &client{
		connection: n, servers: o.Servers, failures: map[string]error{}, foreign: map[string]error{},
		connected: make(chan struct{}), gone: make(chan struct{}), refused: make(chan struct{}), nobody: make(chan struct{}),
	}
	o.Security, o.Model = n.security, chp.Model(n.model)
	var connect, lose sync.Once
	away := time.AfterFunc(n.timeout, func() { lose.Do(func() { close(c.gone) }) })
	away.Stop()                                 // until a server is lost
	active, losing, lost := false, false, false // of the goroutine that both functions below are called from
	o.OnFailure = func(server string, err error) {
		c.failed(server, err)
		if losing {
			losing, lost = false, true
			n.say("lost %s: %s; trying again", server, lossOf(err))
		}
	}
	o.OnState = func(state chp.State, server string) {
		if state != chp.StateInitial {
			connect.Do(func() { close(c.connected) })
		}
		if active && state != chp.StateActive {
			losing = true
			away.Reset(n.timeout)
		}
		if state == chp.StateActive {
			away.Stop()
		}
		if lost && state == chp.StateActive {
			lost = false
			n.say("following %s again", server)
		}
		active = state == chp.StateActive
	}
	var err error
	if c.Client, err = chp.NewClient(o); err != nil {
		return nil, fail(exitUsage, "%s", plain(err))
	}
	return c, nil
}

// say puts a line into news. It never waits: standard error may be a pipe that
// nobody reads.
func (n *connection) say(format string, a ...any) {
	select {
	case n.news <- fmt.Sprintf("chp: "+format, a...):
	default:
	}
}

// lossOf says in a few words why a server is no longer followed.
func lossOf(err error) string {
	var number syscall.Errno
	switch {
	case errors.Is(err, chp.ErrSilent), errors.Is(err, sockets.ErrHeartbeatTimeout):
		return "it is silent"
	case errors.As(err, &number):
		return number.Error()
	case errors.Is(err, io.EOF):
		return "it ended the connection"
	}
	return plain(err)
}

// open is start, and waits until the client is in sync.
func (n *connection) open(ctx context.Context, o chp.ClientOptions) (*client, error) {
	c, err := n.start(o)
	if err != nil {
		return nil, err
	}
	if err := c.wait(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// needSnapshots refuses a model whose servers send none, for a command that prints
// what is in the map.
func (n *connection) needSnapshots() error {
	if n.model == 1 {
		return fail(exitUsage, "--server-model 1: servers of this model have no snapshots; use chp watch to see updates")
	}
	return nil
}

// openKey is open for one key. What it refuses is the key, not the way in which
// it was called.
func (n *connection) openKey(ctx context.Context, servers []string, key string) (*client, error) {
	subtree, err := subtreeOf(key)
	if err != nil {
		return nil, err
	}
	c, err := n.open(ctx, chp.ClientOptions{Servers: servers, Subtrees: []string{subtree}})
	if coded := (*command.Error)(nil); errors.As(err, &coded) && coded.Code == exitUsage {
		coded.Code = exitRefused
	}
	return c, err
}

// maxKey is the most bytes of a key (RFC 12).
const maxKey = 255

// subtreeOf returns the least that a client can hold to hold key: key itself,
// unless it ends in a slash and so would be taken for a subtree.
func subtreeOf(key string) (string, error) {
	switch {
	case key == "":
		return "", fail(exitRefused, "the key is empty; a key has 1 to 255 bytes")
	case len(key) > maxKey:
		return "", fail(exitRefused, "the key %.40q… has %d bytes; a key has 1 to %d", key, len(key), maxKey)
	case strings.Contains(key, "\x00"):
		return "", fail(exitRefused, "the key %q contains NUL", key)
	case key == "KTHXBAI", strings.HasPrefix(key, "HUGZ"):
		return "", fail(exitRefused, "the key %q is reserved: a key must not be KTHXBAI or begin with HUGZ", key)
	case strings.HasSuffix(key, "/") && (key[0] != '/' || len(key) < 3):
		return "", nil // no subtree but the whole map holds it
	}
	return key, nil
}

// wait returns when the client is in sync, or says why it is not in time.
func (c *client) wait(ctx context.Context) error {
	limit := c.connection.timeout
	reach := limit
	if !c.connection.given() {
		reach = min(reach, reachTimeout)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	unreached := time.NewTimer(reach)
	defer unreached.Stop()
	for nobody := c.nobody; ; {
		select {
		case <-c.connected:
		case <-ctx.Done():
		case <-c.refused:
			return c.explain()
		case <-nobody:
			// Said at once: it may be a wrong port, or a server that is starting.
			fmt.Fprintf(c.connection.stderr, "chp: %s; waiting up to %v for a server to start\n", c.absent(), reach)
			nobody = nil
			continue
		case <-unreached.C:
			return c.noServer(reach)
		}
		break
	}
	err := c.WaitActive(ctx)
	switch {
	case !errors.Is(err, context.DeadlineExceeded):
		return err
	case c.standby():
		return c.noServer(limit)
	case c.State() == chp.StateSyncing && errors.Is(err, chp.ErrSilent):
		return fail(exitNoServer, "the server %s accepted the connections but sent nothing within %v", c.Server(), limit)
	case c.State() == chp.StateSyncing:
		return fail(exitNoServer, "the server %s did not send its complete map within %v; increase --timeout", c.Server(), limit)
	}
	return c.noServer(limit)
}

// failed takes note of why a server is not followed.
func (c *client) failed(server string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failures[server] = err
	if unlike(err) != "" {
		c.foreign[server] = err
	}
	if c.all(hopeless) {
		c.refuse.Do(func() { close(c.refused) })
	} else if c.all(func(err error) bool { return hopeless(err) || errors.Is(err, syscall.ECONNREFUSED) }) {
		c.miss.Do(func() { close(c.nobody) })
	}
}

// all says whether all servers have failed for a reason of a kind. mu must be
// held.
func (c *client) all(kind func(error) bool) bool {
	for _, server := range c.servers {
		if err := c.failures[server]; err == nil || !kind(err) {
			return false
		}
	}
	return true
}

// hopeless says that an attempt failed for a reason that stays: the server does not
// let this client in, or there is no such host.
func hopeless(err error) bool {
	return errors.Is(err, chp.ErrModel) || errors.Is(err, zmtp.ErrRefused) || errors.Is(err, zmtp.ErrMechanism) || noHost(err)
}

// noHost says that there is certainly no host of a name.
func noHost(err error) bool {
	var name *net.DNSError
	return errors.As(err, &name) && name.IsNotFound
}

// absent says which servers nobody listens at, and what is wrong with the others.
func (c *client) absent() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var nobody, others []string
	for _, server := range c.servers {
		err := c.failures[server]
		port := otherPort(server, err)
		switch {
		case !errors.Is(err, syscall.ECONNREFUSED):
			others = append(others, fmt.Sprintf("; %s: %s", server, reason(server, err)))
		case port != "":
			nobody = append(nobody, "port "+port+" of "+server)
		default:
			nobody = append(nobody, server)
		}
	}
	return "no server listens at " + strings.Join(nobody, ", ") + " (connection refused)" + strings.Join(others, "")
}

// standby says whether the last answer of a server was that it is not active.
func (c *client) standby() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.servers, func(server string) bool { return errors.Is(c.failures[server], chp.ErrStandby) })
}

// explain says why no server lets us in, and what to do about the first that
// exists.
func (c *client) explain() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	server := c.servers[0]
	for _, s := range c.servers {
		if !noHost(c.failures[s]) {
			server = s
			break
		}
	}
	key := c.connection.security.CurveSecretKey
	switch {
	case errors.Is(c.failures[server], chp.ErrModel):
		return fail(exitRefused, "the server %s uses another protocol (%s); set --server-model", server, plain(c.failures[server]))
	case noHost(c.failures[server]):
		return fail(exitNoServer, "cannot reach %s: no such host", strings.Join(c.servers, ", "))
	case errors.Is(c.failures[server], zmtp.ErrMechanism) && key.IsZero():
		return fail(exitRefused, "the server %s requires CURVE; use --curve-key and --curve-server-key", server)
	case errors.Is(c.failures[server], zmtp.ErrMechanism):
		return fail(exitRefused, "the server %s does not use CURVE; omit --curve-key and --curve-server-key, or start it with --curve-key", server)
	case key.IsZero():
		return fail(exitRefused, "the server %s refused the connection: %s", server, plain(c.failures[server]))
	}
	return fail(exitRefused, "the server %s does not accept this key; start it with '%s' in its --curve-allow", server, key.Public())
}

// noServer says that no server was there in time, and why each was not.
func (c *client) noServer(waited time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	// A server that the client takes for another one's ends the connection
	// without a word.
	hint := ""
	if !c.connection.security.CurveSecretKey.IsZero() {
		hint = "; if a server runs there, compare --curve-server-key with the key that it prints"
	}
	if len(c.servers) == 1 {
		server := c.servers[0]
		advice := "start one with: chp serve"
		if errors.Is(c.failures[server], chp.ErrStandby) {
			return fail(exitNoServer, "the server %s was not active within %v: %s; add --server for the other server of the pair", server, waited, c.why(server))
		}
		if c.foreign[server] != nil {
			advice = "is it the first port of a server?"
		}
		return fail(exitNoServer, "no CHP server answered at %s within %v: %s; %s%s", server, waited, c.why(server), advice, hint)
	}
	var each []string
	for _, server := range c.servers {
		each = append(each, server+" ("+c.why(server)+")")
	}
	return fail(exitNoServer, "no CHP server answered within %v at %s; start one with: chp serve%s", waited, strings.Join(each, ", "), hint)
}

// why returns the most telling reason for which a server was not reached. mu must
// be held.
func (c *client) why(server string) string {
	if err := c.foreign[server]; err != nil {
		return reason(server, err) // it tells more than, say, a reset that came later
	}
	return reason(server, c.failures[server])
}

// reason says in a few words why a server was not reached; nil means that the
// attempt was still going on.
func reason(server string, err error) string {
	var number syscall.Errno
	var name *net.DNSError
	text := "no answer"
	switch {
	case errors.Is(err, chp.ErrStandby):
		return "it is not the active server of its pair"
	case unlike(err) != "":
		text = unlike(err)
	case errors.As(err, &number):
		text = number.Error()
	case errors.As(err, &name):
		return "cannot look up its host: " + name.Err
	case errors.Is(err, io.EOF):
		text = "the peer closes the connection"
	}
	if port := otherPort(server, err); port != "" {
		text += " at port " + port
	}
	return text
}

// unlike says how an error shows that the peer is no CHP server, or "" if it does
// not.
func unlike(err error) string {
	switch {
	case errors.Is(err, zmtp.ErrVersion), errors.Is(err, zmtp.ErrMalformed):
		return "the peer does not speak ZMTP"
	case errors.Is(err, zmtp.ErrIncompatible):
		return "the peer is not a CHP server: it has another socket type"
	}
	return ""
}

// otherPort returns the port of the connection that an error is about, or "" if it
// is not known or the one in the server's name.
func otherPort(server string, err error) string {
	var dial *net.OpError
	var peer *sockets.PeerError
	address := ""
	switch {
	case errors.As(err, &peer):
		address = peer.Remote
	case errors.As(err, &dial) && dial.Addr != nil:
		address = dial.Addr.String()
	}
	_, port, _ := net.SplitHostPort(address)
	if strings.HasSuffix(server, ":"+port) {
		return ""
	}
	return port
}

// confirm turns the outcome of an update into an error that says what is known
// about it.
func (c *client) confirm(err error) error {
	const unknown = "the update may or may not have been stored: check with chp get, or repeat it"
	switch {
	case errors.Is(err, chp.ErrUncertain):
		return fail(exitNoServer, "lost the connection before the server confirmed; %s", unknown)
	case errors.Is(err, context.DeadlineExceeded):
		return fail(exitNoServer, "the server did not confirm within %v; %s", c.connection.timeout, unknown)
	case errors.Is(err, &chp.MessageError{Reason: chp.ReasonValueTooLarge}):
		limit := ""
		if refusal := (*chp.MessageError)(nil); errors.As(err, &refusal) && refusal.Detail != "" {
			limit = " (" + refusal.Detail + ")"
		}
		return fail(exitRefused, "the value is larger than the server %s accepts%s; start it with a larger --max-value-size", c.Server(), limit)
	}
	return refused(err)
}

// refused gives an error of package chp the exit code of a refusal. Errors that
// have a code, and those of contexts, stay as they are.
func refused(err error) error {
	var coded *command.Error
	if err == nil || errors.As(err, &coded) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fail(exitRefused, "%s", plain(err))
}

// plain is the text of an error without the package's name in it: the command
// has the same, and puts it in front once.
func plain(err error) string { return strings.ReplaceAll(err.Error(), "chp: ", "") }
