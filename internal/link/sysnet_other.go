//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly) || portable

package link

import (
	"context"
	"errors"
	"net"
	"syscall"
)

// addressInUse reports whether err means that the address is in use. 10048 is
// Windows' WSAEADDRINUSE.
func addressInUse(err error) bool {
	return errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, syscall.Errno(10048))
}

// isStale reports whether no process listens at path. A listener sees a connection
// that is closed at once.
func isStale(ctx context.Context, path string) bool {
	var d net.Dialer
	nc, err := d.DialContext(ctx, "unix", path)
	if err == nil {
		nc.Close()
	}
	return err != nil && ctx.Err() == nil
}

// binding is held while a socket of this process binds a path.
var binding = make(chan struct{}, 1)

// lockDirectory locks all directories, but only against this process.
func lockDirectory(ctx context.Context, _ string) (unlock func(), err error) {
	select {
	case binding <- struct{}{}:
		return func() { <-binding }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// setBacklog does nothing.
func setBacklog(syscall.Conn, int) error { return nil }

// HaveTOS reports whether Options.TOS is supported.
const HaveTOS = false

func setTOS(string, uintptr, int) error { return errors.ErrUnsupported }

// setReuseAddress does nothing: these systems allow a connecting socket to use such a
// port.
func setReuseAddress(uintptr) error { return nil }
