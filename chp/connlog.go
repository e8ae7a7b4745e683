package chp

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"syscall"
	"time"

	"clustermap/sockets"
)

// Limits of the log of a server about its peers: for each peer and kind of event a line at
// once, and then at intervals that double, with the number of events since.
const (
	peerLogFirst = 10 * time.Second
	peerLogMost  = 10 * time.Minute
	peerLogSize  = 4096 // peers and kinds
)

// wentAway reports whether a peer closed the connection, in particular during the
// handshake. Port scans and health checks do that.
func wentAway(err error) bool {
	for _, end := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE} {
		if errors.Is(err, end) {
			return true
		}
	}
	return false
}

// overLimit reports whether the server ended a connection because of a limit.
func overLimit(err error) bool {
	for _, limit := range []error{sockets.ErrSlowPeer, sockets.ErrStalled, sockets.ErrTooLarge, sockets.ErrTooManySubscriptions, sockets.ErrTooManyConnections} {
		if errors.Is(err, limit) {
			return true
		}
	}
	return false
}

// logConnection logs what an operator wants to know about a connection, with who it is:
// clients that come and go (by their publisher connections, since each has one), and those
// that are refused or fail. Everything else is for debugging.
func (s *Server) logConnection(e sockets.Event, port string) {
	level, text := slog.LevelDebug, e.Kind.String()
	var denied *sockets.DeniedError
	switch e.Kind {
	case sockets.EventAcceptFailed:
		level = slog.LevelWarn
	case sockets.EventHandshakeSucceeded:
		if port == "publisher" {
			level, text = slog.LevelInfo, "client connected"
		}
	case sockets.EventHandshakeFailed:
		switch {
		case errors.As(e.Err, &denied):
			level, text = slog.LevelWarn, "client denied"
		case wentAway(e.Err):
			level, text = slog.LevelInfo, "peer closed the connection during the handshake"
		default:
			level = slog.LevelWarn
		}
	case sockets.EventDisconnected:
		switch {
		case overLimit(e.Err):
			level, text = slog.LevelWarn, "client disconnected"
		case port == "publisher":
			level, text = slog.LevelInfo, "client disconnected"
		}
	}
	attrs := []slog.Attr{slog.String("port", port), slog.String("remote", e.Remote)}
	switch {
	case denied != nil:
		attrs = append(attrs, identity(denied.Request.PublicKey().String(), denied.Request.PublicKey().IsZero(), denied.Request.Username())...)
	case e.Peer != nil:
		attrs = append(attrs, identity(e.Peer.PublicKey().String(), e.Peer.PublicKey().IsZero(), e.Peer.UserID())...)
	}
	if e.Err != nil {
		attrs = append(attrs, slog.Any("error", e.Err))
	}
	if level == slog.LevelDebug {
		s.log.LogAttrs(context.Background(), level, text, attrs...)
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
	s.logPeer(level, text, strings.Join(who, " "), attrs...)
}

// identity returns the attributes that say who a peer is: its public key, and its user ID
// unless that is the key.
func identity(key string, noKey bool, user string) (attrs []slog.Attr) {
	if !noKey {
		attrs = append(attrs, slog.String("key", key))
	}
	if user != "" && user != key {
		attrs = append(attrs, slog.String("user", user))
	}
	return attrs
}

// logPeer logs an event about a peer, if it is due.
func (s *Server) logPeer(level slog.Level, text, who string, attrs ...slog.Attr) {
	if !s.log.Enabled(context.Background(), level) {
		return
	}
	log, omitted := s.peerLog.Due(who, text, time.Now())
	if !log {
		return
	}
	if omitted > 0 {
		attrs = append(attrs, slog.Int("repeated", omitted))
	}
	s.log.LogAttrs(context.Background(), level, text, attrs...)
}

// logRepeated logs what was left out and has not occurred again.
func (s *Server) logRepeated(now time.Time) {
	s.peerLog.Flush(now, func(who, text string, omitted int) {
		if who == "" {
			who = "several"
		}
		s.log.Info("repeated: "+text, "peer", who, "repeated", omitted)
	})
}

// logRefused logs that updates of a peer were refused.
func (s *Server) logRefused(peer *sockets.Peer, why error, updates int) {
	host, _ := peer.Property("Peer-Address")
	who := host + " " + peer.UserID() + " " + why.Error()
	attrs := []slog.Attr{slog.String("remote", peer.RemoteAddr()), slog.Any("error", why), slog.Int("updates", updates)}
	attrs = append(attrs, identity(peer.PublicKey().String(), peer.PublicKey().IsZero(), peer.UserID())...)
	s.logPeer(slog.LevelWarn, "updates refused", who, attrs...)
}
