package majordomo

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"clustermap/internal/interop"
	"clustermap/internal/loopback"
)

// guideState is the state of a worker of the guide.
type guideState struct{ Handled, Sessions, Disconnects, Beats int }

func stateOf(p *interop.Process) (s guideState) {
	p.Call(interop.Op{"op": "state"}, &s)
	return s
}

// undisturbed fails the test if a guide program received an unknown message.
func undisturbed(t testing.TB, programs ...*interop.Process) {
	t.Helper()
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for _, p := range programs {
		if e, err := p.Next(over, "disturbed"); err == nil {
			t.Errorf("a guide program was disturbed: %s", e.Body)
		}
	}
}

// TestInteropBroker: clients and workers of the guide with our broker, with each other
// and with ours.
func TestInteropBroker(t *testing.T) {
	t.Parallel()
	interop.Require(t)
	b, endpoint := startBroker(t, BrokerOptions{Heartbeat: 50 * time.Millisecond, Liveness: 200})
	beat := []string{"--heartbeat", "0.05", "--liveness", "200"}
	worker := interop.Python(t, "majordomo.py", append([]string{"worker", endpoint, "--service", "theirs"}, beat...)...)
	startWorker(t, "ours", endpoint, echo, WorkerOptions{Heartbeat: 50 * time.Millisecond, Liveness: 1000})
	startWorker(t, "ours-0.2", endpoint, echo, WorkerOptions{Heartbeat: 50 * time.Millisecond, Liveness: 1000, Version: Version02})
	client := interop.Python(t, "majordomo.py", "client", endpoint)

	var got struct{ Reply [][]byte }
	for _, service := range []string{"theirs", "ours", "ours-0.2"} {
		client.Call(interop.Op{"op": "request", "service": service, "body": [][]byte{[]byte("a"), {}, []byte("b")}}, &got)
		if !slices.Equal(texts(got.Reply), []string{"a", "", "b"}) {
			t.Errorf("%s: %q", service, got.Reply)
		}
	}
	for service, want := range map[string]string{"theirs": "200", "ours": "200", "nobody": "404"} {
		client.Call(interop.Op{"op": "request", "service": "mmi.service", "body": [][]byte{[]byte(service)}}, &got)
		if !slices.Equal(texts(got.Reply), []string{want}) {
			t.Errorf("mmi.service %s: %q", service, got.Reply)
		}
	}
	client.Call(interop.Op{"op": "request", "service": "mmi.workers", "body": [][]byte{nil}}, &got)
	if !slices.Equal(texts(got.Reply), []string{"501"}) {
		t.Errorf("mmi.workers: %q", got.Reply)
	}
	// The asynchronous client has many requests in flight.
	for i := range 20 {
		client.Call(interop.Op{"op": "send", "service": "theirs", "body": [][]byte{fmt.Append(nil, i)}}, nil)
	}
	for i := range 20 {
		client.Call(interop.Op{"op": "recv"}, &got)
		if !slices.Equal(texts(got.Reply), []string{fmt.Sprint(i)}) {
			t.Errorf("reply %d: %q", i, got.Reply)
		}
	}
	for _, v := range []Version{Version01, Version02} {
		reply, err := startClient(t, endpoint, ClientOptions{Version: v}).Request(testContext(t), "theirs", []byte("x"), []byte("y"))
		if err != nil || !slices.Equal(texts(reply), []string{"x", "y"}) {
			t.Errorf("%v: %q, %v", v, reply, err)
		}
	}
	eventually(t, "it gets heartbeats", func() bool { return stateOf(worker).Beats > 1 })
	undisturbed(t, worker)
	if s := stateOf(worker); s.Sessions != 1 || s.Disconnects != 0 {
		t.Errorf("%+v", s)
	}
	if s := b.Stats(); s.Malformed != 0 || s.Lost != 0 {
		t.Errorf("%+v", s)
	}
}

