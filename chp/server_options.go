package chp

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"net"
	"slices"
	"time"

	"clustermap/chp/commit"
	"clustermap/chp/internal/history"
	"clustermap/chp/internal/wire"
	"clustermap/internal/option"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// ServerOptions configures a [Server]. The zero value is usable: the server then
// listens on three consecutive free ports of the loopback interface.
type ServerOptions struct {
	// Host is the address, name or * that the three ports are bound to, without a port
	// and without brackets around an IPv6 address. The default is 127.0.0.1. Every client
	// that can connect, and that Security accepts, can read and write the whole map, unless
	// Access says otherwise: CHP itself has no access control (RFC 12, Security).
	Host string

	// Security selects CURVE or PLAIN for all three ports, and decides which clients
	// are accepted. CURVE encrypts all traffic. CURVE without Security.Authenticate
	// (see [sockets.AllowKeys]) or a ZAP handler accepts every client that knows the
	// server's public key, with any key of its own. By default there is no security, and
	// everyone is accepted.
	Security sockets.Security

	// Admins are the public keys of the administrators: clients that may ask for a
	// handover ([Failover]) or a promotion ([Promote]). With CURVE these are the owners of
	// these keys, which Security must accept too, of this server's key and of the other
	// server's of a pair. Without CURVE nobody proves anything, and the administrators are
	// the clients on this machine, by ipc or from an address of its own; behind a proxy on
	// this machine, all clients are. Clients in the same process, by inproc, always are.
	Admins []zmtp.PublicKey

	// AdminAnywhere makes every client that Security accepts an administrator.
	AdminAnywhere bool

	// Port is P: snapshots are at P, the publisher at P+1, the collector at P+2. 0
	// means three consecutive free ports.
	Port int

	// Endpoints lists where the server listens, instead of Host and Port. Each element
	// stands for three endpoints, and clients name the server by the same text in
	// ClientOptions.Servers:
	//
	//	tcp://host:P     P, P+1 and P+2. Host * means all interfaces, port * or 0
	//	                 three consecutive free ports.
	//	ipc://path       the Unix sockets path, path+1 and path+2: a plus sign and the
	//	                 number are added to the name, so the path can have two bytes
	//	                 less than the system allows, 105 on Linux. Path * means a
	//	                 temporary one.
	//	inproc://name    name, name+1 and name+2, for clients of the same process.
	//
	// [Server.Endpoints] has the actual ones. Clients in the same process, by inproc,
	// need no credentials: Security does not apply to them. The default is one tcp
	// endpoint at Host and Port.
	Endpoints []string

	// Model selects another Clone model than 6, for the guide's programs: see [Model]
	// for the limits of each. 0 means 6, the full protocol. A server of another model
	// announces no extensions and sends no HUGZ.
	Model Model

	// Listen, if set, makes the listeners of tcp and ipc endpoints instead of package
	// net, for listeners that exist already, such as those of a service manager, or that
	// carry TLS: see [sockets.Options]. It is called by Server.Listen for the snapshot
	// port P, then for P+1 and P+2, of each endpoint in turn. The server closes the
	// listeners. Clients find P+1 and P+2 by P, so the ports that they reach must be
	// consecutive, unless ClientOptions.Dial connects to others. It is not called for
	// PairOptions.State.
	Listen func(ctx context.Context, network, address string) (net.Listener, error)

	// Advertise is the endpoint of P as clients reach it, such as "tcp://HOST:PORT",
	// for a server in a container or behind address translation, or one that listens on
	// all addresses. P+1 and P+2 must be forwarded too. Status reports it to its callers;
	// it changes nothing else. The default is where the server listens.
	Advertise string

	// HeartbeatInterval is the time between HUGZ messages. Clients give up a server
	// after a few seconds without one. 0 means DefaultHeartbeatInterval.
	HeartbeatInterval time.Duration

	// MaxValueSize is the largest value that the server accepts, in bytes; it refuses
	// an update with a larger one. 0 means DefaultMaxValueSize. The maximum is 1 GiB,
	// or 256 MiB on 32-bit systems.
	MaxValueSize int

	// SubscriberQueue bounds the queue of each subscriber, in bytes. The server
	// disconnects a subscriber whose queue is over the limit; the client then fetches a
	// new snapshot. 0 means DefaultSubscriberQueue.
	SubscriberQueue int

	// SlowestIntake is the lowest rate to which the server slows down for its
	// subscribers, in bytes of updates per second. When the queue of a subscriber that
	// reads too slowly is more than half full, the server accepts updates more slowly:
	// the fuller the queue the slower, but never below this rate. So a burst of updates
	// delays the clients that write instead of disconnecting those that read. Deletions
	// of expired keys are slowed down in the same way, separately. The server does not
	// wait for a subscriber that reads less than an eighth of the bytes sent to it. 0
	// means DefaultSlowestIntake; negative means no slowing down.
	SlowestIntake int

	// SubscriberMemory bounds the queues of all subscribers together, in bytes. Above
	// it, the server disconnects the subscribers that are furthest behind. Subscribers
	// to the same subtrees share queued updates, which count once. 0 means
	// DefaultSubscriberMemory, or twice SubscriberQueue if that is more.
	SubscriberMemory int

	// MaxMapBytes bounds the map, in bytes of keys, values and properties plus about 30
	// bytes per key. An update that would exceed it is refused with ReasonMapFull.
	// Deletions, and updates that do not make a key larger, are always accepted. The
	// memory used can be twice as much, and more for a short time, plus 16 to 64 bytes
	// per key for the index. 0 means no limit: nothing is evicted, so only the
	// application knows how large its map may become. The passive server of a pair does not
	// copy a map of the active one that exceeds its own limit; so give both the same.
	MaxMapBytes int64

	// MaxClients bounds the connections on each of the three ports. A client of this
	// package has one connection on each of the first two, and one on the third once it
	// writes. A connection beyond the limit is closed at once and logged, except that four
	// places are reserved for clients on this machine and, with CURVE, for those with a key
	// of Admins, so that an operator gets in: see sockets.Options.Operator. The system's limit of open files also applies; some of
	// them are always left to the log and other files: see sockets.Options.MaxConnections.
	// Connections by inproc, from the server's own process, do not count. 0 means DefaultMaxClients;
	// negative means no limit.
	MaxClients int

	// SnapshotMemory bounds the snapshots that are encoded and not yet sent, for all
	// clients together, in bytes. A value larger than a quarter of it is encoded alone.
	// While updates overwrite the map, snapshots in progress also keep older versions
	// of values in memory: up to SnapshotMemory plus twice the size of the log. Beyond
	// that the server disconnects the clients that make no progress. 0 means
	// DefaultSnapshotMemory.
	SnapshotMemory int

	// RetainBytes and RetainTime bound what the server remembers of its last updates: with it a
	// client that comes back gets what it has missed instead of the whole map, and
	// Watch begins with what came after a sequence. The bytes are those of whole
	// pieces of the log, which updates keep in memory after others have replaced them; the
	// server's memory grows by as much while the map is overwritten. With Log the updates since
	// the last checkpoint are remembered after a restart, too. Both servers of a pair
	// remember. 0 means DefaultRetainBytes and DefaultRetainTime; a negative number means that
	// nothing is remembered (RetainBytes), and no limit of time (RetainTime).
	RetainBytes int
	RetainTime  time.Duration

	// WatchQueue bounds the updates that wait in each [Watch] of [Server.Watch], in
	// bytes; beyond it the watch ends with ErrLagged. 0 means DefaultWatchQueue.
	WatchQueue int

	// SnapshotTimeout is how long a client may stop reading its snapshot before the
	// server disconnects it; a slow client that continues to read is served to the end.
	// A client makes progress when the operating system accepts another part for its
	// connection: 4 to 128 KiB, or one larger value. The timeout also applies to the
	// other server of a pair. 0 means DefaultSnapshotTimeout.
	SnapshotTimeout time.Duration

	// HandshakeTimeout bounds the handshake of a new connection. 0 means
	// DefaultServerHandshake.
	HandshakeTimeout time.Duration

	// Preload, if set, yields the initial keys of the map, such as those of a dump.
	// NewServer copies them into the map; if a key occurs twice, the last one wins.
	// Their times to live begin then; their sequences, and a ttl among their Properties, are not used. NewServer fails with the first error that Preload
	// yields, and with a *MessageError or ErrEmptyValue for an entry that a client
	// could not set.
	//
	// Without Preload a server starts with an empty map, and its clients delete the
	// keys that they have (but see ClientOptions.KeepOnEmpty).
	Preload iter.Seq2[Entry, error]

	// ExpiryGrace is how long no key expires after the server has become active with a
	// map that it had before: when Serve begins, for the keys of Log and Preload, and
	// when a server of a pair takes over. It begins anew when an active server goes on
	// after its process did not run for more than a second. Owners of such keys, among
	// them each [Registration], could not refresh them meanwhile; so their clients get time to
	// come back. A key that is not refreshed expires at the end of its time to live or of
	// the grace, whichever is later, and until then has that time as TTL everywhere.
	// Updates that the server accepts as the active one have no grace.
	//
	// 0 means DefaultExpiryGrace, which is enough for a client with the default options
	// to notice that its server is silent, find the active one and fetch a snapshot.
	// Choose more for large maps, and for programs that refresh their keys at intervals
	// only. Ten years is the most. Negative means none.
	ExpiryGrace time.Duration

	// Access, if set, says what each client may do: see package clustermap/chp/access. What it does not
	// allow is refused with an [*AccessError]. It takes the place of Security.Authenticate and
	// AdminAnywhere. The owners of the server's own key and of Admins may do everything, and so may this process. The other
	// server of a pair needs no rights, and proves who it is as without Access. In a cluster each node decides what its clients may do, and
	// the leader, by their names, what they may add (Limits.Keys and Limits.Map): its Access must have a method
	// Roles() []*Role then, as that of package access has. By default every client may read and write everything.
	Access Access

	// Accepted, if set, says whether the server accepts a client still that Security.Authenticate has accepted: now, when it
	// connects, and when [Server.Recheck] is called. It must not block, and be safe for concurrent use.
	Accepted func(client *sockets.Peer) bool

	// Reload, if set, is called when an administrator asks for it (see the function [Reload]), to read again what the
	// program has in files. It may take as long as its context.
	Reload func(ctx context.Context) error

	// Audit, if set, receives a record of what clients and administrators do, beside Logger: who connected, was
	// denied or disconnected; what was refused; whose rights have changed; who made the server hand over, be promoted or read its files again. What
	// repeats is written at growing intervals, with the number of times. The server waits for the logger, which is
	// called by the goroutines of connections. For updates see [Server.AuditWrites].
	Audit *slog.Logger

	// Stamp makes the server add to each update that it accepts when that was, by its clock,
	// and who sent it: the user ID that Security.Authenticate returned for the client's
	// connection, with CURVE otherwise the client's public key, and nobody if there is
	// neither, as for updates of the server's own process. Both are in the update's record, for
	// all clients, watches, the log and the other server of a pair: see [Properties.Stamped].
	// No client can set them. A stamp takes about 30 bytes and the length of the name. Both
	// servers of a pair need the option. It is not for Models 1 to 4, which have no properties.
	Stamp bool

	// History is the number of versions of each key that the server keeps in memory, the
	// newest and deletions among them, for [Client.History]. 0 and 1 mean that it keeps none:
	// the map has the newest one. The maximum is 64. A restart with Log brings them back, and
	// a server of a pair has those of the active one if it has this option, too. An earlier
	// version of this package refuses a log whose checkpoint has versions.
	History int

	// HistoryBytes bounds the memory of all versions; beyond it the server drops those that
	// are oldest in the whole map. 0 means DefaultHistoryBytes.
	HistoryBytes int64

	// Log, if set, makes the map durable: package clustermap/chp/durable opens a log on
	// disk. NewServer replays it and restores the map, its sequences and the times to
	// live, which have continued to run (but see ExpiryGrace). The server appends every update to the log. It
	// owns the log and closes it when it ends, or when NewServer fails. If a write or a
	// flush fails, the server ends with that error, because it could no longer keep
	// updates. Preload is used only if the log is empty.
	Log commit.Log

	// Sync decides when the log is flushed, and so which updates a crash of the machine
	// can lose. With commit.Always no client sees an update before it is on disk. The
	// zero value flushes every 100 ms: updates are published before that, so a crash of
	// the machine, though not of the process, can lose updates that clients have seen.
	Sync commit.Policy

	// Pair, if set, makes the server one of a pair. It excludes Preload and Models
	// other than 6: use a client to set the initial keys of a pair.
	Pair *PairOptions

	// Cluster, if set, makes the server a node of a cluster of three or more: see ClusterOptions. It excludes Log, whose
	// place the log of the cluster takes, Pair, Preload and Models other than 6.
	Cluster *ClusterOptions

	// OnReplay, if set, is called from time to time while NewServer replays the log,
	// and once when it has finished.
	OnReplay func(ReplayProgress)

	// Logger receives the server's log records. The server never waits for it: up to
	// 1,024 records are queued, and those with the same message are limited to ten per
	// second, except at level Debug. Dropped records are counted, and the count is
	// logged. That a client came, went or was refused is logged at once the first time for
	// its key or address, and then at intervals that double from ten seconds to ten minutes,
	// with the number of times since. When Serve returns, it waits up to a second for the logger to take the
	// last records. nil means slog.Default, for level Warn and above; a server without
	// any messages has slog.New(slog.DiscardHandler).
	Logger *slog.Logger
}

