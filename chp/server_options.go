package chp

import (
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"net"
	"strings"
	"time"

	"clustermap/chp/commit"
	"clustermap/sockets"
)

// Defaults of [ServerOptions].
const (
	// DefaultPort is the port P of the guide's servers.
	DefaultPort = 5556

	DefaultHeartbeatInterval = time.Second
	DefaultMaxValueSize      = 16 << 20
	DefaultSubscriberQueue   = 64 << 20
	DefaultSlowestIntake     = 16 << 20
	DefaultSubscriberMemory  = 512 << 20
	DefaultSnapshotMemory    = 256 << 20
	DefaultMaxClients        = 10_000
	DefaultSnapshotTimeout   = 30 * time.Second
	DefaultServerHandshake   = 10 * time.Second
)

// maxMaxValueSize bounds ServerOptions.MaxValueSize. On systems of 32 bits
// several values of that size must fit in the address space.
const maxMaxValueSize = min(1<<30, math.MaxInt/8+1)

// maxLoggedValue is the same for a server with a log, which bounds an entry.
const maxLoggedValue = commit.MaxEntryBytes / 2

// ServerOptions configures a [Server]. The zero value works: it serves the
// loopback interface on three consecutive free ports.
type ServerOptions struct {
	// Host is the address, name or * that the three ports are bound on: no port,
	// and no brackets around an IPv6 address. Default 127.0.0.1. Anyone who reaches
	// the ports, and is let in by Security, can read and write everything: CHP has
	// no access control (RFC 12, Security).
	Host string

	// Security makes the server one of CURVE or PLAIN, on all three ports,
	// and says who is let in. CURVE encrypts all traffic. CURVE without
	// Security.Authenticate (see [sockets.AllowKeys]) or a ZAP handler lets in
	// every client that knows the server's public key, whatever its own key. By
	// default there is neither CURVE nor PLAIN, and everyone is let in.
	Security sockets.Security

	// Port is P: snapshots on P, the publisher on P+1, the collector on P+2.
	// 0 takes three consecutive free ports.
	Port int

	// Model makes the server one of another Clone model than 6, for programs of
	// the guide: see [Model] for what each lacks. 0 means 6, the full protocol. Such
	// a server announces nothing that goes beyond the model, and sends no HUGZ.
	Model Model

	// Advertise is the endpoint of P as clients reach it, "tcp://HOST:PORT", for a
	// server behind a forwarded port or that listens on all addresses. Status tells
	// it. Default: where the server listens.
	Advertise string

	// HeartbeatInterval is the time between HUGZ messages. Clients hold a
	// server dead after some seconds without one. 0 means
	// DefaultHeartbeatInterval.
	HeartbeatInterval time.Duration

	// MaxValueSize bounds a value in bytes; a larger update is refused. 0
	// means DefaultMaxValueSize. It may be up to 1 GiB, or 256 MiB on systems
	// of 32 bits.
	MaxValueSize int

	// SubscriberQueue bounds what is queued for one subscriber, in bytes. A
	// subscriber beyond it is disconnected, whereupon it takes a new
	// snapshot. 0 means DefaultSubscriberQueue.
	SubscriberQueue int

	// SlowestIntake is the lowest rate to which the server slows down for
	// subscribers, in bytes of updates a second. When the queue of a subscriber
	// that reads too slowly is more than half full, the server takes updates more
	// slowly: the fuller the queue, the slower, but never below this rate. So a
	// burst slows down the clients that write instead of disconnecting those that
	// follow. Deletions of expired keys are slowed down in the same way, by
	// themselves. A subscriber that takes less than an eighth of what it is sent is
	// not waited for. 0 means DefaultSlowestIntake; negative means not to slow
	// down.
	SlowestIntake int

	// SubscriberMemory bounds the bytes queued for all subscribers together. When
	// they are more, the subscribers furthest behind are disconnected first.
	// Subscribers to the same subtrees share queued updates, which count once. 0
	// means DefaultSubscriberMemory, or twice SubscriberQueue if that is more.
	SubscriberMemory int

	// MaxMapBytes bounds the map, in bytes of keys, values, properties and some 30
	// bytes more for each key: an update that would make it larger is refused with
	// ReasonMapFull. Deletions, and updates that do not grow a key, are always
	// taken. The memory can be twice as much, and more for a short time, besides 16
	// to 64 bytes a key for the index. 0 means no bound: there is no eviction, so
	// only the application knows how large its map may be.
	MaxMapBytes int64

	// MaxClients bounds the connections on each of the three ports; a client of
	// this package has one on the first two, and one on the third once it writes.
	// One connection too many is closed at once and logged. 0 means
	// DefaultMaxClients; negative means no bound.
	MaxClients int

	// SnapshotMemory bounds the bytes of snapshots that are encoded and not
	// yet sent, over all clients. A value too large for a quarter of it is
	// encoded alone. While updates overwrite the map, snapshots on their way
	// also keep older versions: up to SnapshotMemory and twice the size of
	// the log, beyond which the clients that make no progress are
	// disconnected. 0 means DefaultSnapshotMemory.
	SnapshotMemory int

	// SnapshotTimeout is how long a client that asked for a snapshot may take
	// nothing of it before it is disconnected; a slow client that goes on
	// taking it is served to the end. What counts is that the operating system
	// has taken over another part for the connection: 4 to 128 KiB, or one
	// larger value. It holds for the other server of a pair, too. 0 means
	// DefaultSnapshotTimeout.
	SnapshotTimeout time.Duration

	// HandshakeTimeout bounds a new connection's handshake. 0 means
	// DefaultServerHandshake.
	HandshakeTimeout time.Duration

	// Preload, if set, gives the keys that the map begins with, such as those of a
	// dump: NewServer puts them all into the map, the last one of a key wins. Their
	// times to live begin then. An error ends NewServer with that error, and so does
	// an entry that a client could not set: a *MessageError or ErrEmptyValue. The
	// entries are copied.
	//
	// A server begins with an empty map otherwise, and its clients delete what they
	// have from before (but see ClientOptions.KeepOnEmpty).
	Preload iter.Seq2[Entry, error]

	// Log, if set, keeps the map: package clustermap/chp/durable opens one on a disk.
	// NewServer replays it, and the map begins as the log ends, with its sequences and
	// the times to live, which went on meanwhile. Every update is appended to it.
	// The server takes the log over: it closes the log when it ends, and NewServer does
	// if it fails. When a write or a flush fails, the server ends with that error,
	// because it could not keep what it takes. Preload counts only if the log is
	// empty.
	Log commit.Log

	// Sync says when the log is flushed, and by that what the failure of the machine
	// can lose. With commit.Always nobody is told of an update before it is on the
	// disk. The zero value flushes every 100 ms: updates are published before, so
	// the failure of the machine, though not of the process, can lose some that
	// clients have seen.
	Sync commit.Policy

	// Pair, if set, makes the server one of two. It goes with neither Preload nor a
	// Model other than 6: a client sets the keys that a pair is to begin with.
	Pair *PairOptions

	// OnReplay, if set, is called now and then while NewServer replays the log, and
	// once when it has.
	OnReplay func(ReplayProgress)

	// Logger gets what an operator wants to know. The server never waits for it:
	// records are queued, up to 1,024 of them, and those of one kind are limited to
	// ten a second, except at level Debug. Those left out are counted, and the
	// count is logged. Serve waits a second at most for the logger to take the last
	// ones. nil means slog.Default.
	Logger *slog.Logger
}

