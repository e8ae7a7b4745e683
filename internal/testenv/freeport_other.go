//go:build !linux

package testenv

import (
	"net"
	"testing"
)

// FreePort returns a port of 127.0.0.1 on which nothing listens.
func FreePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	Must(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
