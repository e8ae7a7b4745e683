package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"clustermap/internal/bench/worker"
)

// program is the program of a worker. It reports its endpoint, if it binds, and returns
// its figure, if it counts.
type program func(s *spec, bound func(endpoint string)) (*figure, error)

// programs of the libraries.
var programs = map[library]program{
	ours:     runOurs,
	libzmq:   runLibzmq,
	pebbe:    runPebbe,
	goZeroMQ: runGoZeroMQ,
}

// work is the role of a worker.
func work(task []byte, say func(any)) error {
	var s spec
	if err := json.Unmarshal(task, &s); err != nil {
		return err
	}
	f, err := programs[s.Library](&s, func(endpoint string) { say(endpoint) })
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

// roles has the only role of a worker.
var roles = map[string]worker.Role{"worker": work}

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
