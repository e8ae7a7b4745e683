//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly) || portable

package sockets

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

// maxSocketPath is the longest path of a Unix domain socket, in bytes.
const maxSocketPath = 107

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

const haveTOS = false

func setTOS(string, uintptr, int) error { return errors.ErrUnsupported }

// setReuseAddress has nothing to do: a connecting socket may use such a port.
func setReuseAddress(uintptr) error { return nil }
