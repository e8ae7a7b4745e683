package chp

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net"
	"slices"
	"time"

	"clustermap/chp/internal/follow"
	"clustermap/chp/internal/subtree"
	"clustermap/chp/internal/wire"
	"clustermap/internal/option"
	"clustermap/sockets"
)

// ClientOptions configures a [Client]. Only Servers is required; the zero value of
// every other field is usable. NewClient copies the options.
type ClientOptions struct {
	// Servers lists the servers in order of preference, each as tcp://host:P, where P
	// is the snapshot port; the publisher is at P+1 and the collector at P+2. A server of
	// this package on the same machine can also be at ipc://path, and one of the same
	// process at inproc://name: see ServerOptions.Endpoints. There must be at least one
	// server and no duplicates. A host name is resolved again for each attempt; if it has
	// several addresses, all connections go to one of them, the first that answers (as in
	// RFC 8305), and after a failure the next attempt begins with another one. Behind a
	// balancer, connections that reach different servers end the attempt with a
	// [*MixedError]. The client reads from one server at a
	// time and sends its updates to that one. If that is a server of another
	// implementation, the client sends its updates to the other servers as well (see
	// [Client.Set]).
	Servers []string

	// Model is the Clone model of all servers: see [Model] for the limits of each. 0
	// means 6, the full protocol. Servers of the other models do not confirm
	// subscriptions: before the client requests a snapshot, it sends a PING after its
	// subscriptions and waits for the answer, for a second at most. With model 1 the
	// client becomes ACTIVE with an empty map, and keeps its map when it reconnects, as
	// with KeepOnEmpty.
	Model Model

	// Security is the client side of the security mechanism that all servers use: PLAIN
	// with a user name and a password, or CURVE with the client's key pair and the
	// public key that all servers share. The default is no security.
	Security sockets.Security

	// Dial, if set, makes the connections to tcp and ipc endpoints instead of package
	// net, for example through a tunnel or with TLS: see [sockets.Options]. It is called
	// with the address of P, P+1 or P+2 of a server, of which the host can be a name: all
	// three must reach the same server.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// Subtrees selects the part of the map to replicate: each element is "" (the whole
	// map), a subtree such as "/a/b/", or a single key. The slash at the end makes the
	// difference: "/a/b/" is every key that begins with these bytes, such as "/a/b/c",
	// and "/a/b" only the key of that name. At most 8192 elements; overlapping ones are
	// merged. The default is the whole map.
	Subtrees []string

	// HeartbeatTimeout is how long the server of an ACTIVE client may be silent before
	// the client changes to the next one. A server sends a HUGZ about once a second;
	// the client also sends a ZMTP PING four times per timeout on each connection,
	// which the server must answer. 0 means DefaultHeartbeatTimeout; negative means no
	// timeout and no PINGs, for servers that send no HUGZ or use a libzmq older than
	// 4.2.
	HeartbeatTimeout time.Duration

	// SyncTimeout is how long a server may be silent while the client connects and
	// while the snapshot arrives, before the client changes to the next one. A busy
	// server of this package, which continues to send heartbeats, may pause the
	// snapshot six times as long.
	//
	// If a server does not answer within a sixteenth of SyncTimeout, the client also
	// tries the next one, up to four at the same time. When it has tried all of them,
	// it starts again with the first, after a quarter of SyncTimeout, then a half, then
	// all of it. It follows the server that answers first. 0 means DefaultSyncTimeout.
	SyncTimeout time.Duration

	// MaxValueSize is the largest value that the client sends, in bytes. 0 means the
	// server's limit, which servers of this package announce, or DefaultMaxValueSize
	// with other servers. It does not limit received values: the client accepts values as
	// large as any server of this package does.
	MaxValueSize int

	// SendQueue bounds the updates that wait to be written to the server, in bytes;
	// beyond it Set waits. With a server of this package, updates that were written and
	// have not come back count too: the client keeps them to send them again if the
	// connection breaks. 0 means DefaultSendQueue.
	SendQueue int

	// WatchQueue bounds the updates that wait in each [Watch], in bytes; beyond it the
	// watch ends with ErrLagged. 0 means DefaultWatchQueue.
	WatchQueue int

	// MaxMapBytes bounds the part of the map that the client replicates, in bytes counted
	// as for ServerOptions.MaxMapBytes, which also says how much memory that can need.
	// While the client fetches a new snapshot, it has the last state too, and each key with
	// a time to live needs some 60 bytes more. When a snapshot or an update exceeds the
	// bound, or a snapshot goes on after twice as many bytes whatever they are, the client
	// leaves the server with ErrMapTooLarge; it keeps the last state, and tries again after
	// a second, then after longer times, up to half a minute. 0 means DefaultMaxMapBytes;
	// negative means no limit.
	MaxMapBytes int64

	// KeepOnEmpty keeps the replica's keys when a server of this package reports that
	// its map is new and empty: it has had no update since it started, and nothing was
	// preloaded. This protects the client from a server that restarts without its data.
	// By default the client follows the server, and its watches report the deletion of
	// every key.
	//
	// Only this client has the kept keys; clients that join later do not see them. Each
	// key stays until an update sets or deletes it, or until the client fetches a
	// snapshot of a map that is no longer new and empty, which replaces everything. To
	// restore the keys on the server, set them again. Keys with a time to live are not
	// kept, because no server would delete them. The client logs at level Warn how many
	// keys it kept, and ClientStats.Kept has the number.
	KeepOnEmpty bool

	// OnState, if set, is called at every change of state, with the server in question.
	// Calls are sequential, from the goroutine that runs the client, which waits for
	// them: return quickly, and do not call Close.
	OnState func(state State, server string)

	// OnFailure, if set, is called when an attempt to follow a server has ended, with
	// the reason. If the server refuses the client's credentials, errors.Is(err,
	// zmtp.ErrRefused) is true; if it has another security mechanism, or none,
	// errors.Is(err, zmtp.ErrMechanism). The client keeps trying, one server after the
	// other. It is called like OnState.
	OnFailure func(server string, err error)

	// OnLink, if set, is called when the client begins to follow a server, loses it,
	// follows it again after a new snapshot, or has failed over to another one. It is
	// called like OnState.
	OnLink func(LinkEvent)

	// Logger receives the client's log records: changes of server at level Info, the
	// reasons at Warn, and so the end of an outage whose reason was logged. A reason that repeats is logged at growing intervals, with the
	// number of repetitions. The client never waits for the logger, and nil means the
	// same as for a server: see ServerOptions.Logger.
	Logger *slog.Logger

	// deletedBytes bounds the memory for deletions during a join. 0 means the default; tests set
	// less.
	deletedBytes int

	// restless skips the waits between sessions, for tests.
	restless bool
}

