package titanic

import (
	"context"
	"testing"

	"clustermap/internal/interop"
)

// guideClient is a client as the guide's.
type guideClient struct{ *interop.Process }

func newGuideClient(t testing.TB, broker string) guideClient {
	t.Helper()
	return guideClient{interop.Python(t, "testdata/titanic.py", "--broker", broker)}
}

// outcome is what a guide client was answered.
type outcome struct {
	Status, UUID, Closed, After string
	Reply                       [][]byte
}

func (g guideClient) call(op interop.Op) (o outcome) {
	g.Call(op, &o)
	return o
}

// TestInterop: a client as the guide's submits, asks for the reply until it is there, and closes, at
// our broker and server, with our worker. Its UUIDs may be in upper case.
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
	// What one make has submitted, the other one fetches.
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
