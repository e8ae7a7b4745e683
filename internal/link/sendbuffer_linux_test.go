//go:build !portable

package link

import (
	"net"
	"testing"
)

func TestIsLocal(t *testing.T) {
	t.Parallel()
	tcp := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 5555} }
	for _, c := range []struct {
		near, far net.Addr
		want      bool
	}{
		{tcp("127.0.0.1"), tcp("127.0.0.1"), true},
		{tcp("127.0.0.2"), tcp("127.0.0.1"), true},
		{tcp("::1"), tcp("::1"), true},
		{tcp("192.0.2.1"), tcp("192.0.2.1"), true},
		{tcp("2001:db8::1"), tcp("2001:db8::1"), true},
		{tcp("192.0.2.1"), tcp("192.0.2.2"), false},
		{tcp("2001:db8::1"), tcp("2001:db8::2"), false},
		{&net.UnixAddr{Name: "@socket"}, &net.UnixAddr{Name: "@socket"}, false},
		{tcp("127.0.0.1"), nil, false},
	} {
		if got := isLocal(c.near, c.far); got != c.want {
			t.Errorf("from %v to %v: %v, want %v", c.near, c.far, got, c.want)
		}
	}
}
