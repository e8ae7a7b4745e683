package sockets

import (
	"fmt"
	"testing"

	"clustermap/internal/link"
)

// TestLibzmq_sockopt_hwm: high-water marks that change before a connection, while it
// exists, and while its queue is full. Over inproc, those of both sides add up.
func TestLibzmq_sockopt_hwm(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	pairUp := func(t *testing.T, send, recv int, bindFirst bool) (*Push, *Pull) {
		t.Helper()
		names := new(Inproc)
		push, pull := open(t, NewPush, Options{Inproc: names}), open(t, NewPull, Options{Inproc: names})
		must(t, pull.SetOptions(func(o *Options) { o.RecvHWM = recv }))
		must(t, push.SetOptions(func(o *Options) { o.SendHWM = send }))
		if bindFirst {
			must(t, push.Bind(ctx, "inproc://a"))
		}
		must(t, pull.Connect("inproc://a"))
		if !bindFirst {
			must(t, push.Bind(ctx, "inproc://a"))
		}
		return push, pull
	}
	t.Run("before", func(t *testing.T) {
		t.Parallel()
		push, _ := pairUp(t, 2, 2, false)
		if hwm := push.Options().SendHWM; hwm != 2 {
			t.Errorf("SendHWM is %d", hwm)
		}
		if n := fill(t, push.TrySend, nil); n != 4 {
			t.Errorf("%d messages are sent, want 4", n)
		}
	})
	t.Run("after", func(t *testing.T) {
		t.Parallel()
		push, _ := pairUp(t, 1, 1, false)
		must(t, push.SetOptions(func(o *Options) { o.SendHWM = 5 }))
		if hwm := push.Options().SendHWM; hwm != 5 {
			t.Errorf("SendHWM is %d", hwm)
		}
		if n := fill(t, push.TrySend, nil); n != 6 {
			t.Errorf("%d messages are sent, want 6", n)
		}
	})
	t.Run("lower when full", func(t *testing.T) {
		t.Parallel()
		push, pull := pairUp(t, 100, 1, true)
		sent := 0
		for push.TrySend(fmt.Append(nil, sent)) == nil {
			sent++
		}
		if sent > 101 || sent < 11 {
			t.Errorf("%d messages are sent with a mark of 100", sent)
		}
		must(t, push.SetOptions(func(o *Options) { o.SendHWM = 70 }))
		if hwm := push.Options().SendHWM; hwm != 70 {
			t.Errorf("SendHWM is %d", hwm)
		}
		got := drained(t, pull)
		if len(got) != sent {
			t.Errorf("%d messages are received of %d", len(got), sent)
		}
		for i, m := range got {
			if m != fmt.Sprint(i) {
				t.Fatalf("message %d is %q", i, m)
			}
		}
		if n := fill(t, push.TrySend, nil); n > 71 || n < 8 {
			t.Errorf("%d messages are sent with a mark of 70", n)
		}
	})
}

// TestLibzmq_setsockopt: options are returned as they were set.
func TestLibzmq_setsockopt(t *testing.T) {
	t.Parallel()
	push := open(t, NewPush, Options{})
	if o := push.Options(); o.RecvBuffer != 0 || o.SendBuffer != 0 || o.BindToDevice != "" {
		t.Errorf("%d %d %q at first", o.RecvBuffer, o.SendBuffer, o.BindToDevice)
	}
	must(t, push.SetOptions(func(o *Options) { o.RecvBuffer = 16384 }))
	if o := push.Options(); o.RecvBuffer != 16384 || o.SendBuffer != 0 {
		t.Errorf("%d %d", o.RecvBuffer, o.SendBuffer)
	}
	must(t, push.SetOptions(func(o *Options) { o.SendBuffer = 16384 }))
	if o := push.Options(); o.RecvBuffer != 16384 || o.SendBuffer != 16384 {
		t.Errorf("%d %d", o.RecvBuffer, o.SendBuffer)
	}
	if link.HaveDevice {
		must(t, push.SetOptions(func(o *Options) { o.BindToDevice = "testdev" })) // there need not be such a device yet
		if o := push.Options(); o.BindToDevice != "testdev" {
			t.Errorf("%q", o.BindToDevice)
		}
	}
}
