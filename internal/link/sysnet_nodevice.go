//go:build !linux || portable

package link

import "errors"

// HaveDevice reports whether Options.Device is supported.
const HaveDevice = false

func bindToDevice(uintptr, string) error { return errors.ErrUnsupported }
