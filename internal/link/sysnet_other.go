//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly) || portable

package link

import (
	"context"
	"errors"
	"net"
	"syscall"
)

// addressInUse says that a bind failed because the address is taken. The number
// is Windows' WSAEADDRINUSE.
func addressInUse(err error) bool {
	return errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, syscall.Errno(10048))
}

// MaxPath is the longest path of an ipc endpoint, in bytes.
const MaxPath = 107

// isStale says that nobody listens at path. Who does sees a connection that
// ends at once.
func isStale(ctx context.Context, path string) bool {
	var d net.Dialer
	nc, err := d.DialContext(ctx, "unix", path)
	if err == nil {
		nc.Close()
	}
	return err != nil && ctx.Err() == nil
}

// lockDirectory is for systems with advisory locks on directories.
func lockDirectory(context.Context, string) (unlock func(), err error) { return func() {}, nil }

// setBacklog leaves the backlog as package net has chosen it.
func setBacklog(syscall.Conn, int) error { return nil }

// HaveTOS says that Options.TOS can be set.
const HaveTOS = false

func setTOS(string, uintptr, int) error { return errors.ErrUnsupported }

// setReuseAddress has nothing to do: a connecting socket may use such a port.
func setReuseAddress(uintptr) error { return nil }
