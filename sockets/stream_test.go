package sockets

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"clustermap/internal/engine"
)

// wantStream receives one message and checks its bytes.
func wantStream(t *testing.T, s *Stream, want string) (identity []byte, peer *Peer) {
	t.Helper()
	m, peer, err := s.RecvFrom(testContext(t))
	must(t, err)
	if len(m) != 2 || string(m[1]) != want || !bytes.Equal(m[0], peer.Identity()) {
		t.Fatalf("received %q from %q, want %q", m, peer.Identity(), want)
	}
	return m[0], peer
}

// streamAndConn returns a STREAM, a plain connection to it and the STREAM's peer.
func streamAndConn(t *testing.T, o Options) (*Stream, *net.TCPConn, *Peer) {
	t.Helper()
	s := bind(t, NewStream, o)
	nc, err := net.Dial("tcp", strings.TrimPrefix(s.LastEndpoint(), "tcp://"))
	must(t, err)
	t.Cleanup(func() { nc.Close() })
	id, peer := wantStream(t, s, "")
	if len(id) != 5 || id[0] != 0 {
		t.Errorf("the identity is %q", id)
	}
	return s, nc.(*net.TCPConn), peer
}

// TestStreamConn: a plain connection sends and receives bytes as they are; connecting
// and disconnecting make notices; then the identity is unknown.
func TestStreamConn(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s, nc, peer := streamAndConn(t, Options{})
	sent := make([]byte, 300_000)
	for i := range sent {
		sent[i] = byte(i * i >> 8)
	}
	go func() { // in parts of several sizes
		for rest, n := sent, 1; len(rest) > 0; n = n*3 + 1 {
			n = min(n, len(rest))
			_, _ = nc.Write(rest[:n])
			rest = rest[n:]
		}
	}()
	var got []byte
	for len(got) < len(sent) {
		m, err := s.Recv(ctx)
		must(t, err)
		if len(m) != 2 || len(m[1]) == 0 || len(m[1]) > engine.StreamRead {
			t.Fatalf("%d frames, the last of %d bytes", len(m), len(m[len(m)-1]))
		}
		got = append(got, m[1]...)
	}
	if !bytes.Equal(got, sent) {
		t.Error("other bytes arrive than were sent")
	}

	go func() { // small, large, and several frames
		_ = s.Send(ctx, peer.Identity(), sent[:10], nil, sent[10:20])
		for part := range slices.Chunk(sent[20:100_000], 700) {
			_ = s.SendTo(ctx, peer, part)
		}
		_ = s.SendTo(ctx, peer, sent[100_000:])
	}()
	back := make([]byte, len(sent))
	_, err := io.ReadFull(nc, back)
	must(t, err)
	if !bytes.Equal(back, sent) {
		t.Error("other bytes come back than were sent")
	}

	must(t, nc.Close())
	wantStream(t, s, "")
	if err := s.Send(ctx, peer.Identity(), []byte("x")); err != ErrUnroutable {
		t.Errorf("Send to a peer that has gone: %v", err)
	}
	if err := s.SendTo(ctx, peer, []byte("x")); err != ErrUnroutable {
		t.Errorf("SendTo a peer that has gone: %v", err)
	}
	if err := s.Send(ctx, []byte("nobody"), []byte("x")); err != ErrUnroutable {
		t.Errorf("Send to an unknown identity: %v", err)
	}
}

// TestStreamHTTP: a STREAM serves an HTTP client. An empty message closes the
// connection after the answer was written.
func TestStreamHTTP(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := bind(t, NewStream, Options{})
	body := strings.Repeat("Hello, World! ", 20_000)
	done := make(chan error, 1)
	go func() {
		for {
			m, err := s.Recv(ctx)
			if err != nil || len(m[1]) == 0 {
				if err != nil {
					done <- err
					return
				}
				continue
			}
			err = s.Send(ctx, m[0], []byte("HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n"), []byte(body))
			if err == nil {
				err = s.Send(ctx, m[0], nil)
			}
			done <- err
			return
		}
	}()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Get("http://" + strings.TrimPrefix(s.LastEndpoint(), "tcp://"))
	must(t, err)
	defer r.Body.Close()
	got, err := io.ReadAll(r.Body)
	must(t, err)
	must(t, <-done)
	if string(got) != body {
		t.Errorf("%d bytes arrive", len(got))
	}
	eventually(t, "the connection ends", func() bool { return len(s.Peers()) == 0 })
	if m, err := s.TryRecv(); err != ErrWouldBlock {
		t.Errorf("after the application closed the connection: %q, %v", m, err)
	}
}

