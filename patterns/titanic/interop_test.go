package titanic

import (
	"context"
	"testing"
	"time"

	"clustermap/internal/interop"
	"clustermap/patterns/majordomo"
)

// guideClient is a client like the guide's.
type guideClient struct{ *interop.Process }

func newGuideClient(t testing.TB, broker string) guideClient {
	t.Helper()
	return guideClient{interop.Python(t, "testdata/titanic.py", "--broker", broker)}
}

// outcome has the answers to a guide client.
type outcome struct {
	Status, UUID, Closed, After string
	Reply                       [][]byte
}

func (g guideClient) call(op interop.Op) (o outcome) {
	g.Call(op, &o)
	return o
}

// TestInterop: a client like the guide's submits, polls for the reply, and closes, with our
// broker, server and worker. Its UUIDs may be in upper case.
func TestInterop(t *testing.T) {
	t.Parallel()
	interop.Require(t)
	y := newSystem(t, nil)
	client := newGuideClient(t, y.endpoint)
	body := frames("hello", "", "\x00world")
	pending := client.call(interop.Op{"op": "submit", "service": "echo", "body": body})
	if _, err := ParseUUID(pending.UUID); err != nil || pending.Status != "200" {
		t.Fatalf("%+v", pending)
	}
	if o := client.call(interop.Op{"op": "reply", "uuid": pending.UUID}); o.Status != "300" {
		t.Errorf("%+v", o)
	}
	y.work("echo", func(_ context.Context, body [][]byte) ([][]byte, error) { return body, nil })
	for range 5 {
		o := client.call(interop.Op{"op": "whole", "service": "echo", "body": body})
		if o.Status != "200" || !same(o.Reply, body) || o.Closed != "200" || o.After != "400" {
			t.Errorf("%+v", o)
		}
	}
	// Each implementation fetches the replies to requests that the other one has
	// submitted.
	id, err := ParseUUID(pending.UUID)
	if err != nil {
		t.Fatal(err)
	}
	if reply, err := y.client.Wait(testContext(t), id); err != nil || !same(reply, body) {
		t.Errorf("%q %v", reply, err)
	}
	for op, want := range map[string]string{"reply": "400", "close": "400"} {
		if o := client.call(interop.Op{"op": op, "uuid": "../" + pending.UUID}); o.Status != want {
			t.Errorf("%s of a path: %+v", op, o)
		}
	}
	if o := client.call(interop.Op{"op": "submit", "service": "echo", "body": [][]byte{}}); o.Status != "400" {
		t.Errorf("a request without a body: %+v", o)
	}
}

// TestInteropBroker: our server and client with broker, worker and client like the guide's.
func TestInteropBroker(t *testing.T) {
	t.Parallel()
	interop.Require(t)
	beat := []string{"--heartbeat", "0.05", "--liveness", "200"}
	broker := interop.Python(t, "majordomo.py", append([]string{"broker", "tcp://127.0.0.1:*"}, beat...)...)
	y := &system{t: t, endpoint: broker.Endpoint}
	y.serve(func(o *Options) { o.Heartbeat, o.Liveness = 50*time.Millisecond, 200 })
	client, guide := newClient(t, y.endpoint), newGuideClient(t, y.endpoint)
	ctx := testContext(t)
	id, err := client.Submit(ctx, "theirs", []byte("early"))
	if err != nil {
		t.Fatal(err)
	}
	interop.Python(t, "majordomo.py", append([]string{"worker", y.endpoint, "--service", "theirs"}, beat...)...)
	w, err := majordomo.NewWorker("ours", func(_ context.Context, body [][]byte) ([][]byte, error) { return body, nil },
		majordomo.WorkerOptions{Broker: y.endpoint, Heartbeat: 50 * time.Millisecond, Liveness: 200})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if reply, err := client.Wait(ctx, id); err != nil || !same(reply, frames("early")) {
		t.Errorf("%q %v", reply, err)
	}
	for _, service := range []string{"theirs", "ours"} {
		body := frames(service, "", "x")
		o := guide.call(interop.Op{"op": "whole", "service": service, "body": body})
		if o.Status != "200" || !same(o.Reply, body) || o.Closed != "200" || o.After != "400" {
			t.Errorf("%+v", o)
		}
		id, err := client.Submit(ctx, service, body...)
		if err != nil {
			t.Fatal(err)
		}
		if reply, err := client.Wait(ctx, id); err != nil || !same(reply, body) {
			t.Errorf("%q %v", reply, err)
		}
		if err := client.Discard(ctx, id); err != nil {
			t.Error(err)
		}
	}
	if e, err := broker.Next(over(), "disturbed"); err == nil {
		t.Errorf("the guide's broker was disturbed: %s", e.Body)
	}
}

// over is a cancelled context.
func over() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}
