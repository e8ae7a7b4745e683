package chp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"clustermap/chp/internal/order"
	"clustermap/chp/internal/rights"
	"clustermap/chp/internal/wire"
	"clustermap/internal/hooks"
	"clustermap/internal/kvmsg"
	"clustermap/internal/visible"
	"clustermap/internal/wake"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// errNoRights is the reason for disconnecting a client that may nothing any more.
var errNoRights = errors.New("chp: the client has no rights")

// errRights is the reason for disconnecting a client whose rights have changed.
var errRights = errors.New("chp: the client's rights have changed")

// restrict makes the server give each client only what Access allows. The connections of the state endpoint, which only the other server
// of a pair needs, are for the owners of the servers' keys.
func (s *Server) restrict(o *ServerOptions) {
	s.rights = rights.NewPeers(s.role)
	s.admins.roles = s.rights.Of
	o.Security.Authenticate = s.authenticate
}

// authenticate is the Authenticator of the three ports.
func (s *Server) authenticate(ctx context.Context, r sockets.AuthRequest) (sockets.User, error) {
	if s.admins.proves(r) {
		return sockets.User{}, nil
	}
	user, err := s.opts.Access.Authenticate(ctx, r)
	if err != nil && s.opts.Pair != nil && r.Mechanism == "NULL" {
		// It may be the other server of the pair, which proves itself later; others may nothing.
		return sockets.User{}, nil
	}
	return user, err
}

// authenticatePeer is the Authenticator of the state endpoint: no client's key opens it, nor an administrator's.
func (s *Server) authenticatePeer(ctx context.Context, r sockets.AuthRequest) (sockets.User, error) {
	switch {
	case r.Mechanism == "NULL", r.Mechanism == "CURVE" && s.admins.owner(r.PublicKey()) >= ownerPeer:
		return sockets.User{}, nil
	case r.Mechanism == "CURVE":
		return sockets.User{}, sockets.ErrDenied
	}
	return s.opts.Access.Authenticate(ctx, r)
}

// proves reports whether somebody has proved one of the keys of administrators and servers.
func (a *admins) proves(r sockets.AuthRequest) bool {
	return r.Mechanism == "CURVE" && a.owner(r.PublicKey()) != 0
}

// role returns the role of a connection, or nil if it may not be.
func (s *Server) role(peer *sockets.Peer) *Role {
	key := peer.PublicKey()
	switch {
	case strings.HasPrefix(peer.Stats().Endpoint, "inproc://"): // this process
		return rights.Root("")
	case s.admins.curve && s.admins.owner(key) == ownerPeer:
		return rights.Peer(key.String())
	case s.admins.curve && s.admins.owner(key) != 0:
		return rights.Root(key.String())
	}
	role := s.opts.Access.Role(peer)
	if role == nil && s.opts.Pair != nil && key.IsZero() && peer.UserID() == "" {
		return new(Role) // see authenticate
	}
	return role
}

