package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	gozmq "github.com/go-zeromq/zmq4"
	"github.com/pebbe/zmq4"
)

// These are for the patterns with one peer over tcp, through the calls that
// their users write.

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

func runPebbe(s *spec, bound func(string)) (*figure, error) {
	kind, ok := map[pattern]map[role]zmq4.Type{
		pushPull: {sender: zmq4.PUSH, receiver: zmq4.PULL},
		reqRep:   {asker: zmq4.REQ, answerer: zmq4.REP},
	}[s.Pattern][s.Role]
	if !ok || s.curve() {
		return nil, missing("this case in the harness")
	}
	sock, err := zmq4.NewSocket(kind)
	if err != nil {
		return nil, err
	}
	if s.Endpoint != "" {
		err = sock.Connect(s.Endpoint)
	} else if err = sock.Bind(anyPort); err == nil {
		var last string
		if last, err = sock.GetLastEndpoint(); err == nil {
			bound(last)
		}
	}
	if err != nil {
		return nil, err
	}
	return s.loop(
		func(m []byte) error { _, err := sock.SendBytes(m, 0); return err },
		func() ([]byte, error) { return sock.RecvBytes(0) })
}

func runGoZeroMQ(s *spec, bound func(string)) (*figure, error) {
	create, ok := map[pattern]map[role]func(context.Context, ...gozmq.Option) gozmq.Socket{
		pushPull: {sender: gozmq.NewPush, receiver: gozmq.NewPull},
		reqRep:   {asker: gozmq.NewReq, answerer: gozmq.NewRep},
	}[s.Pattern][s.Role]
	if !ok || s.curve() {
		return nil, missing("this case in the harness")
	}
	sock := create(context.Background())
	var err error
	if s.Endpoint != "" {
		err = sock.Dial(s.Endpoint)
	} else if err = sock.Listen(strings.Replace(anyPort, "*", "0", 1)); err == nil {
		bound("tcp://" + sock.Addr().String())
	}
	if err != nil {
		return nil, err
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
