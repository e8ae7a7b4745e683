//go:build !portable

package link

import (
	"errors"
	"net"
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