func (o ServerOptions) withDefaults() (ServerOptions, error) {
	var errs []error
	if o.Port < 0 || o.Port > 65533 {
		errs = append(errs, &OptionError{"Port", fmt.Sprintf("%d: P, P+1 and P+2 must be between 1 and 65535", o.Port)})
	}
	if strings.ContainsAny(o.Host, " \t\r\n/\x00") || strings.Contains(o.Host, ":") && net.ParseIP(zoneless(o.Host)) == nil {
		errs = append(errs, &OptionError{"Host", fmt.Sprintf("%q is not an address, a name or *; the port is in Port", o.Host)})
	}
	if err := o.Security.Validate(); err != nil {
		errs = append(errs, err)
	}
	if err := o.Model.check(); err != nil {
		errs = append(errs, err)
	}
	if o.Security.PlainUsername != "" || o.Security.PlainPassword != "" {
		errs = append(errs, &OptionError{"Security.PlainUsername", "is for a client; a server sets PlainServer"})
	}
	if !o.Security.CurveServer && (!o.Security.CurveSecretKey.IsZero() || !o.Security.CurveServerKey.IsZero()) {
		errs = append(errs, &OptionError{"Security.CurveServer", "is not set: a server with CURVE sets CurveServer and CurveSecretKey, and no CurveServerKey"})
	}
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"HeartbeatInterval", int64(o.HeartbeatInterval)}, {"MaxValueSize", int64(o.MaxValueSize)},
		{"SubscriberQueue", int64(o.SubscriberQueue)}, {"SubscriberMemory", int64(o.SubscriberMemory)},
		{"MaxMapBytes", o.MaxMapBytes}, {"SnapshotMemory", int64(o.SnapshotMemory)},
		{"SnapshotTimeout", int64(o.SnapshotTimeout)}, {"HandshakeTimeout", int64(o.HandshakeTimeout)},
	} {
		if f.value < 0 {
			errs = append(errs, &OptionError{f.name, "must not be negative"})
		}
	}
	if o.Log != nil && o.MaxValueSize > maxLoggedValue {
		errs = append(errs, &OptionError{"MaxValueSize", fmt.Sprintf("%d is over %d MiB, the most with a log", o.MaxValueSize, maxLoggedValue>>20)})
	}
	if o.MaxValueSize > maxMaxValueSize {
		errs = append(errs, &OptionError{"MaxValueSize", fmt.Sprintf("%d is over %d MiB", o.MaxValueSize, maxMaxValueSize>>20)})
	}
	if o.Pair != nil {
		p, bad := o.Pair.withDefaults()
		o.Pair, errs = &p, append(errs, bad...)
		if !o.Model.dialect().full {
			errs = append(errs, &OptionError{"Model", "is not for a server of a pair: it needs the full protocol"})
		}
		if s, peer := &o.Security, &p.PeerSecurity; s.CurveServer != !peer.CurveServerKey.IsZero() || s.CurveServer && s.CurveSecretKey != peer.CurveSecretKey {
			errs = append(errs, &OptionError{"Pair.PeerSecurity", "does not go with Security: with CURVE both have this server's CurveSecretKey, and PeerSecurity has the other server's CurveServerKey"})
		}
		if o.Preload != nil {
			errs = append(errs, &OptionError{"Preload", "is not for a server of a pair: the servers would begin with different maps"})
		}
	}
	setDefault(&o.Host, "127.0.0.1")
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
	setDefault(&o.SnapshotTimeout, DefaultSnapshotTimeout)
	setDefault(&o.HandshakeTimeout, DefaultServerHandshake)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o, errors.Join(errs...)
}

// zoneless returns an address of IPv6 without its zone.
func zoneless(address string) string {
	address, _, _ = strings.Cut(address, "%")
	return address
}

// withoutSecrets returns what a server keeps of its options. The sockets have the
// keys; printing a Server shows none of them.
func (o ServerOptions) withoutSecrets() ServerOptions {
	o.Security = sockets.Security{}
	if o.Pair != nil {
		p := *o.Pair
		p.PeerSecurity = sockets.Security{}
		o.Pair = &p
	}
	return o
}

// setDefault puts the default for the zero value.
func setDefault[T comparable](v *T, standard T) {
	var zero T
	if *v == zero {
		*v = standard
	}
}
