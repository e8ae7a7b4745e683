package link

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"clustermap/internal/ipcpath"
)

// parseIPC parses a path.
func parseIPC(e *Endpoint, path string, bind bool) (wrong string, cause error) {
	switch {
	case path == "":
		return "has no path; write it as ipc://path", syscall.EINVAL
	case path == "*" && bind:
		return "", nil
	case path == "*":
		return "has the wildcard, which is for Bind; name a path to connect to", syscall.EINVAL
	case path == "@":
		return "has no name after the @", syscall.EINVAL
	case path[0] == '@' && runtime.GOOS != "linux" && runtime.GOOS != "android":
		return "has an abstract name, which only Linux supports", syscall.EINVAL
	case strings.ContainsRune(path, 0):
		return "has a zero byte in its path", syscall.EINVAL
	}
	if err := ipcpath.Check(path, ipcpath.Max); err != nil {
		return err.Error(), syscall.ENAMETOOLONG
	}
	e.Name = path
	return "", nil
}

// listenIPC binds an ipc endpoint.
func listenIPC(ctx context.Context, e Endpoint, o *Options) (_ *Listener, err error) {
	l := &Listener{}
	listen := listenUnix
	if o.ListenWith != nil {
		listen = func(ctx context.Context, path string) (net.Listener, error) { return o.listenWith(ctx, "unix", path) }
	}
	dir := ""
	if e.Name == "" {
		if dir, err = os.MkdirTemp("", "ipc-"); err != nil {
			return nil, err
		}
		if wrong, cause := parseIPC(&e, filepath.Join(dir, "socket"), true); wrong != "" {
			err = &EndpointError{Endpoint: e.Text, Reason: wrong, Err: cause}
		} else {
			l.Listener, err = listen(ctx, e.Name)
		}
		if err != nil {
			_ = os.Remove(dir)
			return nil, err
		}
	} else if l.Listener, err = listen(ctx, e.Name); err != nil {
		return nil, err
	}
	switch {
	case o.ListenWith != nil:
		// The file belongs to the listener, only the directory is ours.
		if dir != "" {
			l.tidy = func() error { return os.RemoveAll(dir) }
		}
	case e.Name[0] != '@':
		// Remove the file only if it is still this listener's: libzmq replaces
		// any file at the path that it binds.
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

// listenUnix listens on a path. It replaces a stale socket file, left by a process
// that ended without closing its socket. Any other file makes the address in use.
func listenUnix(ctx context.Context, path string) (net.Listener, error) {
	var lc net.ListenConfig
	if path[0] == '@' {
		return lc.Listen(ctx, "unix", path)
	}
	// The kernel creates the file before it binds the socket to it. The lock keeps
	// others from taking such a file for a stale one and removing it. A process that
	// cannot get the lock binds without it, and replaces no file.
	unlock, lockErr := lockDirectory(ctx, filepath.Dir(path))
	if lockErr == nil {
		defer unlock()
	}
	nl, err := lc.Listen(ctx, "unix", path)
	if err == nil || lockErr != nil || !addressInUse(err) {
		return nl, err
	}
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
func dialIPC(ctx context.Context, e Endpoint, o *Options) (net.Conn, error) {
	if o.DialWith != nil {
		return o.dialWith(ctx, "unix", e.Name)
	}
	var d net.Dialer
	return d.DialContext(ctx, "unix", e.Name)
}
