package main

import (
	zmq "clustermap/bench/peers/internal/libzmq"
)

var zmqTypes = map[pattern]map[role]zmq.Type{
	pushPull: {sender: zmq.PUSH, receiver: zmq.PULL},
	reqRep:   {asker: zmq.REQ, answerer: zmq.REP},
	pubSub:   {sender: zmq.XPUB, receiver: zmq.SUB},
}

func runLibzmq(s *spec, bound func(string)) (*figure, error) {
	c := zmq.NewContext()
	if s.Role == inside {
		return runLibzmqInside(c, s)
	}
	socket, err := c.Socket(zmqTypes[s.Pattern][s.Role])
	if err != nil {
		return nil, err
	}
	if s.curve() {
		if s.Endpoint == "" {
			err = socket.CurveServer(s.ServerSecret)
		} else {
			err = socket.CurveClient(s.ServerPublic, s.ClientPublic, s.ClientSecret)
		}
		if err != nil {
			return nil, err
		}
	}
	switch {
	case s.Pattern == pubSub && s.Role == sender:
		err = socket.NoDrop()
	case s.Pattern == pubSub:
		err = socket.Subscribe(s.topic())
	}
	if err != nil {
		return nil, err
	}
	switch {
	case s.Endpoint == "":
		endpoint := anyPort
		if s.Pattern == pubSub {
			endpoint = anyAddress
		}
		if endpoint, err = socket.Bind(endpoint); err == nil {
			bound(endpoint)
		}
	case s.Pattern == pubSub:
		for i := range s.Peers {
			if err = socket.Connect(loopback(s.Endpoint, i)); err != nil {
				break
			}
		}
	default:
		err = socket.Connect(s.Endpoint)
	}
	if err != nil {
		return nil, err
	}
	if s.Pattern == pubSub && s.Role == sender {
		if err := socket.Await(s.Peers); err != nil {
			return nil, err
		}
	}
	return loopLibzmq(s, socket)
}

func loopLibzmq(s *spec, socket zmq.Socket) (*figure, error) {
	var f figure
	var err error
	switch s.Role {
	case sender:
		return nil, socket.SendLoop(s.message())
	case answerer:
		return nil, socket.ReplyLoop(s.Size)
	case receiver:
		f.Messages, f.Elapsed, err = socket.RecvLoop(s.Size, s.Warm, s.Time, stride(s.Size))
	case asker:
		f.Messages, f.Elapsed, err = socket.RequestLoop(s.message(), s.Warm, s.Time)
	default:
		err = missing(noSuchRole)
	}
	return &f, err
}

// runLibzmqInside has both ends in threads of this process.
func runLibzmqInside(c zmq.Context, s *spec) (*figure, error) {
	counting, other := *s, *s
	counting.Role, other.Role = receiver, sender
	if s.Pattern == reqRep {
		counting.Role, other.Role = asker, answerer
	}
	binds, err := c.Socket(zmqTypes[s.Pattern][counting.Role])
	if err != nil {
		return nil, err
	}
	if _, err := binds.Bind(insideName); err != nil {
		return nil, err
	}
	failed := make(chan error, 1)
	go func() {
		socket, err := c.Socket(zmqTypes[s.Pattern][other.Role])
		if err == nil {
			err = socket.Connect(insideName)
		}
		if err == nil {
			_, err = loopLibzmq(&other, socket)
		}
		failed <- err
	}()
	done := make(chan error, 1)
	var f *figure
	go func() {
		var err error
		f, err = loopLibzmq(&counting, binds)
		done <- err
	}()
	select {
	case err := <-failed:
		return nil, err
	case err := <-done:
		return f, err
	}
}
