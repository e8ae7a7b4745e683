package chp

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
)

// Close returns after Serve has ended everything, also if the end of Serve's context
// came first.
func TestServerCloseAwaitsServe(t *testing.T) {
	t.Parallel()
	for range 20 {
		s, err := NewServer(ServerOptions{Logger: quiet()})
		must(t, err)
		ctx, cancel := context.WithCancel(testContext(t))
		go s.Serve(ctx)
		<-s.Ready()
		c := startClient(t, s, ClientOptions{})
		must(t, c.WaitActive(testContext(t)))
		cancel()
		eventually(t, "Serve closes the sockets", func() bool {
			s.state.Lock()
			defer s.state.Unlock()
			return s.phase == phaseClosed
		})
		must(t, s.Close())
		select {
		case <-s.ended:
		default:
			t.Error("Close has returned, and the server has not ended")
			return
		}
	}
}

// A second Serve says that the server serves, or that it has ended.
func TestServeServesOnce(t *testing.T) {
	t.Parallel()
	s := startServer(t, ServerOptions{})
	if err := s.Serve(testContext(t)); !errors.Is(err, ErrServing) || errors.Is(err, ErrClosed) {
		t.Errorf("while it serves: %v", err)
	}
	if c := startClient(t, s, ClientOptions{}); c.WaitActive(testContext(t)) != nil {
		t.Error("the first Serve has ended")
	}
	must(t, s.Close())
	if err := s.Serve(testContext(t)); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestErrClosedText: the text of ErrClosed does not suggest a fault of the network.
func TestErrClosedText(t *testing.T) {
	t.Parallel()
	if text := ErrClosed.Error(); text != "chp: closed" || !errors.Is(ErrClosed, net.ErrClosed) {
		t.Errorf("%q, net.ErrClosed: %v", text, errors.Is(ErrClosed, net.ErrClosed))
	}
}

// A host that cannot be one is a fault of the options.
func TestServerOptionsHost(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"a b", "tcp://127.0.0.1", "127.0.0.1:5000", "[::1]"} {
		var o *OptionError
		if _, err := NewServer(ServerOptions{Host: host, Logger: quiet()}); !errors.As(err, &o) || o.Field != "Host" {
			t.Errorf("%s: %v", host, err)
		}
	}
	for _, host := range []string{"::1", "fe80::1%lo", "*", "localhost", "10.0.0.1"} {
		s, err := NewServer(ServerOptions{Host: host, Logger: quiet()})
		must(t, err)
		must(t, s.Close())
	}
}

// A peer that goes away in the handshake is nothing to warn of; one that breaks
// the protocol is.
func TestServerLogsHandshakes(t *testing.T) {
	t.Parallel()
	log := &lockedLog{}
	s := startServer(t, ServerOptions{Logger: log.logger()})
	address := strings.TrimPrefix(s.Endpoints().Snapshot, "tcp://")
	dial := func() *net.TCPConn {
		c, err := net.Dial("tcp", address)
		must(t, err)
		return c.(*net.TCPConn)
	}
	for range 5 {
		c := dial()
		c.Read(make([]byte, 10))
		must(t, c.Close()) // the unread bytes make it a reset
		c = dial()
		must(t, c.CloseWrite())
		io.Copy(io.Discard, c)
		must(t, c.Close())
	}
	c := dial()
	defer c.Close()
	c.Write([]byte("SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n"))
	eventually(t, "a warning", func() bool { return strings.Contains(log.String(), "not ZMTP") })
	if n := strings.Count(log.String(), "handshake failed"); n != 1 {
		t.Errorf("%d failures are logged: %s", n, log.String())
	}
}
