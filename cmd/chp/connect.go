package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"clustermap/chp"
	"clustermap/internal/command"
	"clustermap/internal/link"
	"clustermap/internal/visible"
	"clustermap/sockets"
	"clustermap/zmtp"

	"github.com/spf13/cobra"
)

const (
	serverVariable = "CHP_SERVER"
	defaultServer  = "tcp://127.0.0.1:5556"

	// reachTimeout limits the time to reach a server if --timeout is not given. So a
	// command that waits longer for a whole map still reports a missing server soon.
	reachTimeout = 5 * time.Second
)

// connection holds the flags of a client command, such as --server and --timeout.
type connection struct {
	flags   []string
	context string
	curve   command.ClientKeys
	model   int // 0 without registerModel
	maxMap  command.Bytes
	timeout time.Duration
	given   func() bool // reports whether --timeout was on the command line
	stderr  io.Writer

	security sockets.Security // set by servers
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
	n.security, err = n.curve.Security()
	return list, err
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
	reason := ""
	if wrong := (*link.EndpointError)(nil); errors.As(err, &wrong) {
		reason = ": it " + wrong.Reason
	}
	return fail(exitUsage, "%q is not a server%s; want tcp://HOST:PORT or HOST:PORT, with PORT from 1 to %d, such as %s, or ipc://PATH", s, reason, maxPort, defaultServer)
}

// client is a client of package chp that explains why it has no server.
type client struct {
	*chp.Client
	connection *connection
	servers    []string
	connected  chan struct{} // closed when any server is connected
	gone       chan struct{} // closed when the client has followed no server for the timeout after it lost one
	refused    chan struct{} // closed when every server has failed for a permanent reason; see hopeless
	nobody     chan struct{} // closed when every server has failed, at least one because it may not have started yet

	refuse, miss sync.Once // close the two

	mu       sync.Mutex
	failures map[string]error // the last error of each server
	foreign  map[string]error // the last error of each server that is not a CHP server
}

// start returns a client that connects. The caller closes it.
func (n *connection) start(o chp.ClientOptions) (*client, error) {
	c := &client{
		connection: n, servers: o.Servers, failures: map[string]error{}, foreign: map[string]error{},
		connected: make(chan struct{}), gone: make(chan struct{}), refused: make(chan struct{}), nobody: make(chan struct{}),
	}
	o.Security, o.Model = n.security, chp.Model(n.model)
	if o.MaxMapBytes = int64(n.maxMap); o.MaxMapBytes == 0 {
		o.MaxMapBytes = -1
	}
	o.Logger = slog.New(slog.DiscardHandler) // the command says it itself
	var connect, lose sync.Once
	away := time.AfterFunc(n.timeout, func() { lose.Do(func() { close(c.gone) }) })
	away.Stop()                                 // until a server is lost
	active, losing, lost := false, false, false // used only by the goroutine that calls both functions
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
	c.Client, err = chp.NewClient(o)
	if option := (*chp.OptionError)(nil); errors.As(err, &option) && option.Field == "Subtrees" {
		return nil, fail(exitUsage, "subtree %s", option.Reason)
	}
	if err != nil {
		return nil, fail(exitUsage, "%s", plain(err))
	}
	return c, nil
}

// say sends a line to news. It never waits, because standard error may be a pipe without
// a reader.
func (n *connection) say(format string, a ...any) {
	select {
	case n.news <- "chp: " + visible.String(fmt.Sprintf(format, a...)):
	default:
	}
}

// lossOf describes why the client has lost a server.
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

// open calls start and waits until the client is in sync.
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

// needSnapshots returns an error if servers of the model send no snapshots.
func (n *connection) needSnapshots() error {
	if n.model == 1 {
		return fail(exitUsage, "--server-model 1: servers of this model have no snapshots; use chp watch to see updates")
	}
	return nil
}

// fewKeys is the number of keys up to which openKeys copies only these: a client has a
// limited number of subtrees.
const fewKeys = 4096

