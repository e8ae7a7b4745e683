//go:build !linux

package sockets

import "errors"

const haveBindToDevice = false

func bindToDevice(uintptr, string) error { return errors.ErrUnsupported }

// maxSendBuffer is 0: how these systems size their buffers was not measured.
func maxSendBuffer() int { return 0 }
