package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	gozmq "github.com/go-zeromq/zmq4"
	"github.com/pebbe/zmq4"
)

// These are for the patterns over tcp, through the calls that their users write.

// count calls receive until enough was counted, as the other loops do.
func count(s *spec, receive func() (int, error)) (*figure, error) {
	var start time.Time
	warming := true
	each := stride(s.Size)
	if s.Pattern == reqRep {
		each = 1
	}
	for n := int64(0); ; {
		for range each {
			size, err := receive()
			if err != nil {
				return nil, err
			}
			if size != s.Size {
				return nil, fmt.Errorf("a message of %d bytes, want %d", size, s.Size)
			}
		}
		end := time.Now()
		switch {
		case start.IsZero():
			start = end
		case warming:
			if end.Sub(start) >= s.Warm {
				warming, start = false, end
			}
		default:
			n += int64(each)
			if d := end.Sub(start); d >= s.Time {
				return &figure{n, d}, nil
			}
		}
	}
}

// loop runs a role with the calls of a library.
func (s *spec) loop(send func([]byte) error, receive func() ([]byte, error)) (*figure, error) {
	message := s.message()
	switch s.Role {
	case sender:
		for {
			if err := send(message); err != nil {
				return nil, err
			}
		}
	case receiver:
		return count(s, func() (int, error) {
			m, err := receive()
			return len(m), err
		})
	case answerer:
		for {
			m, err := receive()
			if err == nil {
				err = send(m)
			}
			if err != nil {
				return nil, err
			}
		}
	case asker:
		return count(s, func() (int, error) {
			if err := send(message); err != nil {
				return 0, err
			}
			m, err := receive()
			return len(m), err
		})
	}
	return nil, missing(noSuchRole)
}

// join binds or connects a socket, as often as the case has peers.
func (s *spec) join(connect func(endpoint string) error, bind func(endpoint string) (string, error), bound func(string)) error {
	switch {
	case s.Endpoint == "":
		endpoint := anyPort
		if s.Pattern == pubSub {
			endpoint = anyAddress
		}
		endpoint, err := bind(endpoint)
		if err == nil {
			bound(endpoint)
		}
		return err
	case s.Pattern == pubSub:
		for i := range s.Peers {
			if err := connect(loopback(s.Endpoint, i)); err != nil {
				return err
			}
		}
		return nil
	}
	return connect(s.Endpoint)
}

func runPebbe(s *spec, bound func(string)) (*figure, error) {
	kind, ok := map[pattern]map[role]zmq4.Type{
		pushPull: {sender: zmq4.PUSH, receiver: zmq4.PULL},
		reqRep:   {asker: zmq4.REQ, answerer: zmq4.REP},
		pubSub:   {sender: zmq4.XPUB, receiver: zmq4.SUB}, // an XPUB can wait for its subscribers
	}[s.Pattern][s.Role]
	if !ok || s.curve() {
		return nil, missing("this case in the harness")
	}
	sock, err := zmq4.NewSocket(kind)
	if err != nil {
		return nil, err
	}
	switch {
	case s.Pattern == pubSub && s.Role == sender:
		// Every subscription is passed on, also one to a topic that another peer has.
		err = errors.Join(sock.SetXpubVerbose(1), sock.SetXpubNodrop(true))
	case s.Pattern == pubSub:
		err = sock.SetSubscribe(s.topic())
	}
	if err != nil {
		return nil, err
	}
	if err := s.join(sock.Connect, func(endpoint string) (string, error) {
		if err := sock.Bind(endpoint); err != nil {
			return "", err
		}
		return sock.GetLastEndpoint()
	}, bound); err != nil {
		return nil, err
	}
	if s.Pattern == pubSub && s.Role == sender {
		for range s.Peers {
			if _, err := sock.RecvBytes(0); err != nil {
				return nil, err
			}
		}
	}
	return s.loop(
		func(m []byte) error { _, err := sock.SendBytes(m, 0); return err },
		func() ([]byte, error) { return sock.RecvBytes(0) })
}

func runGoZeroMQ(s *spec, bound func(string)) (*figure, error) {
	create, ok := map[pattern]map[role]func(context.Context, ...gozmq.Option) gozmq.Socket{
		pushPull: {sender: gozmq.NewPush, receiver: gozmq.NewPull},
		reqRep:   {asker: gozmq.NewReq, answerer: gozmq.NewRep},
		pubSub:   {sender: gozmq.NewPub, receiver: gozmq.NewSub}, // its PUB does not drop
	}[s.Pattern][s.Role]
	if !ok || s.curve() {
		return nil, missing("this case in the harness")
	}
	sock := create(context.Background())
	if err := s.join(sock.Dial, func(endpoint string) (string, error) {
		if err := sock.Listen(strings.Replace(endpoint, "*", "0", 1)); err != nil {
			return "", err
		}
		return "tcp://" + sock.Addr().String(), nil
	}, bound); err != nil {
		return nil, err
	}
	if s.Pattern == pubSub && s.Role == receiver {
		// Once it has all connections, for the PUB cannot tell how many subscribe.
		if err := sock.SetOption(gozmq.OptionSubscribe, s.topic()); err != nil {
			return nil, err
		}
	}
	return s.loop(
		func(m []byte) error { return sock.Send(gozmq.NewMsg(m)) },
		func() ([]byte, error) {
			m, err := sock.Recv()
			if err != nil {
				return nil, err
			}
			return m.Bytes(), nil
		})
}
