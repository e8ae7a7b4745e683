package sockets

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"clustermap/zmtp"
)

// raw is a peer that a test plays octet by octet.
type raw struct {
	t    testing.TB
	conn net.Conn
	in   *bufio.Reader
}

func newRaw(t testing.TB, conn net.Conn) *raw {
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(hang))
	return &raw{t: t, conn: conn, in: bufio.NewReader(conn)}
}

// dialRaw connects to a bound socket and says nothing yet.
func dialRaw(t testing.TB, endpoint string) *raw {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(endpoint, "tcp://"))
	must(t, err)
	return newRaw(t, conn)
}

// listenRaw is a server for sockets to connect to.
func listenRaw(t testing.TB) (endpoint string, accept func() *raw) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	return "tcp://" + l.Addr().String(), func() *raw {
		t.Helper()
		conn, err := l.Accept()
		must(t, err)
		return newRaw(t, conn)
	}
}

// send writes octets.
func (r *raw) send(parts ...[]byte) {
	r.t.Helper()
	for _, p := range parts {
		if _, err := r.conn.Write(p); err != nil {
			r.t.Fatalf("raw peer writes: %v", err)
		}
	}
}

// greeting is one of ZMTP 3 and the NULL mechanism.
func greeting(minor uint8) []byte {
	return zmtp.AppendGreeting(nil, zmtp.Greeting{Major: 3, Minor: minor, Mechanism: "NULL"})
}

// ready is a READY command of a socket type, and of an identity if not nil.
func ready(socketType string, identity []byte) []byte {
	p := zmtp.AppendProperty(nil, "Socket-Type", []byte(socketType))
	if identity != nil {
		p = zmtp.AppendProperty(p, "Identity", identity)
	}
	return zmtp.AppendCommand(nil, "READY", p)
}

// greet does a whole handshake as a peer of ZMTP 3.1.
func (r *raw) greet(socketType string, identity []byte) *raw {
	r.t.Helper()
	r.send(greeting(1), ready(socketType, identity))
	r.greeted()
	return r
}

// greeted reads the other side's greeting and READY.
func (r *raw) greeted() {
	r.t.Helper()
	var g [zmtp.GreetingSize]byte
	if _, err := io.ReadFull(r.in, g[:]); err != nil {
		r.t.Fatalf("raw peer reads the greeting: %v", err)
	}
	flags, body := r.frame()
	if flags&zmtp.FlagCommand == 0 || string(body[:6]) != "\x05READY" {
		r.t.Fatalf("instead of READY came %x %q", flags, body)
	}
}

// frame reads one frame.
func (r *raw) frame() (flags byte, body []byte) {
	r.t.Helper()
	flags, err := r.in.ReadByte()
	size := uint64(0)
	if err == nil && flags&zmtp.FlagLong != 0 {
		var b [8]byte
		_, err = io.ReadFull(r.in, b[:])
		size = binary.BigEndian.Uint64(b[:])
	} else if err == nil {
		var b byte
		b, err = r.in.ReadByte()
		size = uint64(b)
	}
	if err == nil {
		body = make([]byte, size)
		_, err = io.ReadFull(r.in, body)
	}
	if err != nil {
		r.t.Fatalf("raw peer reads a frame: %v", err)
	}
	return flags, body
}

// message reads the frames of one message, and fails on a command.
func (r *raw) message() [][]byte {
	r.t.Helper()
	var m [][]byte
	for {
		flags, body := r.frame()
		if flags&zmtp.FlagCommand != 0 {
			r.t.Fatalf("instead of a message came the command %q", body)
		}
		m = append(m, body)
		if flags&zmtp.FlagMore == 0 {
			return m
		}
	}
}

// command reads one command and returns its name and data.
func (r *raw) command() (name, data string) {
	r.t.Helper()
	flags, body := r.frame()
	c, err := zmtp.ParseCommand(body)
	if flags&zmtp.FlagCommand == 0 || err != nil {
		r.t.Fatalf("instead of a command came %x %q", flags, body)
	}
	return string(c.Name), string(c.Data)
}

// sync has the other side answer a PING, and passes over what comes before.
func (r *raw) sync() {
	r.t.Helper()
	r.send(zmtp.AppendPing(nil, 0, []byte("sync")))
	for {
		flags, body := r.frame()
		if flags&zmtp.FlagCommand != 0 && string(body) == "\x04PONGsync" {
			return
		}
	}
}

// ended waits until the other side has closed the connection.
func (r *raw) ended() {
	r.t.Helper()
	_, err := io.Copy(io.Discard, r.in)
	if err != nil && !errors.Is(err, syscall.ECONNRESET) {
		r.t.Fatalf("connection does not end: %v", err)
	}
}

// wire is the octets of one message.
func wire(frames ...string) []byte {
	parts := make([][]byte, len(frames))
	for i, f := range frames {
		parts[i] = []byte(f)
	}
	return zmtp.AppendMessage(nil, parts...)
}

// texts is a message as strings.
func texts(m Message) []string {
	s := make([]string, len(m))
	for i, f := range m {
		s[i] = string(f)
	}
	return s
}
