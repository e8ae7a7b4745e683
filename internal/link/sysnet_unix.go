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

// addressInUse says that a bind failed because the address is taken.
func addressInUse(err error) bool { return errors.Is(err, unix.EADDRINUSE) }

// MaxPath is the longest path of an ipc endpoint, in bytes: what
// the system's address has room for, less the zero byte behind it.
const MaxPath = len(unix.RawSockaddrUnix{}.Path) - 1

// isStale says that no socket is bound to the file at path. It asks with a
// datagram socket: to a living stream socket that is the wrong type, so its
// owner does not get to see a connection.
func isStale(ctx context.Context, path string) bool {
	var d net.Dialer
	nc, err := d.DialContext(ctx, "unixgram", path)
	if err == nil {
		nc.Close()
	}
	return errors.Is(err, unix.ECONNREFUSED)
}

// lockPause is the wait between two attempts at a directory's lock, which
// others of our kind hold for the moment that a bind takes.
const lockPause = 2 * time.Millisecond

// lockDirectory takes an advisory lock on a directory, which leaves no trace in
// the file system.
func lockDirectory(ctx context.Context, dir string) (unlock func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	timer := time.NewTicker(lockPause)
	defer timer.Stop()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
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

// setBacklog changes how many connections wait to be accepted: to listen again
// on a listening socket does just that.
func setBacklog(sc syscall.Conn, n int) error {
	raw, err := sc.SyscallConn()
	if err != nil {
		return err
	}
	return controlRaw(raw, func(fd uintptr) error { return os.NewSyscallError("listen", unix.Listen(int(fd), n)) })
}

// HaveTOS says that Options.TOS can be set.
const HaveTOS = true

// setTOS sets the type of service of outgoing packets. A socket of IPv6 may
// carry IPv4 as well, where the older option is the one that counts.
func setTOS(network string, fd uintptr, tos int) error {
	err := unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TOS, tos)
	if network == "tcp6" {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_TCLASS, tos)
	}
	return os.NewSyscallError("setsockopt", err)
}

// setReuseAddress lets a socket be bound to a port on which connections that
// have ended are not forgotten yet.
func setReuseAddress(fd uintptr) error {
	return os.NewSyscallError("setsockopt", unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))
}
