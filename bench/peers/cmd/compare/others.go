package main

import (
	"context"
	"errors"
	"strings"

	gozmq "github.com/go-zeromq/zmq4"
	"github.com/pebbe/zmq4"
)

// These are for the patterns over tcp, through the calls that their users write.

func openPebbe(s *spec, as role) (*end, error) {
	kind, ok := map[pattern]map[role]zmq4.Type{
		pushPull: {sender: zmq4.PUSH, receiver: zmq4.PULL},
		reqRep:   {asker: zmq4.REQ, answerer: zmq4.REP},
		pubSub:   {sender: zmq4.XPUB, receiver: zmq4.SUB}, // an XPUB can wait for its subscribers
	}[s.Pattern][as]
	if !ok || s.curve() || s.Role == inside {
		return nil, missing("this case in the harness")
	}
	sock, err := zmq4.NewSocket(kind)
	if err != nil {
		return nil, err
	}
	switch {
	case s.Pattern == pubSub && as == sender:
		// Every subscription is passed on, also one to a topic that another peer has.
		err = errors.Join(sock.SetXpubVerbose(1), sock.SetXpubNodrop(true))
	case s.Pattern == pubSub:
		err = sock.SetSubscribe(s.topic())
	}
	if err != nil {
		return nil, err
	}
	e := &end{
		bind: func(endpoint string) (string, error) {
			if err := sock.Bind(endpoint); err != nil {
				return "", err
			}
			return sock.GetLastEndpoint()
		},
		connect: sock.Connect,
		loop: func() (*figure, error) {
			return loop(s, as, calls[[]byte]{
				send:    func(m []byte) error { _, err := sock.SendBytes(m, 0); return err },
				receive: func() ([]byte, error) { return sock.RecvBytes(0) },
				size:    sizeOf, message: s.message(),
			})
		},
	}
	if s.Pattern == pubSub && as == sender {
		e.joined = func() error {
			for range s.Peers {
				if _, err := sock.RecvBytes(0); err != nil {
					return err
				}
			}
			return nil
		}
	}
	return e, nil
}

func sizeOf(m []byte) int { return len(m) }

func openGoZeroMQ(s *spec, as role) (*end, error) {
	create, ok := map[pattern]map[role]func(context.Context, ...gozmq.Option) gozmq.Socket{
		pushPull: {sender: gozmq.NewPush, receiver: gozmq.NewPull},
		reqRep:   {asker: gozmq.NewReq, answerer: gozmq.NewRep},
		pubSub:   {sender: gozmq.NewPub, receiver: gozmq.NewSub}, // its PUB does not drop
	}[s.Pattern][as]
	if !ok || s.curve() || s.Role == inside {
		return nil, missing("this case in the harness")
	}
	sock := create(context.Background())
	e := &end{
		bind: func(endpoint string) (string, error) {
			if err := sock.Listen(strings.Replace(endpoint, "*", "0", 1)); err != nil {
				return "", err
			}
			return "tcp://" + sock.Addr().String(), nil
		},
		connect: sock.Dial,
		loop: func() (*figure, error) {
			return loop(s, as, calls[[]byte]{
				send: func(m []byte) error { return sock.Send(gozmq.NewMsg(m)) },
				receive: func() ([]byte, error) {
					m, err := sock.Recv()
					if err != nil {
						return nil, err
					}
					return m.Bytes(), nil
				},
				size: sizeOf, message: s.message(),
			})
		},
	}
	if s.Pattern == pubSub && as == receiver {
		// Once it has all connections, for the PUB cannot tell how many subscribe.
		e.joined = func() error { return sock.SetOption(gozmq.OptionSubscribe, s.topic()) }
	}
	return e, nil
}