// openKeys is like open for a client that holds keys.
func (n *connection) openKeys(ctx context.Context, servers []string, keys ...string) (*client, error) {
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
	c, err := n.open(ctx, chp.ClientOptions{Servers: servers, Subtrees: subtrees})
	if err == nil {
		n.warnOutside(keys...)
	}
	return c, err
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

// wait waits until the client is in sync. After the timeout, the error explains why not.
func (c *client) wait(ctx context.Context) error {
	limit := c.connection.timeout
	reach := limit
	if !c.connection.given() {
		reach = min(reach, reachTimeout)
	}
	calling := ctx
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
			// The port may be wrong, or the server may still be starting.
			fmt.Fprintf(c.connection.stderr, "chp: %s; waiting up to %v for a server to start\n", visible.String(c.absent()), reach)
			nobody = nil
			continue
		case <-unreached.C:
			return c.noServer(calling, reach)
		}
		break
	}
	// A map that is too large is noticed only now.
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		select {
		case <-c.refused:
			stop()
		case <-waiting.Done():
		}
	}()
	err := c.WaitActive(waiting)
	switch {
	case errors.Is(err, context.Canceled) && ctx.Err() == nil:
		return c.explain()
	case !errors.Is(err, context.DeadlineExceeded):
		return err
	case c.standby():
		return c.noServer(calling, limit)
	case c.State() == chp.StateSyncing && errors.Is(err, chp.ErrSilent):
		return fail(exitNoServer, "the server %s accepted the connections but sent nothing within %v", c.Server(), limit)
	case c.State() == chp.StateSyncing:
		return fail(exitNoServer, "the server %s did not send its complete map within %v; increase --timeout", c.Server(), limit)
	}
	return c.noServer(calling, limit)
}

// failed records why the client does not follow a server.
func (c *client) failed(server string, err error) {
	err = atFirstPort(server, err)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failures[server] = err
	if unlike(err) != "" {
		c.foreign[server] = err
	}
	if c.all(hopeless) {
		c.refuse.Do(func() { close(c.refused) })
	} else if c.all(func(err error) bool { return hopeless(err) || nobodyListens(err) }) {
		c.miss.Do(func() { close(c.nobody) })
	}
}

// all reports whether all servers have failed with an error of a kind. mu must be held.
func (c *client) all(kind func(error) bool) bool {
	for _, server := range c.servers {
		if err := c.failures[server]; err == nil || !kind(err) {
			return false
		}
	}
	return true
}

// hopeless reports whether an error is permanent: the server refuses this client or has
// another key, its map is too large, or the host does not exist.
func hopeless(err error) bool {
	return errors.Is(err, chp.ErrModel) || errors.Is(err, zmtp.ErrRefused) || errors.Is(err, zmtp.ErrMechanism) ||
		errors.Is(err, sockets.ErrServerKey) || errors.Is(err, chp.ErrMapTooLarge) || noHost(err)
}

// nobodyListens reports whether an error means that no program listens at an endpoint.
func nobodyListens(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT) // no such file: ipc
}

// noHost reports whether an error means that a host does not exist.
func noHost(err error) bool {
	var name *net.DNSError
	return errors.As(err, &name) && name.IsNotFound
}

// absent describes at which addresses no server listens, and the errors of the others.
func (c *client) absent() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var nobody, all []string
	for _, server := range c.servers {
		err := c.failures[server]
		if nobodyListens(err) && otherPort(server, err) == "" {
			nobody = append(nobody, server+" ("+reason(server, err)+")")
		} else {
			all = append(all, server+": "+reason(server, err))
		}
	}
	if len(nobody) > 0 {
		all = slices.Insert(all, 0, "no server listens at "+strings.Join(nobody, ", "))
	}
	return strings.Join(all, "; ")
}

// standby reports whether a server has answered last that it is not active.
func (c *client) standby() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.standbys()) > 0
}

// standbys returns the servers that have answered last that they are not active. mu must
// be held.
func (c *client) standbys() []string {
	var list []string
	for _, server := range c.servers {
		if errors.Is(c.failures[server], chp.ErrStandby) {
			list = append(list, server)
		}
	}
	return list
}

// explain returns the error if all servers have failed permanently, with advice about the
// first one that exists.
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
	var model *chp.ModelError
	switch {
	case errors.As(c.failures[server], &model):
		return fail(exitRefused, "the server %s is of Clone model %d; set --server-model %d", server, model.Server, model.Server)
	case errors.Is(c.failures[server], chp.ErrMapTooLarge):
		return fail(exitRefused, "the map of the server %s has more than %s of keys and values; increase --max-map", server, c.connection.maxMap.String())
	case noHost(c.failures[server]):
		return fail(exitNoServer, "cannot reach %s: no such host", strings.Join(c.servers, ", "))
	}
	return fail(exitRefused, "the server %s %s", server, c.connection.refusal(c.failures[server]))
}

