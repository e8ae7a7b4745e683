package zmtp_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"clustermap/internal/interop"
	"clustermap/internal/testenv"
	"clustermap/zmtp"
)

// These tests use PLAIN and CURVE with libzmq as the peer, in both roles, over TCP.

// wire is a connection driven by the package.
type wire struct {
	t       *testing.T
	conn    net.Conn
	h       *zmtp.Handshake
	in      []byte // received, and not taken by the handshake or the codec
	frames  []byte // decoded, and not taken by the decoder
	decoder *zmtp.Decoder
}

// secure returns the configuration of a DEALER, with the given mechanism.
func secure(mechanism func(properties []byte) zmtp.Mechanism) zmtp.HandshakeConfig {
	c := zmtp.HandshakeConfig{SocketType: zmtp.TypeDealer, Identity: []byte("gopher")}
	c.Mechanism = mechanism(c.AppendProperties(nil))
	return c
}

// newWire sends the greeting.
func newWire(t *testing.T, conn net.Conn, c zmtp.HandshakeConfig) *wire {
	t.Helper()
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(testenv.Hang)); err != nil {
		t.Fatal(err)
	}
	w := &wire{t: t, conn: conn, h: zmtp.NewHandshake(c), decoder: zmtp.NewDecoder(zmtp.Limits{})}
	w.write(w.h.Start(nil))
	return w
}

func (w *wire) write(b []byte) {
	w.t.Helper()
	if _, err := w.conn.Write(b); err != nil {
		w.t.Fatal(err)
	}
}

func (w *wire) read() error {
	b := make([]byte, 64<<10)
	n, err := w.conn.Read(b)
	w.in = append(w.in, b[:n]...)
	if n > 0 {
		return nil
	}
	return err
}

// shake runs the handshake.
func (w *wire) shake(authenticate func(*zmtp.Handshake, zmtp.Credentials) ([]byte, bool, error)) error {
	w.t.Helper()
	for {
		n, out, done, err := w.h.Step(w.in, nil)
		if c, waiting := w.h.Credentials(); waiting {
			var more []byte
			more, done, err = authenticate(w.h, c)
			out = append(out, more...)
		}
		w.in = w.in[n:]
		if len(out) > 0 {
			w.write(out)
		}
		if done || err != nil {
			return err
		}
		if n == 0 && len(out) == 0 {
			if err := w.read(); err != nil {
				return err
			}
		}
	}
}

// send sends frames.
func (w *wire) send(frames []byte) {
	w.t.Helper()
	if c := w.h.Codec(); c != nil {
		var err error
		if frames, err = c.Encode(nil, frames); err != nil {
			w.t.Fatal(err)
		}
	}
	w.write(frames)
}

// next returns the next message or command.
func (w *wire) next() (zmtp.Kind, []byte) {
	w.t.Helper()
	for {
		kind, n, err := w.decoder.Next(w.frames)
		if err != nil {
			w.t.Fatal(err)
		}
		if kind != zmtp.KindNeedMore {
			b := w.frames[:n:n]
			w.frames = w.frames[n:]
			return kind, b
		}
		if err := w.read(); err != nil {
			w.t.Fatal(err)
		}
		used := len(w.in)
		if c := w.h.Codec(); c == nil {
			w.frames = append(w.frames, w.in...)
		} else if w.frames, used, _, err = c.Decode(w.frames, w.in, 1<<30); err != nil {
			w.t.Fatal(err)
		}
		w.in = w.in[used:]
	}
}

// exchange sends messages of many shapes, which the peer echoes.
func (w *wire) exchange() {
	w.t.Helper()
	var all []byte
	for _, size := range []int{0, 1, 32, 221, 222, 223, 255, 256, 5000, 1 << 20} {
		m := zmtp.AppendMessage(nil, interop.Pattern(1, size, 0, size), nil, interop.Pattern(1, size, 2, size/3))
		w.send(m)
		all = append(all, m...)
	}
	for len(all) > 0 {
		kind, b := w.next()
		if kind == zmtp.KindCommand {
			w.command(b)
			continue
		}
		if !bytes.HasPrefix(all, b) {
			w.t.Fatalf("another message, of %d bytes", len(b))
		}
		all = all[len(b):]
	}
}

