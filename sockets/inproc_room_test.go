package sockets

import (
	"testing"
	"time"
)

// TestInprocRoomLater: a Send that waits for room while its endpoint is not bound goes on
// when Bind adds the receiver's high-water mark.
func TestInprocRoomLater(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	var names Inproc
	push := open(t, NewPush, Options{Inproc: &names, SendHWM: 1})
	must(t, push.Connect("inproc://later"))
	must(t, push.Send(ctx, []byte("1")))
	sent := make(chan error, 1)
	go func() { sent <- push.Send(ctx, []byte("2")) }()
	eventually(t, "Send waits", func() bool {
		_, waiting := push.balancer.Status()
		return waiting == 1
	})
	pull := open(t, NewPull, Options{Inproc: &names, RecvHWM: 10})
	must(t, pull.Bind(ctx, "inproc://later"))
	select {
	case err := <-sent:
		must(t, err)
	case <-time.After(hang):
		t.Fatal("Send does not go on")
	}
	for _, want := range []string{"1", "2"} {
		wants(t, pull, want)
	}
}
