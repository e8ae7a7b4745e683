package loopback

import (
	"net"
	"runtime"
	"testing"
)

func TestOwn(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		host := Own()
		if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
			t.Fatalf("%q is no loopback address", host)
		}
		if seen[host] && runtime.GOOS == "linux" {
			t.Fatalf("%s comes twice", host)
		}
		seen[host] = true
	}
	l, err := net.Listen("tcp", net.JoinHostPort(Own(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}
