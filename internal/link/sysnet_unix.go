//go:build (linux || darwin || freebsd || netbsd || openbsd || dragonfly) && !portable

package link

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// addressInUse reports whether err means that the address is in use.
func addressInUse(err error) bool { return errors.Is(err, unix.EADDRINUSE) }

// isStale reports whether no socket is bound to the file at path. It tries to connect
// a datagram socket: a stream socket refuses that because of the type, so a listener
// sees no connection.
func isStale(ctx context.Context, path string) bool {
	var d net.Dialer
	nc, err := d.DialContext(ctx, "unixgram", path)
	if err == nil {
		nc.Close()
	}
	return errors.Is(err, unix.ECONNREFUSED)
}

// lockDirectory takes an advisory lock on a directory, which creates no file.
func lockDirectory(ctx context.Context, dir string) (unlock func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	timer := time.NewTicker(lockPause)
	defer timer.Stop()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() {
				_ = unix.Flock(int(f.Fd()), unix.LOCK_UN) // a process that is being started has f too
				f.Close()
			}, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			f.Close()
			return nil, err
		}
		select {
		case <-timer.C:
		case <-ctx.Done():
			f.Close()
			return nil, ctx.Err()
		}
	}
}

// setBacklog changes the backlog: listening again on a listening socket does just
// that.
func setBacklog(sc syscall.Conn, n int) error {
	raw, err := sc.SyscallConn()
	if err != nil {
		return err
	}
	return controlRaw(raw, func(fd uintptr) error { return os.NewSyscallError("listen", unix.Listen(int(fd), n)) })
}

// HaveTOS reports whether Options.TOS is supported.
const HaveTOS = true

// setTOS sets the type of service of outgoing packets. An IPv6 socket can carry IPv4
// too, for which the IPv4 option applies.
func setTOS(network string, fd uintptr, tos int) error {
	err := unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TOS, tos)
	if network == "tcp6" {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_TCLASS, tos)
	}
	return os.NewSyscallError("setsockopt", err)
}

// setReuseAddress allows a socket to bind to a port that has connections in the
// TIME_WAIT state.
func setReuseAddress(fd uintptr) error {
	return os.NewSyscallError("setsockopt", unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))
}