// command answers a PING, the only expected command.
func (w *wire) command(b []byte) {
	w.t.Helper()
	c, err := zmtp.ParseCommand(zmtp.CommandBody(b))
	if err != nil || string(c.Name) != zmtp.CommandPing {
		w.t.Fatalf("%q %v", b, err)
	}
	_, context, err := zmtp.ParsePing(c.Data)
	if err != nil {
		w.t.Fatal(err)
	}
	w.send(zmtp.AppendPong(nil, context))
}

// dial connects to libzmq as the server.
func dial(t *testing.T, c zmtp.HandshakeConfig, args ...string) (*wire, *interop.Process) {
	t.Helper()
	peer := libzmq(t, args...)
	conn, err := net.Dial("tcp", strings.TrimPrefix(peer.Endpoint, "tcp://"))
	if err != nil {
		t.Fatal(err)
	}
	return newWire(t, conn, c), peer
}

// accept makes libzmq connect to us as the client.
func accept(t *testing.T, c zmtp.HandshakeConfig, args ...string) (*wire, *interop.Process) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	peer := libzmq(t, append(args, "--connect", "tcp://"+l.Addr().String())...)
	if err := l.(*net.TCPListener).SetDeadline(time.Now().Add(testenv.Hang)); err != nil {
		t.Fatal(err)
	}
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return newWire(t, conn, c), peer
}

func libzmq(t *testing.T, args ...string) *interop.Process {
	t.Helper()
	script, err := filepath.Abs("testdata/secure_peer.py")
	if err != nil {
		t.Fatal(err)
	}
	return interop.Python(t, script, args...)
}

// told waits for an event of libzmq's monitor and returns its value.
func told(p *interop.Process, event string) int {
	var e struct{ Value int }
	p.Event(event, &e)
	return e.Value
}

// want returns a authenticate that accepts only these values.
func want(t *testing.T, values ...string) func(*zmtp.Handshake, zmtp.Credentials) ([]byte, bool, error) {
	return func(h *zmtp.Handshake, c zmtp.Credentials) ([]byte, bool, error) {
		if len(c.Values) != len(values) {
			t.Errorf("%d credentials", len(c.Values))
		}
		for i, v := range c.Values {
			if string(v) != values[i] {
				t.Errorf("credentials %q", c.Values)
			}
		}
		return h.Accept(nil, "bob", nil)
	}
}

// deny returns a authenticate that denies.
func deny(status string) func(*zmtp.Handshake, zmtp.Credentials) ([]byte, bool, error) {
	return func(h *zmtp.Handshake, _ zmtp.Credentials) ([]byte, bool, error) {
		out, err := h.Deny(nil, status)
		return out, false, err
	}
}

// established checks the peer and exchanges messages.
func (w *wire) established(err error, encrypted bool) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
	if p := w.h.Peer(); p.SocketType != zmtp.TypeDealer || p.Major != 3 {
		w.t.Errorf("%+v", p)
	}
	if (w.h.Codec() != nil) != encrypted {
		w.t.Error("codec")
	}
	w.exchange()
}

func TestInteropPlain(t *testing.T) {
	t.Parallel()
	client := func(password string) zmtp.HandshakeConfig {
		return secure(func(p []byte) zmtp.Mechanism { return zmtp.NewPlainClient(p, "admin", password) })
	}
	server := secure(func(p []byte) zmtp.Mechanism { return zmtp.NewPlainServer(p) })
	t.Run("client", func(t *testing.T) {
		t.Parallel()
		w, peer := dial(t, client("secret"), "--plain-server")
		w.established(w.shake(nil), false)
		told(peer, "HANDSHAKE_SUCCEEDED")
	})
	t.Run("client denied", func(t *testing.T) {
		t.Parallel()
		w, peer := dial(t, client("guess"), "--plain-server")
		refused(t, w.shake(nil), "400")
		if v := told(peer, "HANDSHAKE_FAILED_AUTH"); v != 400 {
			t.Error(v)
		}
	})
	t.Run("server", func(t *testing.T) {
		t.Parallel()
		w, peer := accept(t, server, "--plain", "admin", "secret")
		w.established(w.shake(want(t, "admin", "secret")), false)
		told(peer, "HANDSHAKE_SUCCEEDED")
	})
	for _, status := range []string{zmtp.StatusDenied, zmtp.StatusFailed} {
		t.Run("server denies with "+status, func(t *testing.T) {
			t.Parallel()
			c := secure(func(p []byte) zmtp.Mechanism { return zmtp.NewPlainServer(p) })
			w, peer := accept(t, c, "--plain", "admin", "guess")
			denied(t, w.shake(deny(status)), peer, status)
		})
	}
}

