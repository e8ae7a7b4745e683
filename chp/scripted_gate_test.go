package chp

import (
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
)

// subscriptionGate stands between a client and the publisher of a scripted
// server: it lets the handshake through and holds back the bytes that the client sends
// after it, subscriptions first of all, until it is opened.
type subscriptionGate struct {
	s     *scripted
	held  chan struct{} // closed when bytes are held back
	opens chan struct{}
}

// holdSubscriptions puts a gate in front of the publisher.
func (s *scripted) holdSubscriptions() *subscriptionGate {
	s.t.Helper()
	front := fmt.Sprintf("%s:%d", s.host, s.port+1)
	must(s.t, s.pub.Unbind("tcp://"+front))
	must(s.t, s.pub.Bind(s.ctx, "tcp://"+s.host+":0"))
	back := fmt.Sprintf("%s:%d", s.host, portOf(s.pub.LastEndpoint()))
	listener, err := net.Listen("tcp", front)
	must(s.t, err)
	g := &subscriptionGate{s: s, held: make(chan struct{}), opens: make(chan struct{})}
	var wg sync.WaitGroup
	wg.Go(func() { g.serve(listener, back) })
	s.t.Cleanup(wg.Wait)
	s.t.Cleanup(func() { listener.Close() })
	return g
}

// serve carries one connection.
func (g *subscriptionGate) serve(listener net.Listener, back string) {
	client, err := listener.Accept()
	if err != nil {
		return
	}
	defer client.Close()
	server, err := net.Dial("tcp", back)
	if err != nil {
		return
	}
	defer server.Close()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		io.Copy(client, server)
		client.Close()
	})
	// The greeting has 64 bytes; READY is a command with a short header.
	io.CopyN(server, client, 64)
	header := make([]byte, 2)
	if _, err := io.ReadFull(client, header); err != nil {
		return
	}
	server.Write(header)
	io.CopyN(server, client, int64(header[1]))
	one := make([]byte, 1)
	if _, err := io.ReadFull(client, one); err != nil {
		return
	}
	close(g.held)
	<-g.opens
	server.Write(one)
	io.Copy(server, client)
	server.Close()
}

// reached waits until bytes are held back.
func (g *subscriptionGate) reached() { <-g.held }

func (g *subscriptionGate) open() { close(g.opens) }

// With a server of ours the sign is the PONG behind the subscriptions.
func TestClientSubscribesBeforeItAsksOurs(t *testing.T) {
	t.Parallel()
	s := newScripted(t, asOurs)
	gate := s.holdSubscriptions()
	c := followScripted(t, ClientOptions{}, s)
	gate.reached()
	meanwhile(t)
	s.nobodyAsks()
	gate.open()
	s.answer(1)
	must(t, c.WaitActive(testContext(t)))
}
