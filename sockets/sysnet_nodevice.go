//go:build !linux || portable

package sockets

import "errors"

const haveBindToDevice = false

func bindToDevice(uintptr, string) error { return errors.ErrUnsupported }
