package perf

import (
	"bytes"
	"context"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"clustermap/internal/interop"
	"clustermap/internal/testenv"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// running is a tool under way.
type running struct {
	t        *testing.T
	bound    chan string
	finished chan struct{}
	code     int
	out      bytes.Buffer
}

func start(t *testing.T, tool Tool, args ...string) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(testenv.Context(t))
	r := &running{t: t, bound: make(chan string, 1), finished: make(chan struct{})}
	ctx = context.WithValue(ctx, boundKey{}, func(endpoint string) { r.bound <- endpoint })
	go func() {
		defer close(r.finished)
		r.code = tool.exec(ctx, args, &r.out)
	}()
	t.Cleanup(func() {
		cancel()
		<-r.finished
	})
	return r
}

// endpoint waits until the tool is bound.
func (r *running) endpoint() string {
	r.t.Helper()
	select {
	case e := <-r.bound:
		return e
	case <-r.finished:
		r.t.Fatalf("the tool ended with %d: %s", r.code, &r.out)
		return ""
	}
}

// want waits for the end of the tool and checks its output.
func (r *running) want(code int, pattern string) {
	r.t.Helper()
	<-r.finished
	if r.code != code || !regexp.MustCompile("^"+pattern+"$").MatchString(r.out.String()) {
		r.t.Errorf("exit code %d, want %d, and output %q", r.code, code, &r.out)
	}
}

const (
	throughput = `message size: 30 \[B\]\nmessage count: 500\nmean throughput: [0-9]+ \[msg/s\]\nmean throughput: [0-9]+\.[0-9]{3} \[Mb/s\]\n`
	latency    = `message size: 30 \[B\]\nroundtrip count: 50\naverage latency: [0-9]+\.[0-9]{3} \[us\]\n`
)

func peer(t *testing.T, kind, how, endpoint string) *interop.Process {
	return interop.Python(t, "zmq_peer.py", "--type", kind, how, endpoint, "--linger", "60000")
}

func TestThr(t *testing.T) {
	t.Parallel()
	local := start(t, LocalThr, testenv.AnyPort, "30", "500")
	remote := start(t, RemoteThr, local.endpoint(), "30", "500")
	local.want(0, throughput)
	remote.want(0, "")
}

func TestThrCurve(t *testing.T) {
	t.Parallel()
	local := start(t, LocalThr, testenv.AnyPort, "30", "500", "1")
	remote := start(t, RemoteThr, local.endpoint(), "30", "500", "1")
	local.want(0, throughput)
	remote.want(0, "")
}

// The keys are those of libzmq's tools.
func TestKeys(t *testing.T) {
	t.Parallel()
	if got := serverSecret.Public().String(); got != "DX4nh=yUn{-9ugra0X3Src4SU-4xTgqxcYY.+<SH" {
		t.Errorf("the server's public key is %s", got)
	}
	if got := clientSecret.Public().String(); got != "<n^oA}I:66W+*ds3tAmi1+KJzv-}k&fC2aA5Bj0K" {
		t.Errorf("the client's public key is %s", got)
	}
}

func TestThrFromLibzmq(t *testing.T) {
	t.Parallel()
	local := start(t, LocalThr, testenv.AnyPort, "30", "500")
	p := peer(t, "PUSH", "--connect", local.endpoint())
	p.Call(interop.Op{"op": "send", "sizes": []int{30}, "count": 500}, nil)
	local.want(0, throughput)
}

func TestThrToLibzmq(t *testing.T) {
	t.Parallel()
	p := peer(t, "PULL", "--bind", testenv.AnyPort)
	remote := start(t, RemoteThr, p.Endpoint, "30", "500")
	var got interop.Received
	p.Call(interop.Op{"op": "recv", "n": 500}, &got)
	for _, m := range got.Messages {
		if len(m) != 1 || m[0].Size != 30 {
			t.Fatalf("libzmq received %v", m)
		}
	}
	remote.want(0, "")
}

func TestLat(t *testing.T) {
	t.Parallel()
	local := start(t, LocalLat, testenv.AnyPort, "30", "50")
	remote := start(t, RemoteLat, local.endpoint(), "30", "50")
	local.want(0, "")
	remote.want(0, latency)
}

func TestLatFromLibzmq(t *testing.T) {
	t.Parallel()
	local := start(t, LocalLat, testenv.AnyPort, "30", "50")
	p := peer(t, "REQ", "--connect", local.endpoint())
	for i := range 50 {
		p.Call(interop.Op{"op": "send", "seed": i, "sizes": []int{30}, "count": 1}, nil)
		var got interop.Received
		p.Call(interop.Op{"op": "recv"}, &got)
		if len(got.Messages) != 1 || !reflect.DeepEqual(got.Messages[0], interop.DescribeAll([][]byte{interop.Pattern(i, 0, 0, 30)})) {
			t.Fatalf("libzmq received %v", got.Messages)
		}
	}
	local.want(0, "")
}

func TestLatToLibzmq(t *testing.T) {
	t.Parallel()
	p := peer(t, "REP", "--bind", testenv.AnyPort)
	echo := p.Start(interop.Op{"op": "echo", "n": 50})
	start(t, RemoteLat, p.Endpoint, "30", "50").want(0, latency)
	echo.Done(nil)
}

func TestInside(t *testing.T) {
	t.Parallel()
	start(t, InprocThr, "30", "500").want(0, throughput)
	start(t, InprocLat, "30", "50").want(0, latency)
	start(t, ProxyThr, "30", "500").want(0, throughput)
}

func TestWrongSize(t *testing.T) {
	t.Parallel()
	local := start(t, LocalThr, testenv.AnyPort, "30", "500")
	start(t, RemoteThr, local.endpoint(), "31", "1").want(0, "")
	local.want(255, "error: message of incorrect size received\n")
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, tool := range []Tool{LocalThr, RemoteThr, LocalLat, RemoteLat, InprocThr, InprocLat, ProxyThr} {
		for _, args := range []string{"", "1", "a b c d e", "x y z", "tcp://127.0.0.1:* -1 1", "1 0", "1 1 1 1 1"} {
			var out bytes.Buffer
			code := tool.exec(t.Context(), strings.Fields(args), &out)
			if code != 1 || !strings.HasPrefix(out.String(), "usage: "+tool.name+" <") {
				t.Errorf("%s %s: exit code %d and %q", tool.name, args, code, &out)
			}
		}
	}
	if got := start(t, LocalThr, "nonsense", "1", "1"); got != nil {
		got.want(255, `error: .*nonsense.*\n`)
	}
}
