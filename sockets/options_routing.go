package sockets

import "fmt"

// Notices says of what a ROUTER is to notify the application: see
// Options.Notify. The values are libzmq's.
type Notices uint8

const (
	// NotifyConnect: a peer's handshake has succeeded.
	NotifyConnect Notices = 1 << iota
	// NotifyDisconnect: such a peer's connection has ended.
	NotifyDisconnect
)

// checkIdentity returns what is wrong with an identity of at least so many
// bytes, as an *OptionError.
func checkIdentity(field string, identity []byte, least int) error {
	switch {
	case len(identity) < least || len(identity) > 255:
		return &OptionError{field, fmt.Sprintf("has %d bytes; %d to 255 are possible", len(identity), least)}
	case len(identity) > 0 && identity[0] == 0:
		return &OptionError{field, "must not begin with a zero byte, which marks generated ones"}
	}
	return nil
}

// validateRouting returns what is wrong with the options of the routing
// sockets.
func (o *Options) validateRouting() (errs []error) {
	if err := checkIdentity("Identity", o.Identity, 0); err != nil {
		errs = append(errs, err)
	}
	if o.Notify > NotifyConnect|NotifyDisconnect {
		errs = append(errs, &OptionError{"Notify", fmt.Sprintf("%#x has other bits than NotifyConnect and NotifyDisconnect", uint8(o.Notify))})
	}
	return errs
}