func (o ServerOptions) withDefaults() (ServerOptions, error) {
	var errs []error
	errs = append(errs, o.checkEndpoints()...)
	if err := o.Security.Validate(); err != nil {
		errs = append(errs, err)
	}
	if err := checkModel(o.Model); err != nil {
		errs = append(errs, err)
	}
	if o.Security.PlainUsername != "" || o.Security.PlainPassword != "" {
		errs = append(errs, option.New("chp", "Security.PlainUsername", "is for a client; a server sets PlainServer"))
	}
	if !o.Security.CurveServer && (!o.Security.CurveSecretKey.IsZero() || !o.Security.CurveServerKey.IsZero()) {
		errs = append(errs, option.New("chp", "Security.CurveServer", "is not set: a server with CURVE sets CurveServer and CurveSecretKey, and no CurveServerKey"))
	}
	if o.Access != nil && o.Security.Authenticate != nil {
		errs = append(errs, option.New("chp", "Security.Authenticate", "is not for a server with Access, which authenticates its clients"))
	}
	if o.Access != nil && o.AdminAnywhere {
		errs = append(errs, option.New("chp", "AdminAnywhere", "is not for a server with Access, which says who administrators are"))
	}
	if len(o.Admins) > 0 && !o.Security.CurveServer {
		errs = append(errs, option.New("chp", "Admins", "are keys, which only clients of a server with CURVE prove"))
	}
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"HeartbeatInterval", int64(o.HeartbeatInterval)}, {"MaxValueSize", int64(o.MaxValueSize)},
		{"SubscriberQueue", int64(o.SubscriberQueue)}, {"SubscriberMemory", int64(o.SubscriberMemory)},
		{"MaxMapBytes", o.MaxMapBytes}, {"History", int64(o.History)}, {"HistoryBytes", o.HistoryBytes}, {"SnapshotMemory", int64(o.SnapshotMemory)}, {"WatchQueue", int64(o.WatchQueue)},
		{"SnapshotTimeout", int64(o.SnapshotTimeout)}, {"HandshakeTimeout", int64(o.HandshakeTimeout)},
	} {
		if f.value < 0 {
			errs = append(errs, option.New("chp", f.name, "must not be negative"))
		}
	}
	if o.History > history.MostVersions {
		errs = append(errs, option.New("chp", "History", "%d is over %d", o.History, history.MostVersions))
	}
	if o.Stamp && wire.DialectOf(o.Model).Three {
		errs = append(errs, option.New("chp", "Stamp", "is not for models 1 to 4, which have no properties"))
	}
	if o.Log != nil && o.MaxValueSize > maxLoggedValue {
		errs = append(errs, option.New("chp", "MaxValueSize", "%d is over %d MiB, the most with a log", o.MaxValueSize, maxLoggedValue>>20))
	}
	if o.MaxValueSize > wire.LargestValue {
		errs = append(errs, option.New("chp", "MaxValueSize", "%d is over %d MiB", o.MaxValueSize, wire.LargestValue>>20))
	}
	if o.Pair != nil {
		p, bad := o.Pair.withDefaults()
		o.Pair, errs = &p, append(errs, bad...)
		if !wire.DialectOf(o.Model).Full {
			errs = append(errs, option.New("chp", "Model", "is not for a server of a pair: it needs the full protocol"))
		}
		if s, peer := &o.Security, &p.PeerSecurity; s.CurveServer != !peer.CurveServerKey.IsZero() || s.CurveServer && s.CurveSecretKey != peer.CurveSecretKey {
			errs = append(errs, option.New("chp", "Pair.PeerSecurity", "does not go with Security: with CURVE both have this server's CurveSecretKey, and PeerSecurity has the other server's CurveServerKey"))
		}
		if o.Preload != nil {
			errs = append(errs, option.New("chp", "Preload", "is not for a server of a pair: the servers would begin with different maps"))
		}
	}
	errs = append(errs, o.checkCluster()...)
	if len(o.Endpoints) == 0 {
		setDefault(&o.Host, "127.0.0.1")
	}
	o.Endpoints, o.Admins = slices.Clone(o.Endpoints), slices.Clone(o.Admins)
	if o.Pair != nil {
		errs = append(errs, o.checkSelf()...)
	}
	setDefault(&o.HeartbeatInterval, DefaultHeartbeatInterval)
	setDefault(&o.MaxValueSize, DefaultMaxValueSize)
	setDefault(&o.SubscriberQueue, DefaultSubscriberQueue)
	setDefault(&o.SubscriberMemory, max(DefaultSubscriberMemory, 2*o.SubscriberQueue))
	setDefault(&o.SlowestIntake, DefaultSlowestIntake)
	setDefault(&o.MaxClients, DefaultMaxClients)
	setDefault(&o.SnapshotMemory, DefaultSnapshotMemory)
	setDefault(&o.WatchQueue, DefaultWatchQueue)
	setDefault(&o.RetainBytes, DefaultRetainBytes)
	setDefault(&o.RetainTime, DefaultRetainTime)
	setDefault(&o.SnapshotTimeout, DefaultSnapshotTimeout)
	setDefault(&o.HandshakeTimeout, DefaultServerHandshake)
	setDefault(&o.HistoryBytes, DefaultHistoryBytes)
	setDefault(&o.ExpiryGrace, DefaultExpiryGrace)
	o.Logger = loggerOr(o.Logger)
	return o, errors.Join(errs...)
}

// withoutSecrets returns the options that a server keeps. Only the sockets have the
// keys, so printing a Server shows none.
func (o ServerOptions) withoutSecrets() ServerOptions {
	o.Security = sockets.Security{}
	if o.Pair != nil {
		p := *o.Pair
		p.PeerSecurity, p.Secret = sockets.Security{}, nil
		o.Pair = &p
	}
	return o
}

// setDefault replaces a zero value by the default.
func setDefault[T comparable](v *T, standard T) {
	var zero T
	if *v == zero {
		*v = standard
	}
}
