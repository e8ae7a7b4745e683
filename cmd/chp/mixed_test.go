package main

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"clustermap/internal/loopback"
)

// forward listens on an address and passes each connection on, until the test ends.
func forward(t *testing.T, address, to string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				near.Close()
				continue
			}
			for _, pair := range [][2]net.Conn{{near, far}, {far, near}} {
				go func() {
					io.Copy(pair[0], pair[1])
					near.Close()
					far.Close()
				}()
			}
		}
	}()
	return nil
}

// TestMixtureIsTold: commands say that the ports of a server belong to different ones,
// which looks like one server behind a balancer.
func TestMixtureIsTold(t *testing.T) {
	t.Parallel()
	servers := []*server{serve(t), serve(t)}
	dump := filepath.Join(t.TempDir(), "dump")
	if err := os.WriteFile(dump, []byte(`{"key":"k","value":"v"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ way, command string }{{"010", "get k"}, {"001", "set k v"}, {"011", "set k v"}, {"001", "load " + dump}} {
		at := ""
		for host := loopback.Own(); at == ""; {
			free, err := net.Listen("tcp", host+":0")
			if err != nil {
				t.Fatal(err)
			}
			base := free.Addr().(*net.TCPAddr).Port
			free.Close()
			for i := range 3 {
				s := servers[c.way[i]-'0']
				port, _ := strconv.Atoi(s.port())
				err = forward(t, net.JoinHostPort(host, strconv.Itoa(base+i)), net.JoinHostPort(s.host(), strconv.Itoa(port+i)))
				if err != nil {
					break
				}
			}
			if err == nil {
				at = net.JoinHostPort(host, strconv.Itoa(base))
			}
		}
		o := try(t, append(strings.Fields(c.command), "--timeout", "2s", "--server", "tcp://"+at)...)
		o.expect(t, exitNoServer, "belong to different servers, at ")
	}
}