func TestInteropCurve(t *testing.T) {
	t.Parallel()
	ours, theirs := argumentKeys(), argumentKeys()
	client := func(server zmtp.PublicKey) zmtp.HandshakeConfig {
		return secure(func(p []byte) zmtp.Mechanism {
			return zmtp.NewCurveClient(zmtp.CurveClientConfig{Properties: p, Keys: ours, Server: server})
		})
	}
	server := func() zmtp.HandshakeConfig {
		return secure(func(p []byte) zmtp.Mechanism {
			return zmtp.NewCurveServer(zmtp.CurveServerConfig{Properties: p, Keys: ours})
		})
	}
	asServer := []string{"--curve-server=" + theirs.Secret.Z85(), "--allow=" + ours.Public.String()}
	asClient := []string{"--curve", theirs.Public.String(), theirs.Secret.Z85(), ours.Public.String()}
	t.Run("client", func(t *testing.T) {
		t.Parallel()
		w, peer := dial(t, client(theirs.Public), asServer...)
		w.established(w.shake(nil), true)
		told(peer, "HANDSHAKE_SUCCEEDED")
	})
	t.Run("client denied", func(t *testing.T) {
		t.Parallel()
		w, peer := dial(t, client(theirs.Public), asServer[0], "--allow="+theirs.Public.String())
		refused(t, w.shake(nil), "400")
		if v := told(peer, "HANDSHAKE_FAILED_AUTH"); v != 400 {
			t.Error(v)
		}
	})
	t.Run("client with another server's key", func(t *testing.T) {
		t.Parallel()
		w, peer := dial(t, client(ours.Public), asServer...)
		if err := w.shake(nil); !errors.Is(err, io.EOF) && !isReset(err) {
			t.Error(err)
		}
		told(peer, "HANDSHAKE_FAILED_PROTOCOL")
	})
	t.Run("server", func(t *testing.T) {
		t.Parallel()
		w, peer := accept(t, server(), asClient...)
		w.established(w.shake(want(t, string(theirs.Public[:]))), true)
		told(peer, "HANDSHAKE_SUCCEEDED")
	})
	t.Run("server with heartbeats", func(t *testing.T) {
		t.Parallel()
		w, _ := accept(t, server(), append(asClient, "--heartbeat", "20")...)
		w.established(w.shake(want(t, string(theirs.Public[:]))), true)
		for range 5 {
			kind, b := w.next()
			if kind != zmtp.KindCommand {
				t.Fatalf("a message of %d bytes", len(b))
			}
			w.command(b)
		}
		w.exchange()
	})
	for _, status := range []string{zmtp.StatusDenied, zmtp.StatusFailed} {
		t.Run("server denies with "+status, func(t *testing.T) {
			t.Parallel()
			w, peer := accept(t, server(), asClient...)
			denied(t, w.shake(deny(status)), peer, status)
		})
	}
	t.Run("server with another key", func(t *testing.T) {
		t.Parallel()
		w, _ := accept(t, server(), "--curve", theirs.Public.String(), theirs.Secret.Z85(), theirs.Public.String())
		if err := w.shake(nil); !errors.Is(err, zmtp.ErrCryptographic) {
			t.Error(err)
		}
	})
}

// argumentKeys returns keys that do not look like options on a command line.
func argumentKeys() zmtp.KeyPair {
	for {
		k := zmtp.GenerateKeyPair()
		if k.Public.String()[0] != '-' && k.Secret.Z85()[0] != '-' {
			return k
		}
	}
}

// refused checks that libzmq refused us.
func refused(t *testing.T, err error, status string) {
	t.Helper()
	var p *zmtp.ProtocolError
	if !errors.As(err, &p) || !errors.Is(err, zmtp.ErrRefused) || p.Reason != status {
		t.Error(err)
	}
}

// denied checks that we refused libzmq, and that libzmq reports it.
func denied(t *testing.T, err error, peer *interop.Process, status string) {
	t.Helper()
	if !errors.Is(err, zmtp.ErrDenied) {
		t.Error(err)
	}
	if v := told(peer, "HANDSHAKE_FAILED_AUTH"); strconv.Itoa(v) != status {
		t.Errorf("libzmq was told %d", v)
	}
}

// isReset reports whether the peer closed the connection with unread bytes.
func isReset(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && !op.Timeout()
}