// withDefaults validates o and returns a copy with the defaults filled in, and the
// servers' addresses. The error joins those of all invalid fields.
func (o ClientOptions) withDefaults() (ClientOptions, []follow.Address, error) {
	var faults []error
	bad := func(field, format string, args ...any) {
		faults = append(faults, option.New("chp", field, format, args...))
	}
	var servers []follow.Address
	if len(o.Servers) == 0 {
		bad("Servers", "is empty")
	}
	for i, name := range o.Servers {
		server, err := parseServer(name, wire.DialectOf(o.Model))
		switch {
		case err != nil:
			bad("Servers", "%q %v", name, err)
		case slices.Contains(o.Servers[:i], name):
			bad("Servers", "%q is listed twice", name)
		}
		servers = append(servers, server)
	}
	if err := checkModel(o.Model); err != nil {
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
		if err := subtree.Check(spec); err != nil {
			bad("Subtrees", "%q %s", err.Subtree, err.Reason)
		}
	}
	if len(o.Subtrees) > maxSubtrees {
		bad("Subtrees", "has %d elements; the maximum is %d", len(o.Subtrees), maxSubtrees)
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
	setDefault(&o.MaxMapBytes, DefaultMaxMapBytes)
	if o.MaxMapBytes < 0 {
		o.MaxMapBytes = math.MaxInt64
	}
	if o.HeartbeatTimeout == 0 {
		o.HeartbeatTimeout = DefaultHeartbeatTimeout
	}
	if o.SyncTimeout == 0 {
		o.SyncTimeout = DefaultSyncTimeout
	}
	if !wire.DialectOf(o.Model).Snapshots {
		o.KeepOnEmpty = true
	}
	o.Logger = loggerOr(o.Logger)
	o.Servers = slices.Clone(o.Servers)
	o.Subtrees = slices.Clone(o.Subtrees)
	return o, servers, errors.Join(faults...)
}