// TestInteropWorkerKilled: a busy worker of the guide is killed, and another one is
// stopped; our worker executes their requests.
func TestInteropWorkerKilled(t *testing.T) {
	t.Parallel()
	interop.Require(t)
	b, endpoint := startBroker(t, BrokerOptions{Heartbeat: 50 * time.Millisecond, Liveness: 10, MaxDeliveries: 1000})
	c := startClient(t, endpoint, ClientOptions{})
	for _, end := range []func(*interop.Process){(*interop.Process).Kill, (*interop.Process).Stop} {
		worker := interop.Python(t, "majordomo.py", "worker", endpoint, "--service", "slow", "--work", "1000", "--heartbeat", "0.05")
		eventually(t, "it is registered", func() bool { return workersOf(b, "slow") == 1 })
		done := make(chan error, 1)
		go func() {
			_, err := c.Request(testContext(t), "slow", []byte("body"))
			done <- err
		}()
		eventually(t, "it has the request", func() bool {
			s := b.Services()
			return len(s) == 1 && s[0].Given == 1 || b.Stats().Repeated > 0
		})
		end(worker)
		w := startWorker(t, "slow", endpoint, echo, WorkerOptions{Heartbeat: 50 * time.Millisecond, Liveness: 1000})
		must(t, <-done)
		w.Close()
		eventually(t, "all workers have gone", func() bool { return len(b.Services()) == 0 })
	}
}

// TestInteropGuideBroker: our worker and client with a broker of the guide, which is
// killed and restarted.
func TestInteropGuideBroker(t *testing.T) {
	t.Parallel()
	interop.Require(t)
	beat := []string{"--heartbeat", "0.05", "--liveness", "200"}
	broker := interop.Python(t, "majordomo.py", append([]string{"broker", "tcp://" + loopback.Own() + ":*"}, beat...)...)
	endpoint := broker.Endpoint
	worker := startWorker(t, "ours", endpoint, func(_ context.Context, request [][]byte) ([][]byte, error) {
		return append(request, []byte("done")), nil
	}, WorkerOptions{Concurrency: 2, Heartbeat: 50 * time.Millisecond, Liveness: 200, Reconnect: 5 * time.Millisecond, ReconnectMax: 50 * time.Millisecond})
	theirs := interop.Python(t, "majordomo.py", append([]string{"worker", endpoint, "--service", "theirs"}, beat...)...)
	c := startClient(t, endpoint, ClientOptions{Connections: 3, Attempts: 100, Timeout: time.Second, Reconnect: 5 * time.Millisecond, ReconnectMax: 50 * time.Millisecond})
	ask := func() {
		t.Helper()
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				body := fmt.Sprint(i)
				reply, err := c.Request(testContext(t), "ours", []byte(body), nil)
				if err != nil || !slices.Equal(texts(reply), []string{body, "", "done"}) {
					t.Errorf("%q, %v", reply, err)
				}
				reply, err = c.Request(testContext(t), "theirs", []byte(body))
				if err != nil || !slices.Equal(texts(reply), []string{body}) {
					t.Errorf("%q, %v", reply, err)
				}
			})
		}
		all.Wait()
	}
	ask()
	if n := c.Stats().Connections; n < 1 || n > 3 {
		t.Errorf("%d connections", n)
	}
	found, err := c.Available(testContext(t), "ours")
	if err != nil || !found {
		t.Errorf("%v, %v", found, err)
	}
	if _, err := c.Services(testContext(t)); err == nil {
		t.Error("a broker of the guide lists its services")
	}
	undisturbed(t, broker, theirs)

	broker.Kill()
	again := interop.Python(t, "majordomo.py", append([]string{"broker", endpoint}, beat...)...)
	eventually(t, "both workers are back", func() bool {
		var s struct{ Workers int }
		again.Call(interop.Op{"op": "state"}, &s)
		return s.Workers == 3
	})
	ask()
	undisturbed(t, again, theirs)
	eventually(t, "its sessions are counted", func() bool { return worker.Stats().Sessions >= 4 })
	if s := worker.Stats(); s.Malformed != 0 {
		t.Errorf("%+v", s)
	}
}
