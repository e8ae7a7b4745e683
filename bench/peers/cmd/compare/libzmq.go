package main

import (
	"sync"

	zmq "clustermap/bench/peers/internal/libzmq"
)

var zmqTypes = map[pattern]map[role]zmq.Type{
	pushPull: {sender: zmq.PUSH, receiver: zmq.PULL},
	reqRep:   {asker: zmq.REQ, answerer: zmq.REP},
	pubSub:   {sender: zmq.XPUB, receiver: zmq.SUB},
}

// Of larger messages libzmq's default queues would take more than the memory of the machine. Ours
// are bounded in bytes.
const (
	hugeSize  = 1 << 20
	hugeQueue = 16
)

// libzmqContext is the context of this process's sockets.
var libzmqContext = sync.OnceValue(zmq.NewContext)

func openLibzmq(s *spec, as role) (*end, error) {
	socket, err := libzmqContext().Socket(zmqTypes[s.Pattern][as])
	if err != nil {
		return nil, err
	}
	if s.Size > hugeSize {
		if err := socket.HighWaterMark(hugeQueue); err != nil {
			return nil, err
		}
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
	e := &end{
		bind: socket.Bind, connect: socket.Connect,
		loop: func() (*figure, error) { return loopLibzmq(s, as, socket) },
	}
	switch {
	case s.Pattern == pubSub && as == sender:
		err = socket.NoDrop()
		e.joined = func() error { return socket.Await(s.Peers) }
	case s.Pattern == pubSub:
		err = socket.Subscribe(s.topic())
	}
	return e, err
}

func loopLibzmq(s *spec, as role, socket zmq.Socket) (*figure, error) {
	var f figure
	var err error
	switch as {
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
