package sockets

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"clustermap/internal/engine"
	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// raw is a peer that a test plays byte by byte.
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
	endpoint = freePort(t)
	l, err := net.Listen("tcp", strings.TrimPrefix(endpoint, "tcp://"))
	must(t, err)
	t.Cleanup(func() { l.Close() })
	return endpoint, func() *raw {
		t.Helper()
		conn, err := l.Accept()
		must(t, err)
		return newRaw(t, conn)
	}
}

// send writes bytes.
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
	if err := r.tryGreet(socketType, identity); err != nil {
		r.t.Fatal(err)
	}
	return r
}

// tryGreet does so for a socket that may have lost its patience.
func (r *raw) tryGreet(socketType string, identity []byte) error {
	if _, err := r.conn.Write(append(greeting(1), ready(socketType, identity)...)); err != nil {
		return fmt.Errorf("raw peer greets: %w", err)
	}
	return r.readGreeting()
}

// greeted reads the other side's greeting and READY.
func (r *raw) greeted() {
	r.t.Helper()
	if err := r.readGreeting(); err != nil {
		r.t.Fatal(err)
	}
}

func (r *raw) readGreeting() error {
	var g [zmtp.GreetingSize]byte
	if _, err := io.ReadFull(r.in, g[:]); err != nil {
		return fmt.Errorf("raw peer reads the greeting: %w", err)
	}
	flags, body, err := r.readFrame()
	if err != nil {
		return fmt.Errorf("raw peer reads READY: %w", err)
	}
	if flags&zmtp.FlagCommand == 0 || !bytes.HasPrefix(body, []byte("\x05READY")) {
		return fmt.Errorf("instead of READY came %x %q", flags, body)
	}
	return nil
}

// frame reads one frame.
func (r *raw) frame() (flags byte, body []byte) {
	r.t.Helper()
	flags, body, err := r.readFrame()
	if err != nil {
		r.t.Fatalf("raw peer reads a frame: %v", err)
	}
	return flags, body
}

func (r *raw) readFrame() (flags byte, body []byte, err error) {
	if flags, err = r.in.ReadByte(); err != nil {
		return 0, nil, err
	}
	var size [8]byte
	at := 7
	if flags&zmtp.FlagLong != 0 {
		at = 0
	}
	if _, err = io.ReadFull(r.in, size[at:]); err != nil {
		return 0, nil, err
	}
	body = make([]byte, binary.BigEndian.Uint64(size[:]))
	_, err = io.ReadFull(r.in, body)
	return flags, body, err
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

// sync has the other side answer a PING, and passes over earlier messages.
func (r *raw) sync() {
	r.t.Helper()
	if err := r.trySync(); err != nil {
		r.t.Fatal(err)
	}
}

// trySync does so for a socket that may have lost its patience in the handshake.
func (r *raw) trySync() error {
	if _, err := r.conn.Write(zmtp.AppendPing(nil, 0, []byte("sync"))); err != nil {
		return fmt.Errorf("raw peer sends PING: %w", err)
	}
	for {
		flags, body, err := r.readFrame()
		if err != nil {
			return fmt.Errorf("raw peer waits for PONG: %w", err)
		}
		if flags&zmtp.FlagCommand != 0 && string(body) == "\x04PONGsync" {
			return nil
		}
	}
}

// begun waits until the other side has begun to write the next message. A message that
// has begun is not sent again on another connection.
func (r *raw) begun() {
	r.t.Helper()
	if _, err := r.in.Peek(1); err != nil {
		r.t.Fatalf("raw peer waits for bytes: %v", err)
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

// wire is the bytes of one message.
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

// drain takes the messages that wait for a peer, as its writer would, and returns the bytes.
func drain(p *engine.Pipe) (taken []byte) {
	var l queue.Load
	p.Out.Take(&l, nil, func() {})
	taken = bytes.Join(l.Gather(nil), nil)
	l.Clear()
	return taken
}

// show is a message as text, its long frames by size and sum.
func show(frames ...string) string {
	for i, f := range frames {
		if len(f) > 100 {
			frames[i] = fmt.Sprintf("%d bytes, %08x", len(f), crc32.ChecksumIEEE([]byte(f)))
		}
	}
	return fmt.Sprintf("%q", frames)
}
