//go:build !portable

package sockets

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// systemOption reads a number from a connection's or listener's socket.
func systemOption(t testing.TB, c any, level, name int) int {
	t.Helper()
	raw, err := c.(syscall.Conn).SyscallConn()
	must(t, err)
	var n int
	var failed error
	must(t, raw.Control(func(fd uintptr) { n, failed = unix.GetsockoptInt(int(fd), level, name) }))
	must(t, failed)
	return n
}

// netConn is the network connection of a socket's only peer.
func netConn(t testing.TB, s *socket) net.Conn {
	t.Helper()
	var peer *Peer
	eventually(t, "a connection", func() bool {
		for _, p := range s.core.Pipes() {
			peer = (*Peer)(p.Peer())
		}
		return peer != nil
	})
	return peer.engine().Stream().Conn
}

// TestSocketOptions: the values of the options arrive at the kernel, on both sides.
func TestSocketOptions(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	for _, host := range []string{"127.0.0.1", "[::1]"} {
		if host == "[::1]" {
			hasIPv6(t)
		}
		o := Options{
			TOS: 0x28, KeepAliveIdle: 7 * time.Second, KeepAliveInterval: 3 * time.Second, KeepAliveCount: 5,
			SendBuffer: 70_000, RecvBuffer: 80_000, Backlog: 3,
		}
		router := open(t, NewRouter, o)
		must(t, router.Bind(ctx, "tcp://"+host+":*"))
		dealer := open(t, NewDealer, o)
		must(t, dealer.Connect(router.LastEndpoint()))
		echo(t, ctx, dealer, router)
		level, name := unix.IPPROTO_IP, unix.IP_TOS
		if host == "[::1]" {
			level, name = unix.IPPROTO_IPV6, unix.IPV6_TCLASS
		}
		for _, nc := range []net.Conn{netConn(t, &dealer.socket), netConn(t, &router.socket)} {
			for _, c := range []struct {
				what              string
				level, name, want int
			}{
				{"TOS", level, name, 0x28},
				{"keep alive", unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
				{"idle", unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 7},
				{"interval", unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 3},
				{"count", unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 5},
				{"no delay", unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
				{"send buffer", unix.SOL_SOCKET, unix.SO_SNDBUF, 140_000},
				{"receive buffer", unix.SOL_SOCKET, unix.SO_RCVBUF, 160_000},
			} {
				if got := systemOption(t, nc, c.level, c.name); got != c.want {
					t.Errorf("%s: %s is %d, want %d", host, c.what, got, c.want)
				}
			}
		}
	}
	router := bind(t, NewRouter, Options{KeepAlive: KeepAliveOff})
	dealer := open(t, NewDealer, Options{KeepAlive: KeepAliveOff})
	must(t, dealer.Connect(router.LastEndpoint()))
	for _, nc := range []net.Conn{netConn(t, &dealer.socket), netConn(t, &router.socket)} {
		if systemOption(t, nc, unix.SOL_SOCKET, unix.SO_KEEPALIVE) != 0 {
			t.Error("keep alive is on")
		}
	}
}

// TestBindToDevice: connections stay on the interface, and one that does not
// exist is an error.
func TestBindToDevice(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	router := open(t, NewRouter, Options{BindToDevice: "lo"})
	err := router.Bind(ctx, anyPort)
	if errors.Is(err, unix.EPERM) {
		t.Skip("the kernel wants CAP_NET_RAW to bind to a device")
	}
	must(t, err)
	dealer := open(t, NewDealer, Options{BindToDevice: "lo"})
	must(t, dealer.Connect(router.LastEndpoint()))
	echo(t, ctx, dealer, router)
	none := open(t, NewRouter, Options{BindToDevice: "none0"})
	if err := none.Bind(ctx, anyPort); !errors.Is(err, unix.ENODEV) {
		t.Errorf("no such device: %v", err)
	}
}

// TestIPCPermission: a path that we may not use is an error, not a stale one.
func TestIPCPermission(t *testing.T) {
	t.Parallel()
	router := open(t, NewRouter, Options{})
	if err := router.Bind(testContext(t), "ipc:///proc/s"); err == nil || errors.Is(err, fs.ErrExist) {
		t.Errorf("bound in /proc: %v", err)
	}
}

// localSendBuffer is the bound of the kernel's send buffer for a peer on this machine.
// The kernel counts twice as much.
const localSendBuffer = 512 << 10

// boundsSendBuffer skips the test where the system does not allow that bound.
func boundsSendBuffer(t *testing.T) {
	t.Helper()
	limit, err := os.ReadFile("/proc/sys/net/core/wmem_max")
	must(t, err)
	if n, err := strconv.Atoi(strings.TrimSpace(string(limit))); err != nil || n < localSendBuffer {
		t.Skipf("the system's limit is %s bytes, less than %d", limit, localSendBuffer)
	}
}

// TestLocalSendBuffer: the kernel's buffer towards a peer on this machine does not
// stay larger than need be, unless the application has asked for one.
func TestLocalSendBuffer(t *testing.T) {
	t.Parallel()
	boundsSendBuffer(t)
	const sent = 12 << 20
	for _, c := range []struct{ asked, least, most int }{
		{0, 0, 2 * localSendBuffer},
		{2 * localSendBuffer, 4 * localSendBuffer, 4 * localSendBuffer},
	} {
		pull := bind(t, NewPull, Options{})
		push := dialled(t, NewPush, Options{SendBuffer: c.asked}, pull.LastEndpoint())
		message := make([]byte, 1<<20)
		send := func(messages int) {
			for range messages {
				go push.Send(testContext(t), message)
			}
			for range messages {
				_, err := pull.Recv(testContext(t))
				must(t, err)
			}
		}
		send(sent / len(message))
		// The kernel can enlarge the buffer when the last bytes are acknowledged. The
		// next ones that are sent limit it again.
		eventually(t, fmt.Sprintf("with SendBuffer %d the kernel's is between %d and %d", c.asked, c.least, c.most), func() bool {
			got := systemOption(t, netConn(t, &push.socket), unix.SOL_SOCKET, unix.SO_SNDBUF)
			if got >= c.least && got <= c.most {
				return true
			}
			t.Logf("the kernel's is %d", got)
			send(1)
			return false
		})
	}
}

// TestLocalSendBufferStuck: the same holds for a peer that does not read, before much
// has been written.
func TestLocalSendBufferStuck(t *testing.T) {
	t.Parallel()
	boundsSendBuffer(t)
	push := bind(t, NewPush, Options{SendHWM: 10})
	dialRaw(t, push.LastEndpoint()).Greet("PULL", nil)
	message := make([]byte, 4000)
	fill := func() {
		for at := time.Now(); time.Since(at) < 500*time.Millisecond; {
			if push.TrySend(message) == nil {
				at = time.Now()
			} else {
				time.Sleep(time.Millisecond)
			}
		}
	}
	fill()
	// The kernel can enlarge the buffer when the peer answers a probe, at any time. What is
	// then written limits it again.
	eventually(t, "the kernel's send buffer is limited", func() bool {
		size := systemOption(t, netConn(t, &push.socket), unix.SOL_SOCKET, unix.SO_SNDBUF)
		if size <= 2*localSendBuffer {
			return true
		}
		t.Logf("the kernel's is %d", size)
		fill()
		return false
	})
}
