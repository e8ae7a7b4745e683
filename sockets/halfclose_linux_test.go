//go:build !portable

package sockets

import (
	"io"
	"net"
	"testing"
	"time"

	"clustermap/zmtp"
)

// closesSlowly closes a socket whose peer reads at most part bytes at a time, with a
// pause before each read and a PING before each pause, and checks that the peer gets
// everything. Only on Linux does Close see how much the peer's system has received.
func closesSlowly(t *testing.T, size, part int, pause time.Duration, o Options) {
	t.Helper()
	endpoint, accept := listenRaw(t)
	d, err := NewDealer(o)
	must(t, err)
	must(t, d.Connect(endpoint))
	p := accept()
	must(t, p.Conn.(*net.TCPConn).SetReadBuffer(32<<10)) // so that most stays in our system
	p.Greet("ROUTER", nil)
	const piece = 16 << 10
	want := 0
	for want < size {
		must(t, d.Send(testContext(t), make([]byte, piece)))
		want += zmtp.FrameSize(piece)
	}
	closed := make(chan struct{})
	go func() { d.Close(); close(closed) }()
	ping := zmtp.AppendCommand(nil, "PING", []byte{0, 0})
	got := 0
	for buffer := make([]byte, part); ; {
		_, _ = p.Conn.Write(ping) // it fails where the connection was reset, and then the count is too low
		time.Sleep(pause)
		n, err := io.ReadAtLeast(p.In, buffer, 1)
		if got += n; err != nil {
			break
		}
	}
	if got < want {
		t.Errorf("the peer has got %d of %d bytes", got, want)
	}
	within(t, "Close", func() { <-closed })
}

// A peer that sends PINGs while it still receives messages sent before Close loses
// nothing: they cannot be answered any more, and that does not end the connection.
func TestPingsWhileClosing(t *testing.T) {
	t.Parallel()
	closesSlowly(t, 512<<10, 32<<10, 20*time.Millisecond, Options{})
}

// Nor does one that sends PINGs and pauses, for less than LingerPatience, when all
// that is left is in the system's buffers.
func TestPausesWhileClosing(t *testing.T) {
	t.Parallel()
	closesSlowly(t, 200<<10, 128<<10, 600*time.Millisecond, Options{})
}

// Our own PINGs, which come too late as well, do not end the connection either.
func TestHeartbeatsWhileClosing(t *testing.T) {
	t.Parallel()
	closesSlowly(t, 512<<10, 32<<10, 20*time.Millisecond, Options{HeartbeatInterval: 30 * time.Millisecond, HeartbeatTimeout: hang})
}
