package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	zmq "clustermap/bench/peers/internal/libzmq"
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
	Size     int
	Peers    int
	Topic    bool          // peers subscribe to a topic, not to everything
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

// line is a line that a worker writes: first its endpoint, then its figure or an error.
type line struct {
	Endpoint string  `json:",omitempty"`
	Figure   *figure `json:",omitempty"`
	Missing  bool    `json:",omitempty"` // Error names the feature that the library lacks
	Error    string  `json:",omitempty"`
}

// errMissing is the error of a library that lacks a feature a case needs.
var errMissing = errors.New("is not there")

// worker is a running worker process.
type worker struct {
	cmd *exec.Cmd
	out *bufio.Reader
}

func startWorker(ctx context.Context, s spec) (*worker, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), workerVariable+"="+string(text))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	// A worker whose parent is gone reads the end of its input, and ends.
	if _, err := cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &worker{cmd, bufio.NewReader(out)}, nil
}

// next reads the worker's next line.
func (w *worker) next() (line, error) {
	var l line
	text, err := w.out.ReadBytes('\n')
	if err != nil {
		return l, fmt.Errorf("worker: %w", err)
	}
	if err := json.Unmarshal(text, &l); err != nil {
		return l, err
	}
	switch {
	case l.Missing:
		return l, fmt.Errorf("%s %w", l.Error, errMissing)
	case l.Error != "":
		return l, errors.New(l.Error)
	}
	return l, nil
}

// stop ends the worker and waits for it.
func (w *worker) stop() {
	_ = w.cmd.Process.Kill()
	_, _ = io.Copy(io.Discard, w.out)
	_ = w.cmd.Wait() // it was killed, so there is always an error
}

// manner is how to measure.
type manner struct {
	warm, time time.Duration
	batch      int // as in spec
}

// measure runs one pair of workers.
func measure(ctx context.Context, t *test, first, second library, how manner) (figure, error) {
	s := spec{Pattern: t.pattern, Size: t.size, Peers: t.peers, Topic: t.topic, Batch: how.batch, Warm: how.warm, Time: how.time}
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
		w, err := startWorker(ctx, s)
		if err != nil {
			return figure{}, err
		}
		defer w.stop()
		return w.figure()
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
	b, err := startWorker(ctx, bound)
	if err != nil {
		return figure{}, err
	}
	defer b.stop()
	where, err := b.next()
	if err != nil {
		return figure{}, err
	}
	connected.Endpoint = where.Endpoint
	c, err := startWorker(ctx, connected)
	if err != nil {
		return figure{}, err
	}
	defer c.stop()
	counting, other := b, c
	if connected.Role == receiver || connected.Role == asker {
		counting, other = c, b
	}
	// The worker that does not count writes nothing unless it fails; then the other one
	// would wait for it without end.
	failed := make(chan error, 1)
	go func() {
		if _, err := other.next(); err != nil {
			failed <- err
		}
		_ = counting.cmd.Process.Kill()
	}()
	f, err := counting.figure()
	if err != nil {
		select {
		case err = <-failed:
		default:
		}
	}
	return f, err
}

// figure waits for the worker's figure.
func (w *worker) figure() (figure, error) {
	l, err := w.next()
	if err == nil && l.Figure == nil {
		// Where it is bound comes first.
		l, err = w.next()
	}
	if err != nil {
		return figure{}, err
	}
	if l.Figure == nil || l.Figure.Messages <= 0 || l.Figure.Elapsed <= 0 {
		return figure{}, errors.New("worker: nothing arrived")
	}
	return *l.Figure, nil
}
