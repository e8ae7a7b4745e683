package chp

import (
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"

	"clustermap/chp/internal/ports"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// admins decides which clients are administrators: those that may make a server hand
// over. Reading and writing the map needs no such right.
type admins struct {
	curve    bool                      // clients prove their keys
	anywhere bool                      // every client is one
	local    func(remote string) bool  // whether a network address is this machine's; replaced by tests
	roles    func(*sockets.Peer) *Role // with Access, which decides; else nil
	of       atomic.Pointer[map[zmtp.PublicKey]keyOwner]
}

// keyOwner is who has a key that may administer.
type keyOwner uint8

const (
	ownerAdmin keyOwner = iota + 1
	ownerPeer           // the other server of a pair
	ownerSelf           // this server
)

var (
	errNotAdmin = errors.New("this client is not an administrator: it needs the server's own key or one of --curve-admin")
	errNotLocal = errors.New("without CURVE only clients on the server's machine are administrators, unless it has --admin-anywhere")
)

func newAdmins(o *ServerOptions) *admins {
	a := &admins{curve: o.Security.CurveServer, anywhere: o.AdminAnywhere, local: ports.Local}
	k := ServerKeys{Admins: o.Admins}
	if a.curve {
		k.Own = append([]zmtp.SecretKey{o.Security.CurveSecretKey}, o.Security.CurveMoreKeys...)
	}
	if o.Pair != nil && !o.Pair.PeerSecurity.CurveServerKey.IsZero() {
		k.Peer = append([]zmtp.PublicKey{o.Pair.PeerSecurity.CurveServerKey}, o.Pair.PeerSecurity.CurveMoreServerKeys...)
	}
	a.set(k)
	return a
}

// set replaces the keys.
func (a *admins) set(k ServerKeys) {
	of := map[zmtp.PublicKey]keyOwner{}
	for _, key := range k.Admins {
		of[key] = ownerAdmin
	}
	for _, key := range k.Peer {
		of[key] = ownerPeer
	}
	for _, key := range k.Own { // last: the servers of a pair may have the same
		of[key.Public()] = ownerSelf
	}
	a.of.Store(&of)
}

// owner returns who has a key, or 0.
func (a *admins) owner(key zmtp.PublicKey) keyOwner { return (*a.of.Load())[key] }

// check returns nil if a peer is an administrator: it has proved one of the keys or,
// without CURVE, connects from this machine. Peers by inproc, which need no credentials
// anywhere, are of this process.
func (a *admins) check(peer *sockets.Peer) error {
	switch {
	case a.roles != nil:
		return a.roles(peer).Allow(VerbAdmin, "")
	case a.anywhere, strings.HasPrefix(peer.Stats().Endpoint, "inproc://"):
		return nil
	case a.curve && a.owner(peer.PublicKey()) == 0:
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
