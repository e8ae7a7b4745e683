package chp

import (
	"errors"
	"slices"

	"clustermap/internal/option"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// ServerKeys are the keys that a server with CURVE has and knows, besides those of its clients.
type ServerKeys struct {
	// Own are the server's keys, at least one: clients may know any of them. The first is the one by which the other
	// server of a pair knows this one.
	Own []zmtp.SecretKey

	// Peer are the keys that the other server of a pair may have, at least one. Without a pair there is none.
	Peer []zmtp.PublicKey

	// Admins are those of ServerOptions.Admins.
	Admins []zmtp.PublicKey
}

// SetKeys replaces the keys of a server with CURVE while it serves: those of Security, of
// PairOptions.PeerSecurity and of Admins. Connections that there are stay; those that begin need
// the new ones. So a server gets another key without an interruption, first with the former one beside it. If
// some are missing or zero, nothing changes, and the error joins an [*OptionError] for each.
func (s *Server) SetKeys(k ServerKeys) error {
	if err := s.checkKeys(&k); err != nil {
		return err
	}
	k = ServerKeys{slices.Clone(k.Own), slices.Clone(k.Peer), slices.Clone(k.Admins)}
	s.keys.Lock()
	defer s.keys.Unlock()
	s.admins.set(k)
	change := func(o *sockets.Options) { setOwnKeys(&o.Security, k.Own) }
	err := errors.Join(s.router.SetOptions(change), s.publisher.SetOptions(change), s.collector.SetOptions(change))
	if s.pair != nil {
		s.pairKeys(k)
		s.state.Lock() // Listen has it
		err = errors.Join(err, s.pair.Secure())
		s.state.Unlock()
	}
	s.Recheck()
	return err
}

// checkKeys reports what is wrong with keys.
func (s *Server) checkKeys(k *ServerKeys) error {
	c := option.Checker{Package: "chp"}
	c.If(!s.admins.curve, "Security.CurveServer", "was not set when the server was made")
	c.If(len(k.Own) == 0, "Own", "is empty")
	c.If(slices.ContainsFunc(k.Own, zmtp.SecretKey.IsZero), "Own", "has a key that is zero")
	c.If((len(k.Peer) == 0) != (s.pair == nil), "Peer", "has the keys of the other server of a pair, and none without one")
	c.If(slices.ContainsFunc(k.Peer, zmtp.PublicKey.IsZero), "Peer", "has a key that is zero")
	return c.Err()
}

// setOwnKeys sets the keys of a server.
func setOwnKeys(security *sockets.Security, own []zmtp.SecretKey) {
	security.CurveSecretKey, security.CurvePublicKey, security.CurveMoreKeys = own[0], own[0].Public(), own[1:]
}
