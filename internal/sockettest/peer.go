package sockettest

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"clustermap/internal/testenv"
	"clustermap/zmtp"
)

// Peer is a peer of a socket that a test plays byte by byte. Its methods end the test if the
// connection fails, except for TryGreet and TrySync.
type Peer struct {
	T    testing.TB
	Conn net.Conn
	In   *bufio.Reader // of Conn
}

// NewPeer returns a peer with a connection, which is closed at the end of the test.
func NewPeer(t testing.TB, conn net.Conn) *Peer {
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(testenv.Hang))
	return &Peer{T: t, Conn: conn, In: bufio.NewReader(conn)}
}

// Dial connects to a bound socket and says nothing yet.
func Dial(t testing.TB, endpoint string) *Peer {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(endpoint, "tcp://"))
	testenv.Must(t, err)
	return NewPeer(t, conn)
}

// Attached connects a peer and waits until the socket has attached it.
func Attached(t testing.TB, endpoint, socketType, identity string) *Peer {
	t.Helper()
	r := Dial(t, endpoint).Greet(socketType, []byte(identity))
	r.Sync()
	return r
}

// Listen is a server for sockets to connect to.
func Listen(t testing.TB) (endpoint string, accept func() *Peer) {
	t.Helper()
	endpoint = FreePort(t)
	l, err := net.Listen("tcp", strings.TrimPrefix(endpoint, "tcp://"))
	testenv.Must(t, err)
	t.Cleanup(func() { l.Close() })
	return endpoint, func() *Peer {
		t.Helper()
		conn, err := l.Accept()
		testenv.Must(t, err)
		return NewPeer(t, conn)
	}
}

// Send writes bytes.
func (r *Peer) Send(parts ...[]byte) {
	r.T.Helper()
	for _, p := range parts {
		if _, err := r.Conn.Write(p); err != nil {
			r.T.Fatalf("peer writes: %v", err)
		}
	}
}

// Greeting is one of ZMTP 3 and the NULL mechanism.
func Greeting(minor uint8) []byte {
	return zmtp.AppendGreeting(nil, zmtp.Greeting{Major: 3, Minor: minor, Mechanism: "NULL"})
}

// Ready is a READY command of a socket type, and of an identity if not nil.
func Ready(socketType string, identity []byte) []byte {
	p := zmtp.AppendProperty(nil, "Socket-Type", []byte(socketType))
	if identity != nil {
		p = zmtp.AppendProperty(p, "Identity", identity)
	}
	return zmtp.AppendCommand(nil, "READY", p)
}

// Greet does a whole handshake as a peer of ZMTP 3.1.
func (r *Peer) Greet(socketType string, identity []byte) *Peer {
	r.T.Helper()
	if err := r.TryGreet(socketType, identity); err != nil {
		r.T.Fatal(err)
	}
	return r
}

// TryGreet does so for a socket that may have lost its patience.
func (r *Peer) TryGreet(socketType string, identity []byte) error {
	if _, err := r.Conn.Write(append(Greeting(1), Ready(socketType, identity)...)); err != nil {
		return fmt.Errorf("peer greets: %w", err)
	}
	return r.readGreeting()
}

// Greeted reads the other side's greeting and READY.
func (r *Peer) Greeted() {
	r.T.Helper()
	if err := r.readGreeting(); err != nil {
		r.T.Fatal(err)
	}
}

func (r *Peer) readGreeting() error {
	var g [zmtp.GreetingSize]byte
	if _, err := io.ReadFull(r.In, g[:]); err != nil {
		return fmt.Errorf("peer reads the greeting: %w", err)
	}
	flags, body, err := r.ReadFrame()
	if err != nil {
		return fmt.Errorf("peer reads READY: %w", err)
	}
	if flags&zmtp.FlagCommand == 0 || !bytes.HasPrefix(body, []byte("\x05READY")) {
		return fmt.Errorf("instead of READY came %x %q", flags, body)
	}
	return nil
}

// Frame reads one frame.
func (r *Peer) Frame() (flags byte, body []byte) {
	r.T.Helper()
	flags, body, err := r.ReadFrame()
	if err != nil {
		r.T.Fatalf("peer reads a frame: %v", err)
	}
	return flags, body
}

// ReadFrame reads one frame, if the connection does not fail.
func (r *Peer) ReadFrame() (flags byte, body []byte, err error) {
	if flags, err = r.In.ReadByte(); err != nil {
		return 0, nil, err
	}
	var size [8]byte
	at := 7
	if flags&zmtp.FlagLong != 0 {
		at = 0
	}
	if _, err = io.ReadFull(r.In, size[at:]); err != nil {
		return 0, nil, err
	}
	body = make([]byte, binary.BigEndian.Uint64(size[:]))
	_, err = io.ReadFull(r.In, body)
	return flags, body, err
}

// Message reads the frames of one message, and fails on a command.
func (r *Peer) Message() [][]byte {
	r.T.Helper()
	var m [][]byte
	for {
		flags, body := r.Frame()
		if flags&zmtp.FlagCommand != 0 {
			r.T.Fatalf("instead of a message came the command %q", body)
		}
		m = append(m, body)
		if flags&zmtp.FlagMore == 0 {
			return m
		}
	}
}

// Command reads one command and returns its name and data.
func (r *Peer) Command() (name, data string) {
	r.T.Helper()
	flags, body := r.Frame()
	c, err := zmtp.ParseCommand(body)
	if flags&zmtp.FlagCommand == 0 || err != nil {
		r.T.Fatalf("instead of a command came %x %q", flags, body)
	}
	return string(c.Name), string(c.Data)
}

// Sync has the other side answer a PING, and passes over earlier messages.
func (r *Peer) Sync() {
	r.T.Helper()
	if err := r.TrySync(); err != nil {
		r.T.Fatal(err)
	}
}

// TrySync does so for a socket that may have lost its patience in the handshake.
func (r *Peer) TrySync() error {
	if _, err := r.Conn.Write(zmtp.AppendPing(nil, 0, []byte("sync"))); err != nil {
		return fmt.Errorf("peer sends PING: %w", err)
	}
	for {
		flags, body, err := r.ReadFrame()
		if err != nil {
			return fmt.Errorf("peer waits for PONG: %w", err)
		}
		if flags&zmtp.FlagCommand != 0 && string(body) == "\x04PONGsync" {
			return nil
		}
	}
}

// Begun waits until the other side has begun to write the next message. A message that
// has begun is not sent again on another connection.
func (r *Peer) Begun() {
	r.T.Helper()
	if _, err := r.In.Peek(1); err != nil {
		r.T.Fatalf("peer waits for bytes: %v", err)
	}
}

// Ended waits until the other side has closed the connection.
func (r *Peer) Ended() {
	r.T.Helper()
	_, err := io.Copy(io.Discard, r.In)
	if err != nil && !errors.Is(err, syscall.ECONNRESET) {
		r.T.Fatalf("connection does not end: %v", err)
	}
}

// Wants reads bytes and compares them.
func (r *Peer) Wants(want string) {
	r.T.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(r.In, got); err != nil || string(got) != want {
		r.T.Fatalf("%q (%v), want %q", got[:n], err, want)
	}
}

// Slowly sends byte by byte.
func (r *Peer) Slowly(data string) {
	r.T.Helper()
	for i := range len(data) {
		r.Send([]byte{data[i]})
	}
}

// Wire is the bytes of one message.
func Wire(frames ...string) []byte {
	parts := make([][]byte, len(frames))
	for i, f := range frames {
		parts[i] = []byte(f)
	}
	return zmtp.AppendMessage(nil, parts...)
}