// TestStreamConnect: the identity of a Connect is known at once and stays; bytes wait
// for the connection; an empty message ends connecting.
func TestStreamConnect(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	server := bind(t, NewStream, Options{})
	client := open(t, NewStream, quick(Options{}))
	must(t, client.Connect(server.LastEndpoint()))
	id := client.Peers()[0].Identity
	must(t, client.Send(ctx, id, []byte("hello")))
	if got, _ := wantStream(t, client, ""); !bytes.Equal(got, id) {
		t.Errorf("the identity is %q, and %q before", got, id)
	}
	_, peer := wantStream(t, server, "")
	wantStream(t, server, "hello")

	must(t, server.SendTo(ctx, peer)) // closes
	wantStream(t, client, "")         // the end
	wantStream(t, client, "")         // connected again
	wantStream(t, server, "")
	must(t, client.Send(ctx, id, []byte("again")))
	wantStream(t, server, "again")
	must(t, client.Send(ctx, id, nil))
	wantStream(t, server, "")
	eventually(t, "the client gives up the endpoint", func() bool { return len(client.Peers()) == 0 })
	if err := client.Send(ctx, id, []byte("x")); err != ErrUnroutable {
		t.Errorf("Send to a closed peer: %v", err)
	}

	must(t, client.ConnectAs(server.LastEndpoint(), []byte("name")))
	if err := client.ConnectAs(server.LastEndpoint(), []byte("name")); err != ErrIdentityInUse {
		t.Errorf("the identity once more: %v", err)
	}
	wantStream(t, server, "")
	if got, _ := wantStream(t, client, ""); string(got) != "name" {
		t.Errorf("the identity is %q", got)
	}
}

// TestStreamSlow: a peer that does not read fills its own queue only: Send to it
// waits, another peer is served, and Close ends in time.
func TestStreamSlow(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s, _, slow := streamAndConn(t, Options{SendHWM: 4, Linger: LingerNone, SendBuffer: 16 << 10})
	part := make([]byte, 1<<20)
	var err error
	for range 100 { // the system's buffers take some
		waiting, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		err = s.SendTo(waiting, slow, part)
		cancel()
		if err != nil {
			break
		}
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a peer that does not read: %v", err)
	}
	other, err := net.Dial("tcp", strings.TrimPrefix(s.LastEndpoint(), "tcp://"))
	must(t, err)
	defer other.Close()
	_, peer := wantStream(t, s, "")
	must(t, s.SendTo(ctx, peer, []byte("x")))
	_, err = io.ReadFull(other, make([]byte, 1))
	must(t, err)
	ends(t, "Close", closes(s))
}

// TestStreamFlood: the high-water mark limits the unreceived bytes of a peer.
func TestStreamFlood(t *testing.T) {
	t.Parallel()
	_, nc, peer := streamAndConn(t, Options{RecvHWM: 10, RecvBuffer: 16 << 10})
	must(t, nc.SetWriteBuffer(16<<10))
	must(t, nc.SetWriteDeadline(time.Now().Add(300*time.Millisecond)))
	n := 0
	for part := make([]byte, 64<<10); ; {
		k, err := nc.Write(part)
		if n += k; err != nil {
			break
		}
		if n > 64<<20 {
			t.Fatal("the peer is never stopped")
		}
	}
	if got := peer.Stats().PendingMessages; got > 12 {
		t.Errorf("%d messages are queued", got)
	}
}

