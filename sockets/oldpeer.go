package sockets

import "clustermap/zmtp"

// What differs with peers of ZMTP 2.0 and 1.0, beside the framing, which is a
// codec's business: they know no commands, so they are sent no PING and prove
// nothing by a PONG, and the oldest do not send their subscriptions.

// oldSubscribeAll is a subscription to everything in ZMTP 1.0 framing.
const oldSubscribeAll = "\x02\x00\x01"

// subscribeAll lets a subscriber that does not send its subscriptions, and
// filters what it gets itself, have sent one to everything, before whatever else
// it sends. libzmq does the same.
func (s *session) subscribeAll(kind zmtp.SocketType) {
	if (kind == zmtp.PUB || kind == zmtp.XPUB) && !s.peer.SendsSubscriptions() {
		s.early = append([]byte(oldSubscribeAll), s.early...)
	}
}

// minVersions is the values of Options.MinVersion.
const (
	oldestVersion = 1
	newestVersion = 3
)

// checkVersion validates MinVersion and puts its default.
func (o *Options) checkVersion(bad func(field, format string, args ...any)) {
	switch {
	case o.MinVersion == 0:
		o.MinVersion = oldestVersion
	case o.MinVersion < oldestVersion || o.MinVersion > newestVersion:
		bad("MinVersion", "%d is none of 1, 2 and 3", o.MinVersion)
	}
}

// minVersion is MinVersion for a handshake. Where peers are to be judged, those
// too old for that are not let in; a mechanism sees to that itself.
func (o *Options) minVersion() uint8 {
	if o.Security.ZAPDomain != "" || o.Security.Authenticate != nil {
		return newestVersion
	}
	return uint8(o.MinVersion)
}
