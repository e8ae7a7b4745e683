package sockets

import "clustermap/internal/option"

// Notify selects the events of which a ROUTER or STREAM notifies the application
// with a message; see [Options.Notify]. The values are those of
// ZMQ_ROUTER_NOTIFY.
type Notify uint8

const (
	// NotifyConnect notifies when a peer's handshake has succeeded.
	NotifyConnect Notify = 1 << iota
	// NotifyDisconnect notifies when the connection of such a peer has ended.
	NotifyDisconnect
	// NotifyNone turns the notices of a STREAM off. It is the default of a
	// ROUTER. It cannot be combined with the others.
	NotifyNone

	notifyBoth = NotifyConnect | NotifyDisconnect
)

// checkIdentity returns an *OptionError if the identity has fewer than least
// bytes, more than 255, or begins with a zero byte.
func checkIdentity(field string, identity []byte, least int) error {
	switch {
	case len(identity) < least || len(identity) > 255:
		return option.New("sockets", field, "has %d bytes; it must have %d to 255", len(identity), least)
	case len(identity) > 0 && identity[0] == 0:
		return option.New("sockets", field, "must not begin with a zero byte, which is reserved for generated identities")
	}
	return nil
}
