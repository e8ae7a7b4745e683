//go:build !linux || portable

package link

import "errors"

// HaveDevice says that a socket can be bound to a network interface.
const HaveDevice = false

func bindToDevice(uintptr, string) error { return errors.ErrUnsupported }
