// Package peerlog logs what an operator wants to know about the peers of sockets: who was
// denied, who failed, who came and went. A server and the devices use it alike.
package peerlog

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"clustermap/internal/hosts"
	"clustermap/internal/lograte"
	"clustermap/sockets"
)

// Port scans and health checks close connections during the handshake, so one is worth no
// warning. As many of one peer between two lines are: a health check each second has fewer
// in the longest interval.
const (
	aborted = "peer closed the connection during the handshake"
	many    = 1000
)

// A Log logs events about peers. All methods are safe for concurrent use.
type Log struct {
	to    *slog.Logger
	limit lograte.Limiter

	unaccepted atomic.Bool // connections could not be accepted, and none has been since

	mu     sync.Mutex
	denied map[netip.Addr]map[string]struct{} // names that were denied since the time below, by address
	since  time.Time
}

// New returns a log that writes to a logger.
func New(to *slog.Logger) *Log {
	return &Log{to: to, limit: lograte.Limiter{First: first, Most: most, Size: size}}
}

// wentAway are the errors of a connection that the peer closed, in particular during the
// handshake. Port scans and health checks do that.
var wentAway = []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE}

// overLimit are the errors of a connection that a socket ended because of a limit.
var overLimit = []error{sockets.ErrSlowPeer, sockets.ErrStalled, sockets.ErrTooLarge, sockets.ErrTooManySubscriptions, sockets.ErrTooManyConnections}

// among reports whether err matches one of all (errors.Is).
func among(err error, all []error) bool {
	return slices.ContainsFunc(all, func(one error) bool { return errors.Is(err, one) })
}

// Connection logs what an operator wants to know about a connection of the socket at port,
// with who the peer is: connections that are refused or fail and, if comings is true, peers
// that come and go. Everything else is for debugging.
func (l *Log) Connection(e sockets.Event, port string, comings bool) {
	level, text := slog.LevelDebug, e.Kind.String()
	var denied *sockets.DeniedError
	switch e.Kind {
	case sockets.EventAcceptFailed:
		level = slog.LevelWarn
		l.unaccepted.Store(true)
	case sockets.EventAccepted:
		if l.unaccepted.Load() && l.unaccepted.CompareAndSwap(true, false) {
			level, text = slog.LevelWarn, "connections are accepted again"
			e.Remote = "" // it is not about the one that was
		}
	case sockets.EventHandshakeSucceeded:
		if comings {
			level, text = slog.LevelInfo, "client connected"
		}
	case sockets.EventHandshakeFailed:
		switch {
		case errors.As(e.Err, &denied):
			level, text = slog.LevelWarn, "client denied"
		case errors.Is(e.Err, context.Canceled): // this side closes the connection
		case among(e.Err, wentAway):
			level, text = slog.LevelInfo, aborted
		default:
			level = slog.LevelWarn
		}
	case sockets.EventDisconnected:
		switch {
		case among(e.Err, overLimit):
			level, text = slog.LevelWarn, "client disconnected"
		case comings:
			level, text = slog.LevelInfo, "client disconnected"
		}
	}
	at := slog.String("remote", e.Remote)
	if e.Remote == "" { // not about a connection
		at = slog.String("endpoint", e.Endpoint)
	}
	attrs := []slog.Attr{slog.String("port", port), at}
	switch {
	case denied != nil:
		attrs = append(attrs, identity(denied.Request.PublicKey().String(), denied.Request.PublicKey().IsZero(), denied.Request.Username())...)
	case e.Peer != nil:
		attrs = append(attrs, Identity(e.Peer)...)
	}
	if e.Err != nil {
		attrs = append(attrs, slog.Any("error", e.Err))
	}
	if level == slog.LevelDebug {
		l.to.LogAttrs(context.Background(), level, text, attrs...)
		return
	}
	host, _, err := net.SplitHostPort(e.Remote)
	if err != nil {
		host = e.Remote
	}
	who := []string{host}
	for _, a := range attrs {
		if a.Key == "key" || a.Key == "user" {
			who = append(who, a.Value.String())
		}
	}
	if denied != nil && !l.tellsApart(host, strings.Join(who[1:], " "), time.Now()) {
		who = who[:1]
	}
	l.Log(level, text, strings.Join(who, " "), attrs...)
}

// tellsApart reports whether a name that was denied counts for itself in the log. Whoever is denied chooses it, so of one address
// some do.
func (l *Log) tellsApart(host, name string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.denied == nil || now.Sub(l.since) > first {
		l.denied, l.since = map[netip.Addr]map[string]struct{}{}, now
	}
	from := hosts.Of(host)
	names := l.denied[from]
	if _, known := names[name]; known {
		return true
	}
	if len(names) >= maxDenied || len(l.denied) >= size {
		return false
	}
	if names == nil {
		names = map[string]struct{}{}
		l.denied[from] = names
	}
	names[name] = struct{}{}
	return true
}

// Identity returns the attributes that say who a peer is: its public key, and its user ID
// unless that is the key.
func Identity(peer *sockets.Peer) []slog.Attr {
	return identity(peer.PublicKey().String(), peer.PublicKey().IsZero(), peer.UserID())
}

func identity(key string, noKey bool, user string) (attrs []slog.Attr) {
	if !noKey {
		attrs = append(attrs, slog.String("key", key))
	}
	if user != "" && user != key {
		attrs = append(attrs, slog.String("user", user))
	}
	return attrs
}

// Refused logs that something of a peer was refused, and why. Errors with one root are one reason: what else they say, such as
// the key of an update, the peer has chosen.
func (l *Log) Refused(text string, peer *sockets.Peer, why error, attrs ...slog.Attr) {
	host, _ := peer.Property("Peer-Address")
	all := []slog.Attr{slog.String("remote", peer.RemoteAddr()), slog.Any("error", why)}
	all = append(append(all, attrs...), Identity(peer)...)
	l.Log(slog.LevelWarn, text, host+" "+peer.UserID()+" "+root(why).Error(), all...)
}

// root returns the innermost of the errors that err wraps.
func root(err error) error {
	for next := err; next != nil; next = errors.Unwrap(err) {
		err = next
	}
	return err
}

// Log logs an event about a peer, if it is due. Texts are few, and who is short.
func (l *Log) Log(level slog.Level, text, who string, attrs ...slog.Attr) {
	if !l.to.Enabled(context.Background(), severity(level, text, many)) {
		return
	}
	due, omitted := l.limit.Due(who, level.String()+" "+text, time.Now())
	if !due {
		return
	}
	if omitted > 0 {
		attrs = append(attrs, slog.Int("repeated", omitted))
	}
	l.to.LogAttrs(context.Background(), severity(level, text, omitted), text, attrs...)
}

// severity returns the level of a line about an event with as many left out before it.
func severity(level slog.Level, text string, omitted int) slog.Level {
	if text == aborted && omitted >= many {
		return slog.LevelWarn
	}
	return level
}

// Flush logs what was left out and has not occurred again, at the level that it has. It is
// for a goroutine that runs now and then.
func (l *Log) Flush(now time.Time) {
	l.limit.Flush(now, func(who, kind string, omitted int) {
		name, text, _ := strings.Cut(kind, " ")
		var level slog.Level
		_ = level.UnmarshalText([]byte(name)) // as Log has written it
		if who == "" {
			who = "several"
		}
		l.to.Log(context.Background(), severity(level, text, omitted), "repeated: "+text, "peer", who, "repeated", omitted)
	})
}
