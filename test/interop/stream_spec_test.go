package interop

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"runtime"
	"strings"
	"testing"

	"clustermap/internal/interop"
	"clustermap/sockets"
)

// The tests in this file say the same as libzmq's tests of STREAM.

// dealerTo connects a DEALER to a STREAM, and has it send and receive messages of one
// frame.
type dealerTo struct {
	send    func(body []byte)
	receive func() []byte
}

// dealers are a DEALER of this package and one of libzmq.
var dealers = map[string]func(t *testing.T, s *sockets.Stream) dealerTo{
	"ours": func(t *testing.T, s *sockets.Stream) dealerTo {
		ctx := timeLimit(t)
		d := open(t, sockets.NewDealer, sockets.Options{})
		check(t, s.Bind(ctx, ownPort(t)))
		check(t, d.Connect(s.LastEndpoint()))
		return dealerTo{
			send: func(body []byte) { check(t, d.Send(ctx, body)) },
			receive: func() []byte {
				m, err := d.Recv(ctx)
				check(t, err)
				return m[0]
			},
		}
	},
	"libzmq's": func(t *testing.T, s *sockets.Stream) dealerTo {
		p := linkTo(t, s, weBind, "DEALER")
		return dealerTo{
			send:    func(body []byte) { p.Call(interop.Op{"op": "send", "messages": [][][]byte{{body}}}, nil) },
			receive: func() []byte { return pythonReceives(p, 1)[0][0].Bytes },
		}
	},
}

// TestLibzmq_stream: a STREAM plays a ROUTER byte by byte for a DEALER, and serves
// another STREAM.
func TestLibzmq_stream(t *testing.T) {
	t.Parallel()
	for whose, link := range dealers {
		t.Run("DEALER, "+whose, func(t *testing.T) {
			t.Parallel()
			s := open(t, sockets.NewStream, sockets.Options{})
			playRouter(t, s, link(t, s))
		})
	}
	t.Run("STREAM", func(t *testing.T) {
		t.Parallel()
		ctx := timeLimit(t)
		server, client := open(t, sockets.NewStream, sockets.Options{}), open(t, sockets.NewStream, sockets.Options{})
		check(t, server.SetOptions(func(o *sockets.Options) { o.Linger = hang })) // the answer comes before the end
		check(t, server.Bind(ctx, ownPort(t)))
		check(t, client.Connect(server.LastEndpoint()))
		browser := streamed(t, server, "")
		streamed(t, client, "")
		check(t, client.Send(ctx, client.Peers()[0].Identity, []byte("GET /page\n\n")))
		if from := streamed(t, server, "GET /page\n\n"); from != browser {
			t.Errorf("the request is from %q, want %q", from.Identity(), browser.Identity())
		}
		const answer = "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhere!"
		check(t, server.Send(ctx, browser.Identity(), []byte(answer)))
		check(t, server.Send(ctx, browser.Identity(), nil)) // closes
		streamed(t, client, answer)
		streamed(t, client, "") // the end, which libzmq's test does not wait for
	})
}

// playRouter does a ROUTER's part of a handshake and of an exchange of messages.
func playRouter(t *testing.T, s *sockets.Stream, dealer dealerTo) {
	t.Helper()
	ctx := timeLimit(t)
	signature := "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f"
	version := "\x03\x01NULL" + strings.Repeat("\x00", 16+1+31)
	ready := func(socketType string) string {
		return "\x04\x29\x05READY\x0bSocket-Type\x00\x00\x00\x06" + socketType + "\x08Identity\x00\x00\x00\x00"
	}

	dealer.send([]byte("Hello")) // it waits for the connection
	peer := streamed(t, s, "")
	local := func(p *sockets.Peer) {
		t.Helper()
		if address, _ := p.Property("Peer-Address"); address != "127.0.0.1" {
			t.Errorf("the message is from %q", address)
		}
	}
	local(peer)
	var read []byte // and not expected yet
	expect := func(what, want string) {
		t.Helper()
		for len(read) < len(want) {
			m, from, err := s.RecvFrom(ctx)
			check(t, err)
			if len(m) != 2 || len(m[1]) == 0 || from != peer || !bytes.Equal(m[0], peer.Identity()) {
				t.Fatalf("%s: %d frames from %q", what, len(m), from.Identity())
			}
			local(from)
			read = append(read, m[1]...)
		}
		if got := read[:len(want)]; string(got) != want {
			t.Fatalf("%s is %.100q, want %.100q", what, got, want)
		}
		read = read[len(want):]
	}
	say := func(text string) {
		t.Helper()
		check(t, s.Send(ctx, peer.Identity(), []byte(text)))
	}

	expect("the signature", signature)
	say(signature + version)
	expect("the rest of the greeting", version)
	expect("the command", ready("DEALER"))
	say(ready("ROUTER"))
	expect("the message", "\x00\x05Hello")
	say("\x00\x05World")
	if got := dealer.receive(); string(got) != "World" {
		t.Errorf("the DEALER received %q", got)
	}
	large := bytes.Repeat([]byte{0xab}, 64000)
	dealer.send(large)
	expect("the large message", "\x02"+string(binary.BigEndian.AppendUint64(nil, uint64(len(large))))+string(large))
}

