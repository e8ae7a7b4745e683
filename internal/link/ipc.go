package link

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// parseIPC reads a path.
func parseIPC(e *Endpoint, path string, bind bool) (wrong string, cause error) {
	switch {
	case path == "":
		return "has no path; write it as ipc://path", syscall.EINVAL
	case path == "*" && bind:
		return "", nil
	case path == "*":
		return "has the wildcard, which is for Bind; name a path to connect to", syscall.EINVAL
	case path == "@":
		return "has no name behind the @", syscall.EINVAL
	case path[0] == '@' && runtime.GOOS != "linux" && runtime.GOOS != "android":
		return "has an abstract name, which only Linux knows", syscall.EINVAL
	case strings.ContainsRune(path, 0):
		return "has a zero byte in its path", syscall.EINVAL
	case len(path) > MaxPath:
		return fmt.Sprintf("has a path of %d bytes; at most %d are possible", len(path), MaxPath), syscall.ENAMETOOLONG
	}
	e.Name = path
	return "", nil
}

// listenIPC binds an ipc endpoint.
func listenIPC(ctx context.Context, e Endpoint, _ *Options) (_ *Listener, err error) {
	l := &Listener{}
	dir := ""
	if e.Name == "" {
		if dir, err = os.MkdirTemp("", "ipc-"); err != nil {
			return nil, err
		}
		if wrong, cause := parseIPC(&e, filepath.Join(dir, "socket"), true); wrong != "" {
			err = &EndpointError{Endpoint: e.Text, Reason: wrong, Err: cause}
		} else {
			l.Listener, err = listenUnix(ctx, e.Name)
		}
		if err != nil {
			_ = os.Remove(dir) // it is empty, and nobody else's
			return nil, err
		}
	} else if l.Listener, err = listenUnix(ctx, e.Name); err != nil {
		return nil, err
	}
	if e.Name[0] != '@' {
		// The file goes with the listener only if it is still the listener's
		// own: libzmq replaces what it finds at the path that it binds.
		l.Listener.(*net.UnixListener).SetUnlinkOnClose(false)
		own, _ := os.Lstat(e.Name)
		l.remove = func() (err error) {
			if now, gone := os.Lstat(e.Name); gone == nil && os.SameFile(own, now) {
				err = os.Remove(e.Name)
			}
			if dir != "" {
				err = errors.Join(err, os.Remove(dir))
			}
			return err
		}
	}
	l.Endpoint = IPC + "://" + e.Name
	return l, nil
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
func dialIPC(ctx context.Context, e Endpoint, _ *Options) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", e.Name)
}
