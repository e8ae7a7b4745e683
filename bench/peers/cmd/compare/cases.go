package main

import (
	"fmt"
	"strings"
)

// pattern is the message pattern of a case.
type pattern string

const (
	pushPull pattern = "push-pull"
	reqRep   pattern = "req-rep"
	pubSub   pattern = "pub-sub"
)

// library is the library whose sockets a worker uses.
type library string

const (
	ours      library = "ours"
	libzmq    library = "libzmq"
	pebbe     library = "pebbe"
	goZeroMQ  library = "go-zeromq"
	transTCP          = "tcp"
	transProc         = "inproc"
)

// test is one row of the table: a pair of workers to measure, once with our
// library and once with the one that we compare with.
type test struct {
	name      string
	pattern   pattern
	transport string
	size      int  // of a message, in bytes
	peers     int  // subscribers
	topic     bool // they subscribe to a topic, not to everything
	curve     bool
	// first is the library that sends or asks, second the one that receives or answers,
	// in the column that is ours. The other column has the other library at both ends.
	first, second library
}

// latency says that less is better.
func (t *test) latency() bool { return t.pattern == reqRep }

func (t *test) unit() string {
	if t.latency() {
		return "us"
	}
	return "msg/s"
}

func sizeName(size int) string {
	switch {
	case size >= 1<<20 && size%(1<<20) == 0:
		return fmt.Sprintf("%dMiB", size>>20)
	case size >= 1<<10 && size%(1<<10) == 0:
		return fmt.Sprintf("%dKiB", size>>10)
	}
	return fmt.Sprint(size)
}

// sizes of messages over tcp.
var sizes = []int{16, 64, 256, 1 << 10, 64 << 10, 1 << 20}

// latencySize is the size of requests and replies.
const latencySize = 64

// tests lists all rows, against the library them.
func tests(them library) []test {
	var all []test
	add := func(t test, parts ...string) {
		t.name = strings.Join(append([]string{string(t.pattern), t.transport}, parts...), "/")
		if t.first == "" {
			t.first, t.second = ours, ours
		}
		all = append(all, t)
	}
	for _, size := range sizes {
		add(test{pattern: pushPull, transport: transTCP, size: size}, sizeName(size))
	}
	add(test{pattern: reqRep, transport: transTCP, size: latencySize}, sizeName(latencySize))
	add(test{pattern: pushPull, transport: transProc, size: 64}, "64")
	add(test{pattern: reqRep, transport: transProc, size: latencySize}, sizeName(latencySize))
	for _, n := range []int{1, 16, 100, 1000} {
		to := fmt.Sprintf("to-%d", n)
		add(test{pattern: pubSub, transport: transTCP, size: 64, peers: n}, "64", to)
		add(test{pattern: pubSub, transport: transTCP, size: 64, peers: n, topic: true}, "64", to, "topic")
	}
	for _, size := range []int{64, 1 << 10, 64 << 10} {
		add(test{pattern: pushPull, transport: transTCP, size: size, curve: true}, sizeName(size), "curve")
	}
	for _, size := range sizes {
		add(test{pattern: pushPull, transport: transTCP, size: size, first: ours, second: them},
			sizeName(size), "ours-to-"+string(them))
		add(test{pattern: pushPull, transport: transTCP, size: size, first: them, second: ours},
			sizeName(size), string(them)+"-to-ours")
	}
	add(test{pattern: reqRep, transport: transTCP, size: latencySize, first: ours, second: them},
		sizeName(latencySize), "ours-to-"+string(them))
	add(test{pattern: reqRep, transport: transTCP, size: latencySize, first: them, second: ours},
		sizeName(latencySize), string(them)+"-to-ours")
	return all
}
