//go:build !portable && !race

package sockets

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"clustermap/zmtp"

	"golang.org/x/sys/unix"
)

// maxIdle is the largest cost of an idle connection, in bytes of heap and stacks, without
// the kernel's memory. It is between 7 and 9 KiB, and 2 KiB more where the reader's stack
// has grown to 4 KiB and does not shrink, because more than a quarter of it is in use.
// How many have grown depends on the load of the machine.
const maxIdle = 12 << 10

// TestIdleMemory opens many connections that do their handshake and then say
// nothing. The test's own ends are bare descriptors, which cost no memory that
// is measured here. The test is not built with the race detector, whose own memory
// would count, nor with the portable stream, which keeps a small buffer for each
// connection.
func TestIdleMemory(t *testing.T) {
	connections := int64(2000)
	var files unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &files))
	if most := int64(files.Cur/2) - 100; most < connections {
		connections = max(most, 100)
	}
	for _, c := range []struct {
		name  string
		hello []byte
		talk  bool  // after the handshake, each sends a message and is answered
		keeps int64 // bytes that the socket keeps of what each announced
	}{
		{"ZMTP 3", slices.Concat(greeting(1), ready("DEALER", nil)), false, 0},
		{"ZMTP 3 after traffic", slices.Concat(greeting(1), ready("DEALER", nil), wire("hello")), true, 0},
		{"ZMTP 1.0", []byte("\x01\x00"), false, 0},
		{"ZMTP 3 with 2,500 properties", announcing("a", 2500), false, 0},
		{"ZMTP 3 with 1,700 properties that can be asked for", announcing("X-a", 1700), false, 16 << 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			established := make(chan struct{}, connections)
			router, err := NewRouter(Options{Linger: LingerNone, MaxHandshakes: int(connections), Monitor: func(e Event) {
				if e.Kind == EventHandshakeSucceeded {
					established <- struct{}{}
				}
			}})
			must(t, err)
			defer router.Close()
			must(t, router.Bind(testContext(t), anyPort))
			address := netip.MustParseAddrPort(strings.TrimPrefix(router.LastEndpoint(), "tcp://"))
			before := used()
			for range connections {
				fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
				must(t, err)
				defer unix.Close(fd)
				must(t, unix.Connect(fd, &unix.SockaddrInet4{Port: int(address.Port()), Addr: address.Addr().As4()}))
				_, err = unix.Write(fd, c.hello)
				must(t, err)
			}
			for range connections {
				<-established
			}
			if c.talk {
				for range connections {
					m, err := router.Recv(testContext(t))
					must(t, err)
					must(t, router.Send(testContext(t), m...))
				}
				eventually(t, "the answers are written", func() bool {
					return !slices.ContainsFunc(router.Peers(), func(p PeerStats) bool { return p.MessagesOut == 0 })
				})
				router.core.Retire()
				router.core.Retire() // all have slept since the last time
			}
			// A stack that has grown shrinks by half with each collection, if
			// its goroutine waits by then.
			most := maxIdle + c.keeps
			eventually(t, fmt.Sprintf("at most %d bytes a connection", most), func() bool {
				cost := (used() - before) / connections
				t.Logf("%d bytes a connection", cost)
				return cost <= most
			})
		})
	}
}

// announcing is a handshake with the same empty property n times.
func announcing(name string, n int) []byte {
	p := zmtp.AppendProperty(nil, "Socket-Type", []byte("DEALER"))
	for range n {
		p = zmtp.AppendProperty(p, name, nil)
	}
	return slices.Concat(greeting(1), zmtp.AppendCommand(nil, "READY", p))
}
