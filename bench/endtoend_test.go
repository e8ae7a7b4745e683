//go:build unix

package bench

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"clustermap/internal/bench/worker"
	"clustermap/sockets"
)

var endToEndUpdates = flag.Int("endtoend.updates", 200_000, "updates of each run of BenchmarkEndToEnd")

// BenchmarkEndToEnd runs chp bench: publishers, a server and replicas, each a process of its
// own. It fails unless each replica has received all updates once and in order, and ends
// with the content that was sent. msgs/s counts updates. The percentiles, of the time
// from Set to the arrival at a replica, are those at a tenth of the rate, so that they
// are not of waiting in queues. For figures:
//
//	go test -run '^$' -bench EndToEnd -benchtime 5x ./bench -endtoend.updates 5000000
func BenchmarkEndToEnd(b *testing.B) {
	command := buildCommand(b)
	for _, c := range []struct{ size, publishers, replicas int }{{32, 1, 1}, {1 << 10, 1, 1}, {32, 2, 2}} {
		b.Run(fmt.Sprintf("size=%d/publishers=%d/replicas=%d", c.size, c.publishers, c.replicas), func(b *testing.B) {
			run := func(updates int, more ...string) (r struct {
				Rate    float64            `json:"updates_per_second"`
				Latency map[string]float64 `json:"latency_us"`
			}) {
				args := []string{
					"bench", "--json", "--updates", strconv.Itoa(updates), "--warmup", strconv.Itoa(updates / 10),
					"--value-size", strconv.Itoa(c.size), "--publishers", strconv.Itoa(c.publishers), "--replicas", strconv.Itoa(c.replicas),
				}
				cmd := exec.Command(command, append(args, more...)...)
				cmd.Stderr = os.Stderr
				out, err := cmd.Output()
				if err == nil {
					err = json.Unmarshal(out, &r)
				}
				if err != nil || r.Rate <= 0 {
					b.Fatalf("%v: %s", err, out)
				}
				return r
			}
			rate, p50, p99 := 0.0, 0.0, 0.0
			for b.Loop() {
				full := run(*endToEndUpdates)
				rate += full.Rate
				slow := run(*endToEndUpdates/20, "--rate", strconv.FormatFloat(full.Rate/10, 'f', 0, 64))
				p50 += slow.Latency["p50"]
				p99 += slow.Latency["p99"]
			}
			n := float64(b.N)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(rate/n, "msgs/s")
			b.ReportMetric(p50/n*1000, "p50-ns")
			b.ReportMetric(p99/n*1000, "p99-ns")
		})
	}
}

// otherProcess is the task of the process at the other end.
type otherProcess struct {
	Pair     string
	Endpoint string // to connect to
	Size     int    // of each message
	Count    int    // of the messages to send
}

// BenchmarkProcesses sends messages from another process to this one, or asks the other
// process, over tcp and ipc.
func BenchmarkProcesses(b *testing.B) {
	for _, t := range transports[:2] {
		for _, size := range socketSizes {
			for _, pair := range []string{"push-pull", "pub-sub", "req-rep"} {
				b.Run(fmt.Sprintf("pair=%s/transport=%s/size=%d", pair, t.name, size), func(b *testing.B) {
					endpoint := t.endpoint
					if t.name == "ipc" {
						endpoint = "ipc://" + filepath.Join(b.TempDir(), "s")
					}
					processes(b, otherProcess{Pair: pair, Endpoint: endpoint, Size: size, Count: b.N})
				})
			}
		}
	}
}

// processes binds one end, starts a process for the other one, and has messages go.
func processes(b *testing.B, o otherProcess) {
	b.Helper()
	bind := func(s sockets.Socket) {
		join(b, o.Endpoint, s)
		o.Endpoint = s.LastEndpoint()
	}
	switch o.Pair {
	case "push-pull":
		pull := opened(b, sockets.NewPull, sockets.Options{})
		bind(pull)
		pass(b, o.Size, o.start(b), receive, pull)
	case "pub-sub":
		sub := opened(b, sockets.NewSub, sockets.Options{})
		if err := sub.Subscribe(""); err != nil {
			b.Fatal(err)
		}
		bind(sub)
		pass(b, o.Size, o.start(b), receive, sub)
	case "req-rep":
		req := opened(b, sockets.NewReq, sockets.Options{})
		bind(req)
		send := o.start(b)
		if err := send(b.Context(), 0); err != nil {
			b.Fatal(err)
		}
		ask(b, o.Size, 1, req, func(ctx context.Context) error {
			<-ctx.Done()
			return nil
		})
	}
}

// start starts the process, which ends with the benchmark, and returns when it is
// connected. The function returned lets it begin.
func (o otherProcess) start(b *testing.B) sending {
	b.Helper()
	w, err := worker.Start(b.Context(), "other", o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(w.Stop)
	if err := w.Next(new(string)); err != nil {
		b.Fatal(err)
	}
	return func(context.Context, int) error { return w.Tell("go") }
}

// run connects, says so, waits, and sends all messages or answers requests until it is killed.
func (o otherProcess) run(say func(any)) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var s sockets.Socket
	var begin func(context.Context) error
	switch o.Pair {
	case "push-pull":
		push, e := sockets.NewPush(sockets.Options{})
		if e != nil {
			return e
		}
		s, begin = push, func(ctx context.Context) error { return oneByOne(push, o.Size)(ctx, o.Count) }
	case "pub-sub":
		pub, e := sockets.NewPub(sockets.Options{FullPolicy: sockets.PolicyBlock})
		if e != nil {
			return e
		}
		s, begin = pub, func(ctx context.Context) error { return oneByOne(pub, o.Size)(ctx, o.Count) }
	case "req-rep":
		rep, e := sockets.NewRep(sockets.Options{})
		if e != nil {
			return e
		}
		s, begin = rep, func(ctx context.Context) error { return answer(ctx, rep) }
	default:
		return fmt.Errorf("there is no pair %q", o.Pair)
	}
	err := s.Connect(o.Endpoint)
	if err != nil {
		return err
	}
	if pub, ok := s.(*sockets.Pub); ok {
		err = pub.WaitSubscribers(ctx, "", 1)
	} else if peers, ok := s.(interface {
		WaitPeers(ctx context.Context, n int) error
	}); ok {
		err = peers.WaitPeers(ctx, 1)
	}
	if err != nil {
		return err
	}
	say("connected")
	worker.Hear()
	if err := begin(ctx); err != nil {
		return err
	}
	select {} // what was sent may not have arrived
}
