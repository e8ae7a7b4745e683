package espresso

import (
	"fmt"
	"testing"

	"clustermap/internal/interop"
	"clustermap/sockets"
)

// TestInteropEspresso is the guide's Espresso with its programs on libzmq: the publisher
// sends letters from A to J, the subscriber subscribes to A and B and ends after five
// messages. The tap shows the two subscriptions, the messages that the subscriber
// receives and no other letters, and the two unsubscriptions.
func TestInteropEspresso(t *testing.T) {
	t.Parallel()
	interop.Require(t)
	ctx := testContext(t)
	publisher := interop.Python(t, "testdata/espresso.py", "publish", "tcp://127.0.0.1:*", "--interval", "5")
	front, back := open(t, sockets.NewXSub, sockets.Options{}), bound(t, sockets.NewXPub, sockets.Options{})
	must(t, front.Connect(publisher.Endpoint))
	tap, _ := running(t, front, back, Options{})
	o := tap.Observe(Filter{})
	t.Cleanup(o.Close)
	subscriber := interop.Python(t, "testdata/espresso.py", "subscribe", back.LastEndpoint())
	var received struct{ Messages []string }
	subscriber.Event("received", &received)

	subscribed := map[string]bool{}
	var messages []string
	var e Event
	for began := false; !began || len(subscribed) > 0; began = true {
		must(t, o.Next(ctx, &e))
		topic := string(e.Topic())
		switch e.Op {
		case OpSubscribe:
			subscribed[topic] = true
		case OpUnsubscribe:
			if !subscribed[topic] {
				t.Errorf("%q was not subscribed to", topic)
			}
			delete(subscribed, topic)
		case OpMessage:
			messages = append(messages, topic)
			if e.From != DirectionFromFrontend || len(topic) != 7 || topic[0] != 'A' && topic[0] != 'B' {
				t.Errorf("%v %q", e.From, topic)
			}
		}
	}
	if len(received.Messages) != 5 || len(messages) < 5 || fmt.Sprint(messages[:5]) != fmt.Sprint(received.Messages) {
		t.Errorf("seen %q, received %q", messages, received.Messages)
	}
}

// TestInteropReqRep: a REQ and a REP on libzmq communicate through the tap, which shows
// both directions.
func TestInteropReqRep(t *testing.T) {
	t.Parallel()
	interop.Require(t)
	front, back := bound(t, sockets.NewRouter, sockets.Options{}), bound(t, sockets.NewDealer, sockets.Options{})
	tap, _ := running(t, front, back, Options{})
	o := tap.Observe(Filter{})
	t.Cleanup(o.Close)
	client := interop.Python(t, "zmq_peer.py", "--type", "REQ", "--connect", front.LastEndpoint())
	service := interop.Python(t, "zmq_peer.py", "--type", "REP", "--connect", back.LastEndpoint())
	service.Start(interop.Op{"op": "echo", "n": 1})
	client.Call(interop.Op{"op": "send", "messages": [][][]byte{{[]byte("question"), []byte("more")}}}, nil)
	client.Call(interop.Op{"op": "recv"}, nil)
	for _, from := range []Direction{DirectionFromFrontend, DirectionFromBackend} {
		if e := next(t, o); e.From != from || string(e.Topic()) != "question" || e.Envelope != 2 || len(e.Frames) != 4 {
			t.Errorf("%+v", e)
		}
	}
}

// TestInteropCapture: a program on libzmq gets copies from a capture socket, as the
// guide's listener does.
func TestInteropCapture(t *testing.T) {
	t.Parallel()
	interop.Require(t)
	capture := bound(t, sockets.NewPush, sockets.Options{})
	p := newPipeline(t, Options{Capture: []sockets.Socket{capture}})
	listener := interop.Python(t, "zmq_peer.py", "--type", "PULL", "--connect", capture.LastEndpoint())
	p.pass(t, "A-12345")
	var got interop.Received
	listener.Call(interop.Op{"op": "recv"}, &got)
	if len(got.Messages) != 1 || string(got.Messages[0][0].Bytes) != "A-12345" {
		t.Errorf("%v", got)
	}
}
