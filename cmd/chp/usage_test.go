package main

import (
	"net"
	"testing"
)

// An address of IPv6 may stand in brackets, as in an endpoint.
func TestServeHostInBrackets(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skipf("no IPv6 loopback address: %v", err)
	}
	l.Close()
	s := start(t, "serve", "--port", "0", "--host", "[::1]")
	endpoint := s.ready()
	must(t, "set", "k", "v", "--server", endpoint)
}
