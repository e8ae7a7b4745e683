package main

import (
	"context"
	"fmt"
	"slices"

	"clustermap/sockets"
	"clustermap/zmtp"
)

// The methods of a socket that the loops need.
type (
	socket interface {
		Bind(ctx context.Context, endpoint string) error
		Connect(endpoint string) error
		LastEndpoint() string
	}
	sending interface {
		Send(ctx context.Context, frames ...[]byte) error
	}
	batching interface {
		SendBatch(ctx context.Context, bodies [][]byte) (int, error)
	}
	batchReceiving interface {
		RecvBatch(ctx context.Context, b *sockets.Batch) error
	}
	receiving interface {
		Recv(ctx context.Context) (sockets.Message, error)
		RecvInto(ctx context.Context, m *sockets.Message) error
	}
)

func openOurs(s *spec, as role) (*end, error) {
	ctx := context.Background()
	sock, err := newOurs(s, as)
	if err != nil {
		return nil, err
	}
	e := &end{
		bind: func(endpoint string) (string, error) {
			err := sock.Bind(ctx, endpoint)
			return sock.LastEndpoint(), err
		},
		connect: sock.Connect,
		loop:    func() (*figure, error) { return loopOurs(ctx, s, as, sock) },
	}
	if pub, ok := sock.(*sockets.Pub); ok {
		e.joined = func() error { return pub.WaitSubscribers(ctx, string(s.message()), s.Peers) }
	}
	return e, nil
}

// newOurs makes the socket of a role.
func newOurs(s *spec, as role) (socket, error) {
	o := sockets.Options{}
	if s.curve() {
		if err := s.secure(&o.Security); err != nil {
			return nil, err
		}
	}
	switch {
	case s.Pattern == pushPull && as == sender:
		return sockets.NewPush(o)
	case s.Pattern == pushPull && as == receiver:
		return sockets.NewPull(o)
	case s.Pattern == reqRep && as == asker:
		return sockets.NewReq(o)
	case s.Pattern == reqRep && as == answerer:
		return sockets.NewRep(o)
	case s.Pattern == pubSub && as == sender:
		o.FullPolicy = sockets.PolicyBlock
		return sockets.NewPub(o)
	case s.Pattern == pubSub && as == receiver:
		sub, err := sockets.NewSub(o)
		if err == nil {
			err = sub.Subscribe(s.topic())
		}
		return sub, err
	}
	return nil, missing(string(s.Pattern))
}

// secure puts the keys in.
func (s *spec) secure(o *sockets.Security) (err error) {
	secret := s.ServerSecret
	if o.CurveServer = s.Endpoint == ""; !o.CurveServer {
		secret = s.ClientSecret
		if o.CurveServerKey, err = zmtp.ParsePublicKey(s.ServerPublic); err != nil {
			return err
		}
	}
	o.CurveSecretKey, err = zmtp.ParseSecretKey(secret)
	return err
}

func loopOurs(ctx context.Context, s *spec, as role, sock socket) (*figure, error) {
	message := s.message()
	if from, ok := sock.(batchReceiving); ok && as == receiver && s.Receive == "" {
		return receiveOurs(ctx, s, from)
	}
	c := calls[sockets.Message]{message: sockets.Message{message}}
	if to, ok := sock.(sending); ok {
		if as == sender {
			return nil, sendOurs(ctx, s, to)
		}
		c.send = func(m sockets.Message) error { return to.Send(ctx, m...) }
	}
	if from, ok := sock.(receiving); ok {
		c.receive = func() (sockets.Message, error) { return from.Recv(ctx) }
		if s.Receive == recvInto {
			var m sockets.Message
			c.receive = func() (sockets.Message, error) { return m, from.RecvInto(ctx, &m) }
		}
	}
	c.size = func(m sockets.Message) int {
		if len(m) != 1 {
			return -1
		}
		return len(m[0])
	}
	return loop(s, as, c)
}

// sendOurs sends until that fails, without a function between the loop and
// the socket: a message takes the sender about 30 ns.
func sendOurs(ctx context.Context, s *spec, to sending) error {
	frames := [][]byte{s.message()}
	if all, ok := to.(batching); ok && s.Batch > 0 {
		for messages := slices.Repeat(frames, s.Batch); ; {
			if _, err := all.SendBatch(ctx, messages); err != nil {
				return err
			}
		}
	}
	for {
		if err := to.Send(ctx, frames...); err != nil {
			return err
		}
	}
}

// receiveOurs counts the messages that arrive, and looks at each one as a receiver would.
func receiveOurs(ctx context.Context, s *spec, from batchReceiving) (*figure, error) {
	var b sockets.Batch
	for counted := (meter{spec: s}); ; {
		if err := from.RecvBatch(ctx, &b); err != nil {
			return nil, err
		}
		for i := range b.Len() {
			body, rest := b.Message(i).Next()
			if len(body) != s.Size || len(rest) > 0 {
				return nil, fmt.Errorf("a message of %d bytes, want %d", len(body), s.Size)
			}
		}
		if f := counted.add(b.Len()); f != nil {
			return f, nil
		}
	}
}