// refusal describes why a server refuses this client with ErrMechanism or ErrRefused.
func (n *connection) refusal(err error) string {
	key := n.security.CurveSecretKey
	denial := (*zmtp.ProtocolError)(nil)
	switch {
	case errors.Is(err, zmtp.ErrMechanism) && key.IsZero():
		return "requires CURVE; use --curve-key and --curve-server-key"
	case errors.Is(err, zmtp.ErrMechanism):
		return "does not use CURVE; omit --curve-key and --curve-server-key, or start it with --curve-key"
	case errors.Is(err, sockets.ErrServerKey):
		return "cannot read what this client sends: compare --curve-server-key with the key that it prints"
	case key.IsZero():
		return "refused the connection: " + plain(err)
	case errors.As(err, &denial) && denial.Status() == 0: // it is not about the key
		return "refused the connection, as a port does that is not the first of a server's three: " + plain(err)
	}
	return fmt.Sprintf("does not accept this key; start it with '%s' in its --curve-allow", key.Public())
}

// noServer returns the error if no server has answered in time, with the reason for each.
func (c *client) noServer(ctx context.Context, waited time.Duration) error {
	promote := c.promotable(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	// With a wrong --curve-server-key, the server just closes the connection.
	hint := ""
	if !c.connection.security.CurveSecretKey.IsZero() {
		hint = "; if a server runs there, compare --curve-server-key with the key that it prints"
	}
	if len(c.servers) == 1 {
		server := c.servers[0]
		advice := "start one with: " + serveCommand(server)
		if errors.Is(c.failures[server], chp.ErrStandby) {
			return fail(exitNoServer, "the server %s was not active within %v: %s; add --server for the other server of the pair%s", server, waited, c.why(server), promote)
		}
		if mixed := (*chp.MixedError)(nil); errors.As(c.failures[server], &mixed) {
			return fail(exitNoServer, "%s was not followed within %v: %s", server, waited, c.why(server))
		}
		if c.foreign[server] != nil {
			advice = "is it the first port of a server?"
		}
		return fail(exitNoServer, "no CHP server answered at %s within %v: %s; %s%s", server, waited, c.why(server), advice, hint)
	}
	var each []string
	standbys := c.standbys()
	for _, server := range c.servers {
		if !slices.Contains(standbys, server) {
			each = append(each, server+" ("+c.why(server)+")")
		}
	}
	if len(standbys) == len(c.servers) {
		return fail(exitNoServer, "no server was active within %v: %s answered that they are standbys; chp status shows the state of each%s", waited, strings.Join(standbys, " and "), promote)
	}
	if len(standbys) > 0 {
		return fail(exitNoServer, "no active server answered within %v at %s; %s answered that it is a standby%s%s", waited, strings.Join(each, ", "), strings.Join(standbys, " and "), hint, promote)
	}
	return fail(exitNoServer, "no CHP server answered within %v at %s; start one with: %s%s", waited, strings.Join(each, ", "), serveCommand(c.servers[0]), hint)
}

// serveCommand returns the command that starts a server, with the flags for its endpoint
// if that is on this machine.
func serveCommand(server string) string {
	text := "chp serve"
	if server == defaultServer {
		return text
	}
	if strings.HasPrefix(server, schemeIPC) {
		return text + " --endpoint " + command.ShellWord(server)
	}
	e, err := link.Parse(server, false)
	ip := net.ParseIP(e.Host())
	if err != nil || e.Host() != "localhost" && !ip.IsLoopback() {
		return text
	}
	if ip != nil && e.Host() != "127.0.0.1" {
		text += " --host " + e.Host()
	}
	if e.Port() != chp.DefaultPort {
		text += " --port " + strconv.Itoa(e.Port())
	}
	return text
}

// why returns the most useful reason for which a server was not reached. mu must be held.
func (c *client) why(server string) string {
	if err := c.foreign[server]; err != nil {
		return reason(server, err) // more useful than, for example, a later reset
	}
	return reason(server, c.failures[server])
}

// reason describes why a server was not reached. If err is nil, the attempt was still in
// progress.
func reason(server string, err error) string {
	var number syscall.Errno
	var name *net.DNSError
	var mixed *chp.MixedError
	text := "no answer"
	switch {
	case errors.Is(err, chp.ErrStandby):
		return "it is not the active server of its pair"
	case errors.As(err, &mixed):
		return fmt.Sprintf("its ports belong to different servers, at %s and %s; connect to one of them, not through a balancer", mixed.Remote, mixed.Other)
	case unlike(err) != "":
		text = unlike(err)
	case errors.As(err, &number):
		text = number.Error()
	case errors.As(err, &name):
		return "cannot look up its host: " + name.Err
	case errors.Is(err, io.EOF):
		text = "the peer closes the connection"
	}
	if endpoint := otherPort(server, err); endpoint != "" {
		text += " at " + endpoint
		if first := (*firstPortError)(nil); errors.As(err, &first) {
			text += ", and a server needs three ports"
		}
	}
	return text
}

// firstPortError is the error of another port of a server whose first port accepts
// connections, at which no server listens.
type firstPortError struct{ error }

func (e *firstPortError) Unwrap() error { return e.error }

// firstPortTimeout limits the connection that atFirstPort makes.
const firstPortTimeout = time.Second

// atFirstPort returns the error that tells most about a server. A client connects to all
// ports at the same time, so chance decides which refusal comes first; if no server runs,
// that of the first port is returned, even if another came first.
func atFirstPort(server string, err error) error {
	if !nobodyListens(err) || otherPort(server, err) == "" {
		return err
	}
	network, address, _ := strings.Cut(server, "://")
	if network == "ipc" {
		network = "unix"
	}
	c, dialErr := net.DialTimeout(network, address, firstPortTimeout)
	switch {
	case dialErr == nil:
		c.Close()
		return &firstPortError{err}
	case nobodyListens(dialErr):
		return dialErr
	}
	return err
}

// unlike describes an error that shows that the peer is not a CHP server. It returns ""
// for other errors.
func unlike(err error) string {
	switch {
	case errors.Is(err, zmtp.ErrVersion), errors.Is(err, zmtp.ErrMalformed):
		return "the peer does not speak ZMTP"
	case errors.Is(err, zmtp.ErrIncompatible):
		return "the peer is not a CHP server: it has another socket type"
	}
	return ""
}

// otherPort returns the endpoint of the connection that has failed, or "" if it is unknown
// or the server's name, which is the endpoint of its first port.
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
	if path, local := strings.CutPrefix(server, schemeIPC); local {
		if address = strings.TrimPrefix(address, schemeIPC); strings.HasPrefix(address, path+"+") {
			return schemeIPC + address
		}
		return ""
	}
	_, port, _ := net.SplitHostPort(address)
	if port == "" || strings.HasSuffix(server, ":"+port) {
		return ""
	}
	return server[:strings.LastIndexByte(server, ':')+1] + port
}

// confirm converts the error of an update to one with an exit code, whose text says
// whether the server may have stored the update.
func (c *client) confirm(err error) error {
	const unknown = "the update may or may not have been stored: check with chp get, or repeat it"
	switch {
	case errors.Is(err, chp.ErrUncertain):
		return fail(exitNoServer, "lost the connection before the server confirmed; %s", unknown)
	case errors.Is(err, context.DeadlineExceeded):
		if idle := (*chp.NotActiveError)(nil); errors.As(err, &idle) {
			for _, f := range idle.Servers {
				if f.Err != nil {
					return fail(exitNoServer, "%s did not confirm within %v: %s; %s", f.Server, c.connection.timeout, reason(f.Server, f.Err), unknown)
				}
			}
		}
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

// refused adds exitRefused to an error of package chp. Errors with an exit code, and those
// of contexts, are returned unchanged.
func refused(err error) error {
	var coded *command.Error
	if err == nil || errors.As(err, &coded) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fail(exitRefused, "%s", plain(err))
}

// plain returns the text of an error without the name of the package, because the command
// has the same name and prints it once. Joined errors are on one line.
func plain(err error) string { return strings.ReplaceAll(command.ErrorText(err, "; "), "chp: ", "") }