// TestLibzmq_stream_empty: an empty frame for a DEALER that has just connected closes its
// connection. The next one has another identity.
func TestLibzmq_stream_empty(t *testing.T) {
	t.Parallel()
	for whose, link := range dealers {
		t.Run(whose, func(t *testing.T) {
			t.Parallel()
			ctx := timeLimit(t)
			s := open(t, sockets.NewStream, sockets.Options{})
			link(t, s).send(nil)
			first := streamed(t, s, "")
			check(t, s.Send(ctx, first.Identity(), []byte{}))
			for {
				m, peer, err := s.RecvFrom(ctx)
				check(t, err)
				if peer == first && len(m[1]) > 0 {
					continue // from before it was closed
				}
				if peer == first || bytes.Equal(m[0], first.Identity()) || len(m) != 2 || len(m[1]) > 0 {
					t.Errorf("%q came from %q, want the notice of another connection", m, peer.Identity())
				}
				break
			}
		})
	}
}

// TestLibzmq_stream_disconnect: of two STREAMs, the one that connects asks, is answered
// and closes; only the other one is told so.
func TestLibzmq_stream_disconnect(t *testing.T) {
	t.Parallel()
	ctx := timeLimit(t)
	server, client := open(t, sockets.NewStream, sockets.Options{}), open(t, sockets.NewStream, sockets.Options{})
	check(t, server.Bind(ctx, "tcp://0.0.0.0:*"))
	endpoint := server.LastEndpoint()
	if runtime.GOOS == "windows" { // which connects to real addresses only
		endpoint = strings.Replace(endpoint, "0.0.0.0", "127.0.0.1", 1)
	}
	check(t, client.Connect(endpoint))
	streamed(t, server, "")
	streamed(t, client, "")

	var p sockets.Poller
	defer p.Close()
	check(t, p.Add(server, sockets.PollIn))
	check(t, p.Add(client, sockets.PollIn))
	turn := func(s *sockets.Stream, want string) (identity []byte) {
		t.Helper()
		ready, err := p.Wait(ctx)
		check(t, err)
		if len(ready) != 1 || ready[0].Socket != sockets.Socket(s) {
			t.Fatalf("%d sockets are ready, or another one", len(ready))
		}
		return streamed(t, s, want).Identity()
	}
	check(t, client.Send(ctx, client.Peers()[0].Identity, []byte("is anybody there?")))
	check(t, server.Send(ctx, turn(server, "is anybody there?"), []byte("what now?")))
	check(t, client.Send(ctx, turn(client, "what now?"), nil)) // closes
	turn(server, "")
	if m, err := client.TryRecv(); !errors.Is(err, sockets.ErrWouldBlock) {
		t.Errorf("who closes receives %q, %v", m, err)
	}
}

// TestLibzmq_stream_exceeds_buffer: a STREAM that connects to a plain server receives,
// unchanged, bytes that do not fit in one read: of libzmq, or of this package.
func TestLibzmq_stream_exceeds_buffer(t *testing.T) {
	t.Parallel()
	const most = 32 << 10 // bytes in one message
	for _, size := range []int{8192 + 1, most + 1} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		check(t, err)
		s := open(t, sockets.NewStream, sockets.Options{})
		check(t, s.Connect("tcp://"+l.Addr().String()))
		nc, err := l.Accept()
		check(t, err)
		defer nc.Close()
		check(t, l.Close())
		sent := make([]byte, size)
		for i := range sent {
			sent[i] = byte(0xde + i*i>>8 + i)
		}
		_, err = nc.Write(sent)
		check(t, err)
		streamed(t, s, "")
		var got []byte
		for len(got) < size {
			m, err := s.Recv(timeLimit(t))
			check(t, err)
			if len(m) != 2 || len(m[1]) == 0 || len(m[1]) > most {
				t.Fatalf("%d frames, the last of %d bytes", len(m), len(m[len(m)-1]))
			}
			got = append(got, m[1]...)
		}
		if !bytes.Equal(got, sent) {
			t.Errorf("other bytes arrive than the %d sent", size)
		}
	}
}
