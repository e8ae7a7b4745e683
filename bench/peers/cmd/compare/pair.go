package main

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	zmq "clustermap/bench/peers/internal/libzmq"
	"clustermap/internal/bench/worker"
)

// role is a worker's part in a case.
type role string

const (
	sender   role = "send"    // PUSH or PUB: sends until it is stopped
	receiver role = "receive" // PULL or SUB: counts
	asker    role = "ask"     // REQ: counts replies
	answerer role = "answer"  // REP: answers until it is stopped
	inside   role = "inside"  // both ends in one process, over inproc
)

// spec is the task of a worker process.
type spec struct {
	Library  library
	Role     role
	Pattern  pattern
	Endpoint string // to connect to; empty: bind, and report the endpoint
	Path     string // to bind to over ipc; empty: tcp
	Size     int
	Peers    int
	Topic    bool          // peers subscribe to a topic, not to everything
	Receive  call          // of our receiver
	Batch    int           // how many messages our sender hands over at once; 0: one by one
	Warm     time.Duration // how long is not counted yet
	Time     time.Duration // how long is counted

	// Keys of CURVE in Z85, empty without. The side that binds is the server.
	ServerPublic, ServerSecret, ClientPublic, ClientSecret string
}

func (s *spec) curve() bool { return s.ServerPublic != "" }

// figure is the result of a worker that counts: it counts messages that arrived, never
// those that were sent.
type figure struct {
	Messages int64
	Elapsed  time.Duration
}

// value is the figure in the unit of the case: messages a second, or for
// latency microseconds one way.
func (f figure) value(t *test) float64 {
	if t.latency() {
		return f.Elapsed.Seconds() * 1e6 / float64(f.Messages) / 2
	}
	return float64(f.Messages) / f.Elapsed.Seconds()
}

// manner is how to measure.
type manner struct {
	warm, time time.Duration
	batch      int // as in spec
}

// measure runs one pair of workers.
func measure(ctx context.Context, t *test, first, second library, how manner) (figure, error) {
	s := spec{Pattern: t.pattern, Size: t.size, Peers: t.peers, Topic: t.topic, Receive: t.receive, Batch: how.batch, Warm: how.warm, Time: how.time}
	if t.curve {
		var err error
		if s.ServerPublic, s.ServerSecret, err = zmq.CurveKeys(); err != nil {
			return figure{}, err
		}
		if s.ClientPublic, s.ClientSecret, err = zmq.CurveKeys(); err != nil {
			return figure{}, err
		}
	}
	if t.transport == transProc {
		s.Library, s.Role = first, inside
		w, err := worker.Start(ctx, "worker", s)
		if err != nil {
			return figure{}, err
		}
		defer w.Stop()
		return figureOf(w)
	}

	// The receiver binds, as in libzmq's own tools. With PUB-SUB the publisher binds, for
	// it has many peers.
	bound, connected := s, s
	bound.Library, connected.Library = second, first
	switch t.pattern {
	case pushPull:
		bound.Role, connected.Role = receiver, sender
	case reqRep:
		bound.Role, connected.Role = answerer, asker
	case pubSub:
		bound.Role, connected.Role = sender, receiver
		bound.Library, connected.Library = first, second
	}
	if t.transport == transIPC {
		dir, err := os.MkdirTemp("", "compare-*")
		if err != nil {
			return figure{}, err
		}
		defer os.RemoveAll(dir)
		bound.Path = dir + "/socket"
	}
	b, err := worker.Start(ctx, "worker", bound)
	if err != nil {
		return figure{}, err
	}
	defer b.Stop()
	if err := b.Next(&connected.Endpoint); err != nil {
		return figure{}, err
	}
	c, err := worker.Start(ctx, "worker", connected)
	if err != nil {
		return figure{}, err
	}
	defer c.Stop()
	counting, other := b, c
	if connected.Role == receiver || connected.Role == asker {
		counting, other = c, b
	}
	// The worker that does not count writes nothing unless it fails; then the other one
	// would wait for it without end.
	failed := make(chan error, 1)
	go func() {
		failed <- other.Next(nil)
		counting.Kill()
	}()
	f, err := figureOf(counting)
	if err != nil {
		counting.Kill()
		other.Kill()
		if fault := <-failed; !errors.Is(fault, io.EOF) {
			err = fault
		}
	}
	return f, err
}

// figureOf waits for the worker's figure.
func figureOf(w *worker.Worker) (f figure, err error) {
	if err := w.Next(&f); err != nil {
		return figure{}, err
	}
	if f.Messages <= 0 || f.Elapsed <= 0 {
		return figure{}, errors.New("worker: nothing arrived")
	}
	return f, nil
}
