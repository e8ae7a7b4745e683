package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"clustermap/internal/bench/worker"
)

// end is one end of a case: a socket of a library, or several.
type end struct {
	bind    func(endpoint string) (string, error) // returns the endpoint that came of it
	connect func(endpoint string) error
	joined  func() error            // called when it is bound or connected, if not nil
	loop    func() (*figure, error) // its figure, if it counts
}

// programs open the sockets of the libraries.
var programs = map[library]func(s *spec, as role) (*end, error){
	ours:     openOurs,
	libzmq:   openLibzmq,
	pebbe:    openPebbe,
	goZeroMQ: openGoZeroMQ,
}

// work is the role of a worker.
func work(s spec, say func(any)) error {
	f, err := s.run(func(endpoint string) { say(endpoint) })
	switch {
	case errors.Is(err, worker.ErrMissing):
		return fmt.Errorf("%s: %w", s.Library, err)
	case err != nil:
		return fmt.Errorf("%s, %s: %w", s.Library, s.Role, err)
	case f != nil:
		say(f)
	}
	return nil
}

// run is the work of a worker. It reports its endpoint, if it binds, and returns its figure,
// if it counts.
func (s *spec) run(bound func(endpoint string)) (*figure, error) {
	if s.Role == inside {
		return s.runInside()
	}
	e, err := programs[s.Library](s, s.Role)
	if err != nil {
		return nil, err
	}
	if err := s.join(e, bound); err != nil {
		return nil, err
	}
	if e.joined != nil {
		if err := e.joined(); err != nil {
			return nil, err
		}
	}
	return e.loop()
}

// join binds or connects a socket, as often as the case has peers.
func (s *spec) join(e *end, bound func(string)) error {
	switch {
	case s.Endpoint == "":
		endpoint := anyPort
		switch {
		case s.Path != "":
			endpoint = "ipc://" + s.Path
		case s.Pattern == pubSub:
			endpoint = anyAddress
		}
		endpoint, err := e.bind(endpoint)
		if err == nil {
			bound(endpoint)
		}
		return err
	case s.Pattern == pubSub:
		for i := range s.Peers {
			if err := e.connect(loopback(s.Endpoint, i)); err != nil {
				return err
			}
		}
		return nil
	}
	return e.connect(s.Endpoint)
}

// runInside has both ends in goroutines of this process.
func (s *spec) runInside() (*figure, error) {
	counting, other := receiver, sender
	if s.Pattern == reqRep {
		counting, other = asker, answerer
	}
	binds, err := programs[s.Library](s, counting)
	if err != nil {
		return nil, err
	}
	connects, err := programs[s.Library](s, other)
	if err != nil {
		return nil, err
	}
	if _, err := binds.bind(insideName); err != nil {
		return nil, err
	}
	if err := connects.connect(insideName); err != nil {
		return nil, err
	}
	type result struct {
		f   *figure
		err error
	}
	done := make(chan result, 2) // the other end returns only if it fails
	for _, e := range []*end{connects, binds} {
		go func() {
			f, err := e.loop()
			done <- result{f, err}
		}()
	}
	r := <-done
	return r.f, r.err
}

// calls are how a library sends and receives.
type calls[M any] struct {
	send    func(M) error
	receive func() (M, error)
	size    func(M) int // of a message of one frame
	message M           // of the case
}

// loop runs a role with the calls of a library.
func loop[M any](s *spec, as role, c calls[M]) (*figure, error) {
	switch as {
	case sender:
		for {
			if err := c.send(c.message); err != nil {
				return nil, err
			}
		}
	case answerer:
		for {
			m, err := c.receive()
			if err == nil {
				err = c.send(m)
			}
			if err != nil {
				return nil, err
			}
		}
	case receiver, asker:
		return count(s, as == asker, c)
	}
	return nil, missing(noSuchRole)
}

// count receives until enough was counted, and asks before each time if asks is set.
func count[M any](s *spec, asks bool, c calls[M]) (*figure, error) {
	each := stride(s.Size)
	if asks {
		each = 1
	}
	for counted := (meter{spec: s}); ; {
		for range each {
			if asks {
				if err := c.send(c.message); err != nil {
					return nil, err
				}
			}
			m, err := c.receive()
			if err != nil {
				return nil, err
			}
			if size := c.size(m); size != s.Size {
				return nil, fmt.Errorf("a message of %d bytes, want %d", size, s.Size)
			}
		}
		if f := counted.add(each); f != nil {
			return f, nil
		}
	}
}

// meter counts messages, after the time to warm up, which begins with the first ones.
type meter struct {
	spec    *spec
	start   time.Time
	counts  bool // it is warm
	counted int64
}

// add counts n messages. It returns the figure when the time is over.
func (m *meter) add(n int) *figure {
	now := time.Now()
	switch {
	case m.start.IsZero():
		m.start = now
	case !m.counts:
		if now.Sub(m.start) >= m.spec.Warm {
			m.counts, m.start = true, now
		}
	default:
		m.counted += int64(n)
		if d := now.Sub(m.start); d >= m.spec.Time {
			return &figure{m.counted, d}
		}
	}
	return nil
}

// roles has the only role of a worker.
var roles = map[string]worker.Role{"worker": worker.For(work)}

// missing is the error of a worker whose library lacks a feature.
func missing(what string) error { return fmt.Errorf("%s %w", what, worker.ErrMissing) }

// stride is how many messages of a size go between two looks at the clock: not
// so many that it takes long, and not so few that the clock costs much.
func stride(size int) int { return min(max(64<<10/(size+1), 1), 256) }

// loopback returns the endpoint of the n-th connection to a socket that is
// bound to every address: each a text of its own, for some socket types ignore a second
// connection to the same text.
func loopback(endpoint string, n int) string {
	port := endpoint[strings.LastIndexByte(endpoint, ':')+1:]
	return fmt.Sprintf("tcp://127.0.%d.%d:%s", 1+n/250, 1+n%250, port)
}

const (
	anyPort    = "tcp://127.0.0.1:*"
	anyAddress = "tcp://0.0.0.0:*"
	insideName = "inproc://compare"
	noSuchRole = "the role"
	filledByte = 'x'
)

// message returns a message of the case's size.
func (s *spec) message() []byte {
	m := make([]byte, s.Size)
	for i := range m {
		m[i] = filledByte
	}
	return m
}

// topic is the prefix that a subscriber subscribes to: the start of each message, or
// empty.
func (s *spec) topic() string {
	if !s.Topic {
		return ""
	}
	return string(s.message()[:8])
}
