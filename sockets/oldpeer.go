package sockets

import "clustermap/zmtp"

// Differences with peers of ZMTP 2.0 and 1.0, in addition to the framing, which a
// codec handles: they do not understand commands, so they are sent no PING and
// confirm no subscriptions by a PONG; and the oldest do not send subscriptions.

// oldSubscribeAll is a subscription to everything in ZMTP 1.0 framing.
const oldSubscribeAll = "\x02\x00\x01"

// subscribeAll adds a subscription to everything, before anything else that the
// peer sends, if the peer is a subscriber that does not send its subscriptions
// but filters messages itself. libzmq does the same.
func (s *session) subscribeAll(kind zmtp.SocketType) {
	if (kind == zmtp.PUB || kind == zmtp.XPUB) && !s.peer.SendsSubscriptions() {
		s.early = append([]byte(oldSubscribeAll), s.early...)
	}
}

// Values of Options.MinVersion.
const (
	oldestVersion = 1
	newestVersion = 3
)

// checkVersion validates MinVersion and fills in its default.
func (o *Options) checkVersion(bad func(field, format string, args ...any)) {
	switch {
	case o.MinVersion == 0:
		o.MinVersion = oldestVersion
	case o.MinVersion < oldestVersion || o.MinVersion > newestVersion:
		bad("MinVersion", "%d is not 1, 2 or 3", o.MinVersion)
	}
}

// minVersion returns MinVersion for a handshake. If peers must be
// authenticated, versions that are too old for that are refused. Mechanisms
// other than NULL do so themselves.
func (o *Options) minVersion() uint8 {
	if o.Security.ZAPDomain != "" || o.Security.Authenticate != nil {
		return newestVersion
	}
	return uint8(o.MinVersion)
}
