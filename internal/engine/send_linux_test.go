//go:build !portable

package engine

import (
	"net"
	"testing"

	"clustermap/internal/testenv"
	"clustermap/zmtp"
)

// TestHandshakeRaisesNoSignal: no write of a handshake to a peer that has gone raises SIGPIPE; for
// other writes see internal/link.
func TestHandshakeRaisesNoSignal(t *testing.T) {
	testenv.NoSignal(t, map[string]func(nc *net.UnixConn) error{
		"handshake": func(nc *net.UnixConn) error {
			var s Socket
			c := filled(Config{HandshakeTimeout: testenv.Hang, Security: plain})
			s.Init(zmtp.TypeDealer, c, new(Pattern))
			defer s.Close()
			conn, err := newConn(nc, c)
			must(t, err)
			_, err = s.handshake(conn)
			return err
		},
	})
}
