//go:build !portable

package sockets

import (
	"net"
	"testing"

	"clustermap/internal/testenv"
)

// TestS17_NoSignal: no write of a handshake to a peer that has gone raises SIGPIPE; for
// other writes see internal/link.
func TestS17_NoSignal(t *testing.T) {
	testenv.NoSignal(t, map[string]func(nc *net.UnixConn) error{
		"handshake": func(nc *net.UnixConn) error {
			dealer := open(t, NewDealer, Options{})
			c, err := newConn(nc, dealer.opts())
			must(t, err)
			_, err = dealer.handshake(c)
			return err
		},
	})
}
