package majordomo

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"net"
	"net/netip"
	"strings"

	"clustermap/internal/peerlog"
	"clustermap/sockets"
)

// TitanicPrefix is the prefix of the services of a Titanic server (RFC 9). Whoever is a
// worker of them receives the requests that clients want stored, so they are not for
// every peer: see AllowWorkers. One server at a time is the worker of each of them; another
// is refused while it is there.
const TitanicPrefix = "titanic."

// propertyInstance is announced by all connections of one Worker: 16 random bytes in hex. It
// tells them from those of another worker of a service that only one may have.
const propertyInstance = "X-MDP-Instance"

// AllowWorkers returns the function that a broker with these options uses if
// BrokerOptions.AllowWorker is nil. It allows every peer to be a worker of any service,
// except of those that begin with TitanicPrefix. Of these it allows
//
//   - a worker in the broker's process, which is connected over inproc;
//   - with CURVE, a peer with the broker's own key;
//   - if every peer is accepted (no CURVE, no PLAIN, no Authenticate and no ZAPDomain), a
//     peer on the broker's machine: over ipc, or from a loopback address.
func AllowWorkers(o sockets.Options) func(service string, worker *sockets.Peer) bool {
	s := o.Security
	open := !s.CurveServer && !s.PlainServer && s.Authenticate == nil && s.ZAPDomain == ""
	own := s.CurveSecretKey.Public()
	return func(service string, worker *sockets.Peer) bool {
		remote := worker.RemoteAddr()
		switch {
		case !strings.HasPrefix(service, TitanicPrefix), strings.HasPrefix(remote, "inproc://"):
			return true
		case s.CurveServer:
			return worker.PublicKey() == own
		case !open:
			return false
		}
		host, _, err := net.SplitHostPort(remote)
		if err != nil {
			return o.Listen == nil // ipc, unless the program has transports of its own
		}
		ip, err := netip.ParseAddr(host)
		return err == nil && ip.Unmap().IsLoopback()
	}
}

// holder returns who a peer is as the only worker of a service: its Worker, its user, or
// the connection alone.
func (c *conn) holder() any {
	if id, ok := c.peer.Property(propertyInstance); ok {
		return id
	}
	if user := c.peer.UserID(); user != "" {
		return user
	}
	return c
}

// newInstance returns a value for propertyInstance.
func newInstance() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}

// refusal returns why a peer may not be a worker of a service, or "" if it may.
func (b *Broker) refusal(c *conn, service []byte) string {
	switch {
	case !b.opts.AllowWorker(string(service), c.peer):
		return "not allowed"
	case bytes.HasPrefix(service, []byte(TitanicPrefix)):
		if s := b.services.named[string(service)]; s != nil && s.workers > 0 && s.holder != c.holder() {
			return "another worker has the service"
		}
	}
	return ""
}

// logRefusal logs that a peer was refused as a worker, and who it is.
func (b *Broker) logRefusal(c *conn, service []byte, why string) {
	host, _ := c.peer.Property("Peer-Address")
	attrs := []slog.Attr{slog.String("service", string(service)), slog.String("reason", why), slog.String("remote", c.peer.RemoteAddr())}
	b.peerLog.Log(slog.LevelWarn, "worker refused", strings.Join([]string{host, c.peer.UserID(), string(service), why}, " "), append(attrs, peerlog.Identity(c.peer)...)...)
}
