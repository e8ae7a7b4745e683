package main

import (
	"context"
	"fmt"
	"slices"
	"time"

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
	receiving interface {
		RecvBatch(ctx context.Context, b *sockets.Batch) error
	}
	talking interface {
		sending
		Recv(ctx context.Context) (sockets.Message, error)
	}
)

// openOurs makes the socket of a role.
func openOurs(s *spec, as role) (socket, error) {
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

func runOurs(s *spec, bound func(string)) (*figure, error) {
	ctx := context.Background()
	if s.Role == inside {
		return runOursInside(ctx, s)
	}
	sock, err := openOurs(s, s.Role)
	if err != nil {
		return nil, err
	}
	switch {
	case s.Endpoint == "":
		endpoint := anyPort
		if s.Pattern == pubSub {
			endpoint = anyAddress
		}
		if err = sock.Bind(ctx, endpoint); err == nil {
			bound(sock.LastEndpoint())
		}
	case s.Pattern == pubSub:
		for i := range s.Peers {
			if err = sock.Connect(loopback(s.Endpoint, i)); err != nil {
				break
			}
		}
	default:
		err = sock.Connect(s.Endpoint)
	}
	if err != nil {
		return nil, err
	}
	if pub, ok := sock.(*sockets.Pub); ok {
		if err := pub.WaitSubscribers(ctx, string(s.message()), s.Peers); err != nil {
			return nil, err
		}
	}
	return loopOurs(ctx, s, s.Role, sock)
}

// runOursInside has both ends in goroutines of this process.
func runOursInside(ctx context.Context, s *spec) (*figure, error) {
	counting, other := receiver, sender
	if s.Pattern == reqRep {
		counting, other = asker, answerer
	}
	binds, err := openOurs(s, counting)
	if err != nil {
		return nil, err
	}
	connects, err := openOurs(s, other)
	if err != nil {
		return nil, err
	}
	if err := binds.Bind(ctx, insideName); err != nil {
		return nil, err
	}
	if err := connects.Connect(insideName); err != nil {
		return nil, err
	}
	failed := make(chan error, 1)
	go func() {
		_, err := loopOurs(ctx, s, other, connects)
		failed <- err
	}()
	type result struct {
		f   *figure
		err error
	}
	done := make(chan result, 1)
	go func() {
		f, err := loopOurs(ctx, s, counting, binds)
		done <- result{f, err}
	}()
	select {
	case err := <-failed:
		return nil, err
	case r := <-done:
		return r.f, r.err
	}
}

func loopOurs(ctx context.Context, s *spec, as role, sock socket) (*figure, error) {
	switch as {
	case sender:
		to, message := sock.(sending), s.message()
		if all, ok := sock.(batching); ok && s.Batch > 0 {
			messages := slices.Repeat([][]byte{message}, s.Batch)
			for {
				if _, err := all.SendBatch(ctx, messages); err != nil {
					return nil, err
				}
			}
		}
		frames := [][]byte{message} // once: a slice for a call through an interface is allocated
		for {
			if err := to.Send(ctx, frames...); err != nil {
				return nil, err
			}
		}
	case receiver:
		return receiveOurs(ctx, s, sock.(receiving))
	case answerer:
		peer := sock.(talking)
		for {
			m, err := peer.Recv(ctx)
			if err != nil {
				return nil, err
			}
			if err := peer.Send(ctx, m...); err != nil {
				return nil, err
			}
		}
	case asker:
		return askOurs(ctx, s, sock.(talking))
	}
	return nil, missing(noSuchRole)
}

// receiveOurs counts the messages that arrive, and looks at each one as a receiver would.
func receiveOurs(ctx context.Context, s *spec, from receiving) (*figure, error) {
	var b sockets.Batch
	var start, end time.Time
	var n int64
	warming := true
	for {
		if err := from.RecvBatch(ctx, &b); err != nil {
			return nil, err
		}
		for i := range b.Len() {
			body, rest := b.Message(i).Next()
			if len(body) != s.Size || len(rest) > 0 {
				return nil, fmt.Errorf("a message of %d bytes, want %d", len(body), s.Size)
			}
		}
		end = time.Now()
		switch {
		case start.IsZero():
			start = end
		case warming:
			if end.Sub(start) >= s.Warm {
				warming, start = false, end
			}
		default:
			n += int64(b.Len())
			if d := end.Sub(start); d >= s.Time {
				return &figure{n, d}, nil
			}
		}
	}
}

func askOurs(ctx context.Context, s *spec, peer talking) (*figure, error) {
	message := s.message()
	start, warming := time.Now(), true
	for n := int64(0); ; {
		if err := peer.Send(ctx, message); err != nil {
			return nil, err
		}
		m, err := peer.Recv(ctx)
		if err != nil {
			return nil, err
		}
		if len(m) != 1 || len(m[0]) != s.Size {
			return nil, fmt.Errorf("a reply of %d frames, want one of %d bytes", len(m), s.Size)
		}
		end := time.Now()
		if warming {
			if end.Sub(start) >= s.Warm {
				warming, start = false, end
			}
			continue
		}
		n++
		if d := end.Sub(start); d >= s.Time {
			return &figure{n, d}, nil
		}
	}
}