// runAccess disconnects the clients whose rights have changed.
func (s *Server) runAccess(ctx context.Context) {
	for first := true; ; first = false {
		changed := s.opts.Access.Changed()
		s.countShares()
		n := s.Recheck()
		if !first {
			s.events.Info("rights changed", "connections", n)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// countShares counts what is in the parts of the map that have limits.
func (s *Server) countShares() {
	s.shares.Clear() // those of former roles
	var specs []string
	if all, ok := s.opts.Access.(interface{ Roles() []*Role }); ok {
		for _, role := range all.Roles() {
			if role.Limits().Shares() {
				specs = append(specs, role.Writes()...)
			}
		}
	}
	s.sequencer.Count(specs)
}

// share returns what a client with a role may add, or nil if that is not bounded.
func (s *Server) share(role *Role) *order.Share {
	limits := role.Limits()
	if !limits.Shares() {
		return nil
	}
	known, ok := s.shares.Load(role)
	if !ok {
		known, _ = s.shares.LoadOrStore(role, order.NewShare(role.Writes(), limits.Keys, limits.Map))
	}
	return known.(*order.Share)
}

// shareOf is share for somebody whose updates another node of the cluster has taken.
func (s *Server) shareOf(name string) *order.Share {
	all, ok := s.opts.Access.(interface{ Roles() []*Role })
	if !ok {
		return nil
	}
	for _, role := range all.Roles() {
		if role.Name() == name {
			return s.share(role)
		}
	}
	return nil
}

// Recheck disconnects the connections that began under rights which are no longer those of their clients, and returns
// how many that are: what Access says of them has changed (the server calls it then by itself), or
// ServerOptions.Accepted no longer accepts them.
func (s *Server) Recheck() (connections int) {
	for _, all := range []*rights.Peers{s.rights, s.accepted} {
		for _, peer := range all.Refresh() {
			s.events.Info("disconnects a client whose rights have changed", who(peer), "user", peer.UserID())
			peer.Disconnect(errRights)
			connections++
		}
	}
	return connections
}

// stillAccepted returns the role of a connection for ServerOptions.Accepted, which knows only all and nothing.
func (s *Server) stillAccepted(peer *sockets.Peer) *Role {
	if strings.HasPrefix(peer.Stats().Endpoint, "inproc://") || s.opts.Accepted(peer) {
		return acceptedRole
	}
	return nil
}

var acceptedRole = rights.Root("")

// maySubscribe reports whether a peer of the publisher may have what a subscription stands for.
func (s *Server) maySubscribe(peer any, topic []byte) bool {
	client := peer.(*sockets.Peer)
	role := s.rights.Of(client)
	if role.MayHear(topic) {
		return true
	}
	err := &AccessError{Name: role.Name(), Verb: VerbRead, Key: string(topic)}
	s.counts.refused.add(err)
	s.peerLog.Refused("subscription refused", client, err)
	return false
}

// mayAsk reports whether a peer may ask a question, and answers it if not. What is no question it may.
func (s *Server) mayAsk(peer *sockets.Peer, m zmtp.WireMessage) bool {
	role := s.rights.Of(peer)
	if number, key, _, ok := wire.ParseHistoryQuestion(m); ok {
		return s.allows(peer, m, number, role.Allow(VerbRead, string(key)))
	}
	if m.Len() != 1 {
		return true
	}
	switch wire.QuestionOf(m) {
	case wire.AskStatus, wire.AskHandover, wire.AskPromote, wire.AskReload:
		return s.allows(peer, m, 0, role.Allow(VerbAdmin, ""))
	}
	return true
}

// mayJoin reports whether a peer may have what it has requested, and answers it if not.
func (s *Server) mayJoin(peer *sockets.Peer, m zmtp.WireMessage, w wire.Want) bool {
	role := s.rights.Of(peer)
	for _, spec := range w.Specs() {
		if !s.allows(peer, m, 0, role.Allow(VerbRead, spec)) {
			s.counts.badAsks.Add(1)
			return false
		}
	}
	return true
}

// allows reports whether err is nil. If it is not, it tells the peer that has sent m: one of another implementation, which does
// not understand that, by the end of the connection.
func (s *Server) allows(peer *sockets.Peer, m zmtp.WireMessage, number uint64, err error) bool {
	var why *AccessError
	if !errors.As(err, &why) {
		return true
	}
	s.counts.refused.add(err)
	s.peerLog.Refused("request refused", peer, err)
	if !wire.Ours(peer) {
		peer.Disconnect(err)
		return false
	}
	answer := wire.AppendDenial(nil, &wire.Denial{Question: wire.QuestionOf(m), Number: number, Why: *why})
	if err := hooks.SendWireTo(wake.Ended, s.router, peer, answer, 1, nil); err != nil {
		s.log.Debug("no answer sent", "remote", peer.RemoteAddr(), "answer", "DENIED", "error", err)
	}
	return false
}

// leaseOwner returns who has granted a lease, and false if there is none.
func (s *Server) leaseOwner(id kvmsg.LeaseID) (name string, ok bool) {
	now := s.live.Now()
	if now == nil {
		return "", false
	}
	ok = now.Store.View(kvmsg.AppendLeaseKey(nil, id), func(r kvmsg.Record) { _, name, _ = kvmsg.Properties(r.Props()).Stamped() })
	return name, ok
}

// mayAskLease reports whether a client may ask a question about a lease: it may renew and revoke its own, and look at those
// that it may read. there says whether this server knows the lease: if not, anybody may ask for it.
func (s *Server) mayAskLease(peer *sockets.Peer, kind wire.LeaseKind, id kvmsg.LeaseID) (may, there bool) {
	role := s.rights.Of(peer)
	var space [64]byte
	key := kvmsg.AppendLeaseKey(space[:0], id)
	if role.MayWrite(key) || kind == wire.LeaseLook && role.MayRead(key) {
		return true, true
	}
	name, there := s.leaseOwner(id)
	if !there || name == role.Name() && role.WritesSome() {
		return true, there
	}
	err := leaseDenied(role.Name(), kind, string(key))
	s.counts.refused.add(err)
	s.peerLog.Refused("request refused", peer, err)
	return false, true
}

// answerOwnLeases is Sequencer.Leases for a client that may not ask for all leases.
func (s *Server) answerOwnLeases(a *leaseAnswers, peer *sockets.Peer, kind wire.LeaseKind, ids []kvmsg.LeaseID) (ok bool) {
	a.left, ok = a.left[:0], true
	for i, id := range ids {
		if may, _ := s.mayAskLease(peer, kind, id); !may {
			a.left = append(a.left, wire.LeaseDenied)
			continue
		}
		if a.left, ok = s.sequencer.Leases(kind, ids[i:i+1], a.left); !ok {
			return false
		}
	}
	return true
}

// relayOwnLeases is answerOwnLeases at a node of a cluster, where the leader knows the leases. This node may not know a lease yet: then it
// only looks whether there is one, and if so says nothing. The client asks again.
func (s *Server) relayOwnLeases(peer *sockets.Peer, kind wire.LeaseKind, ids []kvmsg.LeaseID, done func(left []time.Duration)) {
	var known, unknown []kvmsg.LeaseID
	left := make([]time.Duration, len(ids))
	var from []int // where known come in left
	for i, id := range ids {
		switch may, there := s.mayAskLease(peer, kind, id); {
		case !may:
			left[i] = wire.LeaseDenied
		case there:
			known, from = append(known, id), append(from, i)
		default:
			unknown = append(unknown, id)
		}
	}
	ask := func(kind wire.LeaseKind, ids []kvmsg.LeaseID, done func([]time.Duration)) {
		if len(ids) == 0 {
			done(nil)
			return
		}
		s.member.Leases(kind, ids, func(some []time.Duration) {
			if len(some) == len(ids) {
				done(some)
			}
		})
	}
	ask(wire.LeaseLook, unknown, func(some []time.Duration) {
		if slices.ContainsFunc(some, func(d time.Duration) bool { return d != wire.LeaseGone }) {
			return
		}
		ask(kind, known, func(some []time.Duration) {
			for i, d := range some {
				left[from[i]] = d
			}
			done(left)
		})
	})
}

// Identity is who a client is to a server, and what it may do.
type Identity struct {
	Name string `json:"name"` // "" if the client has proved nothing, or nobody asked
	Key  string `json:"key"`  // the public key that it has proved with CURVE, or ""

	// Restricted reports whether the server has Access. Otherwise every client may read and write
	// everything, and the fields below are those of that.
	Restricted bool     `json:"restricted"`
	Read       []string `json:"read"`  // parts of the map, as in RoleOptions
	Write      []string `json:"write"` // parts of the map, as in RoleOptions
	Admin      bool     `json:"admin"`
	Updates    int      `json:"updates"` // most updates a second, or 0
	Bytes      int64    `json:"bytes"`   // most bytes of updates a second, or 0
	Keys       int64    `json:"keys"`    // most keys in the parts that it may write, or 0
	Map        int64    `json:"map"`     // most bytes that these may have, or 0
}

// identify returns the JSON of a peer's Identity.
func (s *Server) identify(peer *sockets.Peer) []byte {
	i := Identity{Name: peer.UserID(), Key: keyText(peer), Restricted: s.rights != nil, Admin: s.admins.check(peer) == nil}
	role := rights.Root(i.Name)
	if s.rights != nil {
		role = s.rights.Of(peer)
		i.Name = role.Name()
	}
	limits := role.Limits()
	i.Read, i.Write, i.Updates, i.Bytes = role.Reads(), role.Writes(), limits.Updates, limits.Bytes
	i.Keys, i.Map = limits.Keys, limits.Map
	text, err := json.Marshal(&i)
	if err != nil {
		panic(err) // it has numbers and strings only
	}
	return text
}

// WhoAmI asks the server at tcp://host:P who it takes this client for, and what it may do. security is the same as
// [ClientOptions.Security]. A server of an earlier version does not answer.
func WhoAmI(ctx context.Context, server string, security sockets.Security) (Identity, error) {
	var i Identity
	text, err := ask(ctx, server, security, wire.AskWho, wire.AnswerWho)
	if err == nil {
		err = json.Unmarshal(text, &i)
	}
	return i, err
}

// ReloadError reports that a server has not read its files again, or not all of them.
type ReloadError struct {
	Server string // as passed to Reload
	Reason string // the server's answer
}

func (e *ReloadError) Error() string {
	return fmt.Sprintf("chp: %s goes on with what it had: %s", e.Server, visible.String(e.Reason))
}

// Reload asks the server at tcp://host:P to read again what it has in files: rights, keys and others; see
// ServerOptions.Reload. If it cannot, the error is a [*ReloadError], and what it could not read stays as it was. Only an administrator may ask.
func Reload(ctx context.Context, server string, security sockets.Security) error {
	reason, err := ask(ctx, server, security, wire.AskReload, wire.AnswerReload)
	if err == nil && len(reason) > 0 {
		err = &ReloadError{server, string(reason)}
	}
	return err
}

var errNoFiles = errors.New("the server reads nothing again")

// startReload calls ServerOptions.Reload at the request of a peer.
func (s *Server) startReload(ctx context.Context, peer *sockets.Peer) {
	ended := func(err error) {
		var reason []byte
		if err != nil {
			s.peerLog.Log(slog.LevelWarn, "does not read its files again", keyText(peer), who(peer), slog.Any("error", err))
			reason = []byte(err.Error())
		}
		s.reply(peer, wire.AnswerReload, reason)
	}
	err := s.admins.check(peer)
	switch {
	case err != nil:
	case s.opts.Reload == nil:
		err = errNoFiles
	case !s.handovers.begin(ctx, func(ctx context.Context) error {
		s.events.Info("reads its files again at the request of a client", who(peer))
		return s.opts.Reload(ctx)
	}, ended):
		err = errBusy
	default:
		return
	}
	ended(err)
}

var errBusy = errors.New("another request is under way")
