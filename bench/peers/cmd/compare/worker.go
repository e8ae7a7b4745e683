package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// workerVariable is the environment variable that makes a process a worker. Its
// value is the spec.
const workerVariable = "COMPARE_WORKER"

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

// runWorker is the whole of a worker process. It returns the exit code.
func runWorker(text string) int {
	go func() {
		// The parent holds the other end until it is done with this process, or gone.
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	say := func(l line) {
		text, err := json.Marshal(l)
		if err == nil {
			_, err = fmt.Printf("%s\n", text)
		}
		if err != nil {
			os.Exit(1)
		}
	}
	var s spec
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		say(line{Error: err.Error()})
		return 1
	}
	f, err := programs[s.Library](&s, func(endpoint string) { say(line{Endpoint: endpoint}) })
	if errors.Is(err, errMissing) {
		say(line{Missing: true, Error: missingFrom(s.Library, err)})
		return 1
	}
	if err != nil {
		say(line{Error: fmt.Sprintf("%s, %s: %v", s.Library, s.Role, err)})
		return 1
	}
	say(line{Figure: f})
	// The sockets are left to the system: others are waiting for this figure.
	return 0
}

func missingFrom(l library, err error) string {
	return fmt.Sprintf("%s: %s", l, strings.TrimSuffix(err.Error(), " "+errMissing.Error()))
}

// missing is the error of a worker whose library lacks a feature.
func missing(what string) error { return fmt.Errorf("%s %w", what, errMissing) }

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
