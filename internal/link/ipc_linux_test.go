//go:build !portable

package link

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestBacklog: no more connections wait for a listener that does not accept
// than were asked for.
func TestBacklog(t *testing.T) {
	t.Parallel()
	// Unix sockets, for TCP lets a connection of more than the backlog wait.
	e, err := Parse("ipc://*", true)
	must(t, err)
	l, err := Listen(t.Context(), e, Options{Backlog: 2})
	must(t, err)
	defer l.Close()
	n := 0
	for ; n < 10; n++ {
		nc, err := net.Dial("unix", l.Addr().String())
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		must(t, err)
		defer nc.Close()
	}
	if n != 3 { // the kernel adds one
		t.Errorf("%d connections wait", n)
	}
}

// TestLockedDirectory: while another process has the directory's lock, a new path is bound,
// and a stale file is not replaced.
func TestLockedDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	stale := filepath.Join(dir, "stale")
	l, err := net.Listen("unix", stale)
	must(t, err)
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	must(t, l.Close())
	f, err := os.Open(dir)
	must(t, err)
	must(t, unix.Flock(int(f.Fd()), unix.LOCK_EX))
	bind := func(path string) error {
		e, err := Parse("ipc://"+path, true)
		must(t, err)
		l, err := Listen(t.Context(), e, Options{})
		if err == nil {
			l.Close()
		}
		return err
	}
	must(t, bind(filepath.Join(dir, "new")))
	if err := bind(stale); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("a stale file in a locked directory: %v", err)
	}
	must(t, f.Close())
	must(t, bind(stale))
}
