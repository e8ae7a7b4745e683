//go:build !portable

package link

import (
	"context"
	"net"
	"testing"

	"clustermap/internal/testenv"

	"golang.org/x/sys/unix"
)

// TestNoSignal: no write to a peer that has gone raises SIGPIPE.
func TestNoSignal(t *testing.T) {
	testenv.NoSignal(t, map[string]func(nc *net.UnixConn) error{
		"one piece": func(nc *net.UnixConn) error {
			var s Stream
			must(t, s.Init(nc))
			_, err := s.Send([][]byte{[]byte("x")})
			return err
		},
		"pieces": func(nc *net.UnixConn) error {
			var s Stream
			must(t, s.Init(nc))
			_, err := s.Send([][]byte{[]byte("x"), []byte("y")})
			return err
		},
		"direct": func(nc *net.UnixConn) error {
			var s Stream
			must(t, s.Init(nc))
			if NewAttempt(&s).Write([]byte("x")) != 0 {
				return nil
			}
			return unix.EPIPE // it does not tell
		},
		"write": func(nc *net.UnixConn) error {
			var s Stream
			must(t, s.Init(nc))
			_, err := s.Write([]byte("x"))
			return err
		},
		"proxy": func(nc *net.UnixConn) error {
			o := Options{Proxy: "127.0.0.1:1", ProxyTimeout: hang}
			return o.askProxy(context.Background(), nc, Endpoint{host: "127.0.0.1", port: 1})
		},
	})
}
