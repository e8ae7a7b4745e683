package chp

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"clustermap/sockets"
)

// Defaults of [ClientOptions].
const (
	DefaultHeartbeatTimeout = 5 * time.Second
	DefaultSyncTimeout      = 5 * time.Second
	DefaultSendQueue        = 4 << 20
	DefaultWatchQueue       = 64 << 20
)

// maxSubtrees keeps a client below the number of subscriptions that a server
// bears.
const maxSubtrees = 8192

// ClientOptions configures a [Client]. Only Servers is needed; the zero value
// of every other field works. It is copied when the client is made.
type ClientOptions struct {
	// Servers are the servers to follow, the first one first, each as tcp://host:P,
	// where P is the snapshot port; the publisher is at P+1 and the collector at
	// P+2. At least one, none twice. The client reads from one at a time and sends
	// its updates to that one. Servers of this package do not share a map, so the
	// others get the updates only while the client follows a server of another kind
	// (see [Client.Set]).
	Servers []string

	// Model is the Clone model of all servers: see [Model] for what each lacks. 0
	// means 6, the full protocol. In the other models the server need not send a sign
	// that the client's subscriptions are in force: before it asks for a snapshot,
	// the client waits until a PING behind them was answered, for a second at most. In
	// model 1 it becomes ACTIVE with an empty state, and keeps its state when it
	// connects again, as with KeepOnEmpty.
	Model Model

	// Security is the security mechanism of all servers, which the client is
	// a client of: PLAIN with a user name and a password, or CURVE with the
	// client's key and the servers' common public key. Default none.
	Security sockets.Security

	// Subtrees is the part of the map that the client keeps, each "" (all), a
	// subtree such as "/a/b/", or one key (with no slash at its end), at most
	// 8192 of them. Overlaps are reduced. Default all.
	Subtrees []string

	// HeartbeatTimeout is how long an active client's server may be silent before
	// the client turns to the next one. The server sends a HUGZ about once a
	// second, and on each of its connections the client sends a ZMTP PING four
	// times in this time, which the server must answer. 0 means
	// DefaultHeartbeatTimeout; negative means for ever, and no PINGs. Use that with
	// servers that send no HUGZ or run on a libzmq before 4.2.
	HeartbeatTimeout time.Duration

	// SyncTimeout is how long a server may be silent while the client connects to
	// it and while it sends the snapshot, before the client turns to the next one.
	// A server of this package that sends heartbeats may take six times as long to
	// go on with the snapshot: it has much to do.
	//
	// If a server takes longer than a sixteenth of SyncTimeout to answer, the client
	// also tries the next one, and when it has tried all of them, the first
	// ones again, after a quarter of SyncTimeout, a half, and all of it; up to four at
	// the same time. It follows the one that answers first. 0 means DefaultSyncTimeout.
	SyncTimeout time.Duration

	// MaxValueSize bounds the bytes of a value that is sent. 0 means what the
	// server takes, which servers of this package announce, or
	// DefaultMaxValueSize with others. It does not bound what the server sends:
	// values as large as any server of this package takes are accepted.
	MaxValueSize int

	// SendQueue bounds the bytes of updates that wait to be written to the server;
	// beyond it Set waits. With a server of this package, those that were written and
	// have not come back count too, since they are kept to be sent again if the
	// connection breaks. 0 means DefaultSendQueue.
	SendQueue int

	// WatchQueue bounds the bytes of updates that wait in each [Watch];
	// beyond it the watch ends with ErrLagged. 0 means DefaultWatchQueue.
	WatchQueue int

	// KeepOnEmpty keeps the state when a server of this package says that its map
	// is new and empty: no update has come since it started, and nothing was
	// preloaded. So a server that restarts without its map does not delete
	// everything here too. By default the client follows the server, and its watches
	// report a deletion of every key.
	//
	// The kept keys are this client's alone; other clients that join do not see
	// them. Each stays until an update sets or deletes it, or until the client
	// takes a snapshot of a map that is no longer new and empty: that replaces
	// everything. Set them anew to give them back to the server. Keys with a time
	// to live are not kept, because no server would delete them. The log says at
	// Warn how many keys were kept, and ClientStats.Kept counts them.
	KeepOnEmpty bool

	// OnState, if set, is told of every change of state, with the server that
	// it concerns. Calls come one after the other from the goroutine that
	// runs the client, which waits for them: return soon, and do not call
	// Close.
	OnState func(state State, server string)

	// OnFailure, if set, is told of the end of every attempt to follow a
	// server, and why. With a server that refuses the client's credentials the
	// error Is zmtp.ErrRefused; with one of another security mechanism, or of
	// none, zmtp.ErrMechanism. The client goes on trying, one server after
	// the other. Calls come as those of OnState do.
	OnFailure func(server string, err error)

	// OnLink, if set, is told when the client begins to follow a server, loses it,
	// follows it again after a new snapshot, or has failed over to another one.
	// Calls come as those of OnState do.
	OnLink func(LinkEvent)

	// Logger, if set, gets the client's log: changes of server at level Info,
	// reasons for them at Warn. The same reason comes again only after a while,
	// with the number of times since. The client never waits for it: see
	// ServerOptions.Logger.
	Logger *slog.Logger

	// deletedBytes bounds the memory of deletions during a join. 0 means
	// maxDeletedBytes; tests set less.
	deletedBytes int

	// restless leaves out the waits between sessions. It is for tests.
	restless bool
}

