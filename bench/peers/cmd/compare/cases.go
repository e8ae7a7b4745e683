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

// call is the call with which our end receives. Empty it is RecvBatch, or Recv in REQ and REP.
type call string

const (
	recv     call = "Recv"
	recvInto call = "RecvInto" // into the memory of the caller, as zmq_recv
)

const (
	ours      library = "ours"
	libzmq    library = "libzmq"
	pebbe     library = "pebbe"
	goZeroMQ  library = "go-zeromq"
	transTCP          = "tcp"
	transIPC          = "ipc"
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
	receive   call // of our receiver
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

// sizes of messages.
var sizes = []int{16, 64, 256, 1 << 10, 4 << 10, 64 << 10, 1 << 20, 16 << 20}

// smallSize is the size where a case is about something else.
const smallSize = 64

// tests lists all rows, against the library them.
func tests(them library) []test {
	var all []test
	add := func(t test, parts ...string) {
		parts = append([]string{string(t.pattern), t.transport, sizeName(t.size)}, parts...)
		if t.curve {
			parts = append(parts, "curve")
		}
		if t.receive != "" {
			parts = append(parts, strings.ToLower(string(t.receive)))
		}
		t.name = strings.Join(parts, "/")
		if t.first == "" {
			t.first, t.second = ours, ours
		}
		all = append(all, t)
	}
	for _, transport := range []string{transTCP, transIPC, transProc} {
		for _, curve := range []bool{false, true} {
			if curve && transport == transProc {
				continue // inproc has no security
			}
			for _, size := range sizes {
				t := test{pattern: pushPull, transport: transport, size: size, curve: curve}
				add(t)
				t.receive = recv
				add(t)
				t.receive = recvInto
				add(t)
				t = test{pattern: reqRep, transport: transport, size: size, curve: curve}
				add(t)
				t.receive = recvInto
				add(t)
			}
		}
	}
	for _, n := range []int{1, 16, 100, 1000} {
		to := fmt.Sprintf("to-%d", n)
		add(test{pattern: pubSub, transport: transTCP, size: smallSize, peers: n}, to)
		add(test{pattern: pubSub, transport: transTCP, size: smallSize, peers: n, topic: true}, to, "topic")
	}
	for _, size := range sizes {
		t := test{pattern: pushPull, transport: transTCP, size: size, first: ours, second: them}
		add(t, "ours-to-"+string(them))
		t.first, t.second = them, ours
		add(t, string(them)+"-to-ours")
		for _, t.receive = range []call{recv, recvInto} {
			add(t, string(them)+"-to-ours")
		}
		t = test{pattern: reqRep, transport: transTCP, size: size, first: ours, second: them}
		add(t, "ours-to-"+string(them))
		t.first, t.second = them, ours
		add(t, string(them)+"-to-ours")
	}
	return all
}