// TestStreamOptions: options that need ZMTP are refused, and so is inproc; notices
// can be turned off.
func TestStreamOptions(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	for field, o := range map[string]Options{
		"Security":          {Security: Security{PlainUsername: "u"}},
		"HeartbeatInterval": {HeartbeatInterval: time.Second},
		"HelloMessage":      {HelloMessage: []byte("x")},
	} {
		var invalid *OptionError
		if _, err := NewStream(o); !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	s := bind(t, NewStream, Options{Notify: NotifyNone})
	var invalid *EndpointError
	if err := s.Bind(ctx, "inproc://x"); !errors.As(err, &invalid) {
		t.Errorf("Bind: %v", err)
	}
	if err := s.Connect("inproc://x"); !errors.As(err, &invalid) {
		t.Errorf("Connect: %v", err)
	}
	nc, err := net.Dial("tcp", strings.TrimPrefix(s.LastEndpoint(), "tcp://"))
	must(t, err)
	_, err = nc.Write([]byte("first"))
	must(t, err)
	wantStream(t, s, "first")
	must(t, nc.Close())
	eventually(t, "the connection ends", func() bool { return len(s.Peers()) == 0 })
	if m, err := s.TryRecv(); err != ErrWouldBlock {
		t.Errorf("a notice: %q, %v", m, err)
	}
}

// TestStreamMessages: the messages that an iterator lends begin with the identity, like
// those of Recv.
func TestStreamMessages(t *testing.T) {
	t.Parallel()
	s, nc, peer := streamAndConn(t, Options{})
	_, err := nc.Write([]byte("hello"))
	must(t, err)
	for m, err := range s.Messages(testContext(t)) {
		must(t, err)
		if len(m) != 2 || !bytes.Equal(m[0], peer.Identity()) || string(m[1]) != "hello" {
			t.Errorf("%q", m)
		}
		break
	}
}

// TestStreamPoller: a Poller finds a STREAM ready to receive for notices and bytes, and
// always ready to send, as in libzmq.
func TestStreamPoller(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := bind(t, NewStream, Options{SendHWM: 1, SendBuffer: 16 << 10, Linger: LingerNone})
	var p Poller
	defer p.Close()
	must(t, p.Add(s, PollIn))
	wantNothing(t, &p)
	nc, err := net.Dial("tcp", strings.TrimPrefix(s.LastEndpoint(), "tcp://"))
	must(t, err)
	defer nc.Close()
	must(t, nc.(*net.TCPConn).SetReadBuffer(16<<10))
	ready := func(want PollEvents) {
		t.Helper()
		got, err := p.Wait(ctx)
		wantReady(t, got, err, Ready{s, want})
	}
	ready(PollIn)
	_, peer := wantStream(t, s, "")
	wantNothing(t, &p)
	_, err = nc.Write([]byte("bytes"))
	must(t, err)
	ready(PollIn)
	wantStream(t, s, "bytes")
	must(t, p.Add(s, PollIn|PollOut))
	ready(PollOut)
	// The system takes a part of the first message, so that the second one stays in the
	// peer's queue.
	sent, large := 0, make([]byte, 16<<20)
	eventually(t, "both are taken", func() bool {
		err := s.TrySend(peer.Identity(), large)
		if err == nil {
			sent++
		} else if !errors.Is(err, ErrWouldBlock) {
			t.Fatal(err)
		}
		return sent == 2
	})
	if n := peer.Stats().QueuedMessages; n != 1 {
		t.Errorf("%d messages are queued, want 1", n)
	}
	ready(PollOut)
	must(t, p.Add(s, PollIn))
	must(t, nc.Close())
	ready(PollIn)
	wantStream(t, s, "")
}

// TestStreamProxy: a proxy puts a STREAM before workers, and makes one that is both of
// its sides an echo server.
func TestStreamProxy(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	bytesOf := func(s *Stream) (says func(string), hears func(string)) {
		nc, err := net.Dial("tcp", strings.TrimPrefix(s.LastEndpoint(), "tcp://"))
		must(t, err)
		t.Cleanup(func() { nc.Close() })
		says = func(text string) {
			t.Helper()
			_, err := nc.Write([]byte(text))
			must(t, err)
		}
		hears = func(text string) {
			t.Helper()
			got := make([]byte, len(text))
			if n, err := io.ReadFull(nc, got); err != nil || string(got) != text {
				t.Fatalf("%q and %v, want %q", got[:n], err, text)
			}
		}
		return says, hears
	}
	front, back := bind(t, NewStream, Options{}), bind(t, NewDealer, Options{})
	running(t, newProxy(t, front, back, ProxyOptions{}))
	worker := dialled(t, NewDealer, Options{}, back.LastEndpoint())
	says, hears := bytesOf(front)
	receive := func(want string) Message {
		t.Helper()
		m, err := worker.Recv(ctx)
		must(t, err)
		if len(m) != 2 || string(m[1]) != want {
			t.Fatalf("the worker received %q, want %q", m, want)
		}
		return m
	}
	receive("") // the notice
	for _, text := range []string{"one", "two"} {
		says(text)
		m := receive(text)
		must(t, worker.Send(ctx, []byte("nobody"), []byte("lost")))
		must(t, worker.Send(ctx, m[0], []byte("re: "+text)))
		hears("re: " + text)
	}
	m := Message{front.Peers()[0].Identity, nil}
	must(t, worker.Send(ctx, m...)) // closes
	eventually(t, "the connection ends", func() bool { return len(front.Peers()) == 0 })

	echo := bind(t, NewStream, Options{Notify: NotifyNone})
	running(t, newProxy(t, echo, echo, ProxyOptions{}))
	says, hears = bytesOf(echo)
	for _, text := range []string{"hello", strings.Repeat("x", 100_000)} {
		says(text)
		hears(text)
	}
}

// TestAllocStream: neither sending nor receiving allocates.
func TestAllocStream(t *testing.T) {
	ctx := testContext(t)
	s, nc, peer := streamAndConn(t, Options{})
	var b Batch
	defer b.Release()
	for _, size := range []int{10, 5000, 100_000} {
		part, back := make([]byte, size), make([]byte, size)
		frames := [][]byte{peer.Identity(), part}
		noAllocs(t, "Send", func() {
			must(t, s.Send(ctx, frames...))
			must(t, s.SendTo(ctx, peer, frames[1:]...))
			for range 2 {
				_, err := io.ReadFull(nc, back)
				must(t, err)
			}
		})
		noAllocs(t, "RecvBatch", func() {
			_, err := nc.Write(part)
			must(t, err)
			for n := 0; n < size; {
				must(t, s.RecvBatch(ctx, &b))
				for i := range b.Len() {
					body, _ := b.Message(i).Next()
					n += len(body)
				}
			}
		})
	}
}

// TestStreamNotifyDefault: zero stands for both notices also when the option is changed.
func TestStreamNotifyDefault(t *testing.T) {
	t.Parallel()
	s := open(t, NewStream, Options{Notify: NotifyNone})
	must(t, s.SetOptions(func(o *Options) { o.Notify = 0 }))
	if got := s.Options().Notify; got != NotifyConnect|NotifyDisconnect {
		t.Errorf("Notify is %v", got)
	}
}
