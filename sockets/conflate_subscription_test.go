package sockets

import (
	"sync"
	"testing"
)

// TestConflateSubscriptions: over inproc, a message of an XSUB does not replace a
// subscription that a publisher with Conflate has not fetched yet.
func TestConflateSubscriptions(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	var names Inproc
	pub := open(t, NewPub, Options{Inproc: &names, Conflate: true})
	must(t, pub.Bind(ctx, "inproc://conflate"))
	xsub := open(t, NewXSub, Options{Inproc: &names})
	must(t, xsub.Connect("inproc://conflate"))

	far := xsub.topics.Status().Local[0]
	queued := far.Pipe().Out.Status
	var calls sync.WaitGroup
	release := far.Hold() // the publisher cannot fetch
	calls.Go(func() { must(t, xsub.Subscribe("topic")) })
	eventually(t, "the subscription is queued", func() bool { return queued().Bytes > 0 })
	calls.Go(func() { must(t, xsub.Send(ctx, []byte("a message"))) })
	eventually(t, "the message is queued", func() bool { return queued().Messages == 1 })
	release()
	within(t, "the calls", calls.Wait)
	if n := pub.Subscriptions(); n != 1 {
		t.Errorf("the publisher has %d subscriptions, want 1", n)
	}
}