// address is one server's endpoints.
type address struct {
	name      string // as in ClientOptions.Servers
	snapshot  string // P; empty in Clone model 1
	publisher string // P+1; P in Clone model 1
	collector string // P+2
}

// parseServer derives a server's three endpoints from tcp://host:P.
func parseServer(name string, d dialect) (address, error) {
	rest, ok := strings.CutPrefix(name, "tcp://")
	if !ok {
		return address{}, errors.New("must have the form tcp://host:port")
	}
	host, text, err := net.SplitHostPort(rest)
	if err != nil || host == "" || host == "*" || strings.ContainsAny(host, "/ \x00") {
		return address{}, errors.New("must have the form tcp://host:port")
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 || port > 65533 {
		return address{}, errors.New("needs a port from 1 to 65533, with two more above it")
	}
	at := func(n int) string {
		if n < 0 {
			return ""
		}
		return "tcp://" + net.JoinHostPort(host, strconv.Itoa(int(port)+n))
	}
	snapshot, publisher, collector := d.ports()
	return address{name: name, snapshot: at(snapshot), publisher: at(publisher), collector: at(collector)}, nil
}

// withDefaults validates o, reports all faults at once, and returns a copy
// with the defaults filled in, and the servers' addresses.
func (o ClientOptions) withDefaults() (ClientOptions, []address, error) {
	var faults []error
	bad := func(field, format string, args ...any) {
		faults = append(faults, &OptionError{field, fmt.Sprintf(format, args...)})
	}
	var servers []address
	if len(o.Servers) == 0 {
		bad("Servers", "names no server")
	}
	for i, name := range o.Servers {
		server, err := parseServer(name, o.Model.dialect())
		switch {
		case err != nil:
			bad("Servers", "%q %v", name, err)
		case slices.Contains(o.Servers[:i], name):
			bad("Servers", "%q is there twice", name)
		}
		servers = append(servers, server)
	}
	if err := o.Model.check(); err != nil {
		faults = append(faults, err)
	}
	if err := o.Security.Validate(); err != nil {
		faults = append(faults, err)
	}
	if o.Security.PlainServer {
		bad("Security.PlainServer", "is for a server; a client sets PlainUsername and PlainPassword")
	}
	if o.Security.CurveServer {
		bad("Security.CurveServer", "is for a server; a client sets CurveSecretKey and CurveServerKey")
	}
	for _, spec := range o.Subtrees {
		if err := checkSubtree(spec); err != nil {
			bad("Subtrees", "%v", err)
		}
	}
	if len(o.Subtrees) > maxSubtrees {
		bad("Subtrees", "are %d; at most %d are possible", len(o.Subtrees), maxSubtrees)
	}
	if o.SyncTimeout < 0 {
		bad("SyncTimeout", "must not be negative")
	}
	for _, f := range []struct {
		name     string
		value    *int
		standard int
	}{
		{"MaxValueSize", &o.MaxValueSize, DefaultMaxValueSize},
		{"SendQueue", &o.SendQueue, DefaultSendQueue},
		{"WatchQueue", &o.WatchQueue, DefaultWatchQueue},
	} {
		switch {
		case *f.value < 0:
			bad(f.name, "must not be negative")
		case *f.value == 0:
			*f.value = f.standard
		}
	}
	if o.HeartbeatTimeout == 0 {
		o.HeartbeatTimeout = DefaultHeartbeatTimeout
	}
	if o.SyncTimeout == 0 {
		o.SyncTimeout = DefaultSyncTimeout
	}
	if !o.Model.dialect().snapshots {
		o.KeepOnEmpty = true
	}
	setDefault(&o.deletedBytes, maxDeletedBytes)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Servers = slices.Clone(o.Servers)
	o.Subtrees = slices.Clone(o.Subtrees)
	return o, servers, errors.Join(faults...)
}
