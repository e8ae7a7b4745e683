package chp

import (
	"errors"
	"log/slog"
	"maps"
	"strings"

	"clustermap/chp/internal/ports"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// admins decides which clients are administrators: those that may make a server hand
// over. Reading and writing the map needs no such right. It is immutable.
type admins struct {
	curve    bool                      // clients prove their keys
	keys     map[zmtp.PublicKey]bool   // of administrators, and servers
	servers  map[zmtp.PublicKey]bool   // of both servers of a pair
	anywhere bool                      // every client is one
	local    func(remote string) bool  // whether a network address is this machine's; replaced by tests
	own      zmtp.PublicKey            // of this server
	peer     zmtp.PublicKey            // of the other server of a pair
	roles    func(*sockets.Peer) *Role // with Access, which decides; else nil
}

var (
	errNotAdmin = errors.New("this client is not an administrator: it needs the server's own key or one of --curve-admin")
	errNotLocal = errors.New("without CURVE only clients on the server's machine are administrators, unless it has --admin-anywhere")
)

func newAdmins(o *ServerOptions) *admins {
	a := &admins{curve: o.Security.CurveServer, servers: map[zmtp.PublicKey]bool{}, anywhere: o.AdminAnywhere, local: ports.Local}
	if a.curve {
		a.own = o.Security.CurveSecretKey.Public()
		a.servers[a.own] = true
		for _, key := range o.Security.CurveMoreKeys {
			a.servers[key.Public()] = true
		}
	}
	if o.Pair != nil && !o.Pair.PeerSecurity.CurveServerKey.IsZero() {
		a.peer = o.Pair.PeerSecurity.CurveServerKey
		a.servers[a.peer] = true
	}
	a.keys = maps.Clone(a.servers)
	for _, key := range o.Admins {
		a.keys[key] = true
	}
	return a
}

// check returns nil if a peer is an administrator: it has proved one of the keys or,
// without CURVE, connects from this machine. Peers by inproc, which need no credentials
// anywhere, are of this process.
func (a *admins) check(peer *sockets.Peer) error {
	switch {
	case a.roles != nil:
		return a.roles(peer).Allow(VerbAdmin, "")
	case a.anywhere, strings.HasPrefix(peer.Stats().Endpoint, "inproc://"):
		return nil
	case a.curve && !a.keys[peer.PublicKey()]:
		return errNotAdmin
	case !a.curve && !a.here(peer):
		return errNotLocal
	}
	return nil
}

// here reports whether a peer is on this machine.
func (a *admins) here(peer *sockets.Peer) bool {
	endpoint := peer.Stats().Endpoint
	return strings.HasPrefix(endpoint, "inproc://") || strings.HasPrefix(endpoint, "ipc://") || a.local(peer.RemoteAddr())
}

// who describes a peer in the log: its address and, with CURVE, its key.
func who(peer *sockets.Peer) slog.Attr {
	by := []any{slog.String("remote", peer.RemoteAddr())}
	if key := keyText(peer); key != "" {
		by = append(by, slog.String("key", key))
	}
	return slog.Group("by", by...)
}

// keyText returns the key that a peer has proved, or "".
func keyText(peer *sockets.Peer) string {
	if key := peer.PublicKey(); !key.IsZero() {
		return key.String()
	}
	return ""
}
