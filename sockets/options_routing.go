package sockets

import "fmt"

// Notices selects the events of which a ROUTER notifies the application with a
// message; see [Options.Notify]. The values are those of ZMQ_ROUTER_NOTIFY.
type Notices uint8

const (
	// NotifyConnect notifies when a peer's handshake has succeeded.
	NotifyConnect Notices = 1 << iota
	// NotifyDisconnect notifies when the connection of such a peer has ended.
	NotifyDisconnect
)

// checkIdentity returns an *OptionError if the identity has fewer than least
// bytes, more than 255, or begins with a zero byte.
func checkIdentity(field string, identity []byte, least int) error {
	switch {
	case len(identity) < least || len(identity) > 255:
		return &OptionError{field, fmt.Sprintf("has %d bytes; it must have %d to 255", len(identity), least)}
	case len(identity) > 0 && identity[0] == 0:
		return &OptionError{field, "must not begin with a zero byte, which is reserved for generated identities"}
	}
	return nil
}

// validateRouting returns the faults of the options of ROUTER sockets.
func (o *Options) validateRouting() (errs []error) {
	if err := checkIdentity("Identity", o.Identity, 0); err != nil {
		errs = append(errs, err)
	}
	if o.Notify > NotifyConnect|NotifyDisconnect {
		errs = append(errs, &OptionError{"Notify", fmt.Sprintf("%#x has bits other than NotifyConnect and NotifyDisconnect", uint8(o.Notify))})
	}
	return errs
}
