package sockets

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
)

// listenIPC binds an ipc endpoint and returns it resolved. unlink removes the
// socket's file from the file system; it is to be called when the listener has
// been closed.
func (s *socket) listenIPC(ctx context.Context, e endpoint) (nl net.Listener, resolved string, unlink func() error, err error) {
	dir := ""
	if e.name == "" {
		if dir, err = os.MkdirTemp("", "ipc-"); err != nil {
			return nil, "", nil, err
		}
		if e, err = parseEndpoint(transportIPC+"://"+filepath.Join(dir, "socket"), true); err == nil {
			nl, err = listenUnix(ctx, e.name)
		}
		if err != nil {
			_ = os.Remove(dir) // it is empty, and nobody else's
			return nil, "", nil, err
		}
	} else if nl, err = listenUnix(ctx, e.name); err != nil {
		return nil, "", nil, err
	}
	unlink = func() error { return nil }
	if !e.abstract() {
		// The file goes with the listener only if it is still the listener's
		// own: libzmq replaces what it finds at the path that it binds.
		nl.(*net.UnixListener).SetUnlinkOnClose(false)
		own, _ := os.Lstat(e.name)
		unlink = func() (err error) {
			if now, gone := os.Lstat(e.name); gone == nil && os.SameFile(own, now) {
				err = os.Remove(e.name)
			}
			if dir != "" {
				err = errors.Join(err, os.Remove(dir))
			}
			return err
		}
	}
	return nl, transportIPC + "://" + e.name, unlink, nil
}

// listenUnix listens on a path. A socket file to which nobody listens any more,
// left by a process that ended without closing its socket, is replaced;
// everything else that is there is an address in use.
func listenUnix(ctx context.Context, path string) (net.Listener, error) {
	var lc net.ListenConfig
	nl, err := lc.Listen(ctx, "unix", path)
	if err == nil || path[0] == '@' || !addressInUse(err) {
		return nl, err
	}
	// Two who find the same stale file must not remove it one after the other,
	// for then the second removes the first one's new socket.
	unlock, lockErr := lockDirectory(ctx, filepath.Dir(path))
	if lockErr != nil {
		return nil, err
	}
	defer unlock()
	if info, statErr := os.Lstat(path); statErr == nil {
		if info.Mode()&fs.ModeSocket == 0 || !isStale(ctx, path) || os.Remove(path) != nil {
			return nil, err
		}
	} else if !errors.Is(statErr, fs.ErrNotExist) {
		return nil, err
	}
	return lc.Listen(ctx, "unix", path)
}

// dialIPC connects to an ipc endpoint.
func (s *socket) dialIPC(ctx context.Context, e endpoint) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", e.name)
}
