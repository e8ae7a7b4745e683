package sockets

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"clustermap/zmtp"
)

// TestInprocSubscribeIsInForce: over inproc a subscription and its end are in force
// when the call returns, with either side binding and either first.
func TestInprocSubscribeIsInForce(t *testing.T) {
	t.Parallel()
	for _, binds := range []string{"publisher", "subscriber", "publisher late"} {
		t.Run(binds, func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			for range 20 {
				o := inprocOptions()
				xpub, sub, xsub := open(t, NewXPub, o), open(t, NewSub, o), open(t, NewXSub, o)
				must(t, sub.Subscribe("early"))
				switch binds {
				case "publisher":
					must(t, xpub.Bind(ctx, "inproc://a"))
					must(t, sub.Connect("inproc://a"))
					must(t, xsub.Connect("inproc://a"))
				case "publisher late":
					must(t, sub.Connect("inproc://a"))
					must(t, xsub.Connect("inproc://a"))
					must(t, xpub.Bind(ctx, "inproc://a"))
				default:
					must(t, sub.Bind(ctx, "inproc://a"))
					must(t, xsub.Bind(ctx, "inproc://b"))
					must(t, xpub.Connect("inproc://a"))
					must(t, xpub.Connect("inproc://b"))
				}
				if got := drained(t, xpub); !slices.Equal(got, []string{"\x01early"}) {
					t.Fatalf("the XPUB was told %q", got)
				}
				for i := range 10 {
					topic := fmt.Sprint("topic", i)
					must(t, sub.Subscribe(topic))
					must(t, xsub.TrySend([]byte("of the application")))
					must(t, xsub.TrySend([]byte("\x01x"+topic)))
					if got := drained(t, xpub); !slices.Equal(got, []string{"\x01" + topic, "of the application", "\x01x" + topic}) {
						t.Fatalf("the XPUB was told %q", got)
					}
					must(t, xpub.TrySend([]byte(topic)))
					must(t, xpub.TrySend([]byte("x"+topic)))
					if got := append(drained(t, sub), drained(t, xsub)...); !slices.Equal(got, []string{topic, "x" + topic}) {
						t.Fatalf("%q came", got)
					}
					must(t, sub.Unsubscribe(topic))
					if got := drained(t, xpub); !slices.Equal(got, []string{"\x00" + topic}) {
						t.Fatalf("the XPUB was told %q", got)
					}
				}
			}
		})
	}
}

// TestInprocSubscribeNeverWaits: an XPUB that does not receive does not hold up its
// subscribers, and learns of everything in the end.
func TestInprocSubscribeNeverWaits(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	o := inprocOptions()
	o.RecvHWM = 10
	xpub, sub := open(t, NewXPub, o), open(t, NewSub, o)
	must(t, xpub.Bind(ctx, "inproc://a"))
	must(t, sub.Connect("inproc://a"))
	const n = 1000
	within(t, "subscribing", func() {
		for i := range n {
			must(t, sub.Subscribe(fmt.Sprint(i)))
		}
	})
	for i := range n {
		m, err := xpub.Recv(ctx)
		must(t, err)
		if string(m[0]) != fmt.Sprint("\x01", i) {
			t.Fatalf("%q instead of %d", m, i)
		}
	}
	// And it does not hold up subscribers that leave.
	for i := range n {
		must(t, sub.Unsubscribe(fmt.Sprint(i)))
	}
	within(t, "Disconnect", func() { must(t, sub.Disconnect("inproc://a")) })
}

// TestInprocDisconnectIsDone: over inproc nothing comes from a peer, and nothing
// goes to it, once Disconnect has returned.
func TestInprocDisconnectIsDone(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	for range 100 {
		o := inprocOptions()
		xpub, sub := open(t, NewXPub, o), open(t, NewSub, o)
		must(t, xpub.Bind(ctx, "inproc://a"))
		must(t, sub.Subscribe("a"))
		must(t, sub.Connect("inproc://a"))
		drained(t, xpub)
		must(t, sub.Disconnect("inproc://a"))
		if got := drained(t, xpub); !slices.Equal(got, []string{"\x00a"}) {
			t.Errorf("the XPUB was told %q", got)
		}
		must(t, xpub.TrySend([]byte("after")))
		if got := drained(t, sub); got != nil {
			t.Errorf("%q came after Disconnect", got)
		}
		if n := len(xpub.Peers()); n != 0 {
			t.Errorf("the XPUB has %d peers", n)
		}

		push, first, second := open(t, NewPush, o), open(t, NewPull, o), open(t, NewPull, o)
		must(t, push.Bind(ctx, "inproc://b"))
		must(t, first.Connect("inproc://b"))
		must(t, second.Connect("inproc://b"))
		must(t, first.Disconnect("inproc://b"))
		for range 10 {
			must(t, push.TrySend([]byte("after")))
		}
		if got := drained(t, first); got != nil {
			t.Errorf("%q came after Disconnect", got)
		}
		if got := drained(t, second); len(got) != 10 {
			t.Errorf("%d of 10 messages went to the peer that is there", len(got))
		}
		must(t, second.Disconnect("inproc://b"))
		if err := push.TrySend([]byte("x")); !errors.Is(err, ErrWouldBlock) {
			t.Errorf("without a peer: %v", err)
		}
	}
}

// TestInprocDisconnectKeepsWhatWasSent: messages sent before Disconnect reach the receiver,
// also if there was none at that time.
func TestInprocDisconnectKeepsWhatWasSent(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	o := inprocOptions()
	push, pull := open(t, NewPush, o), open(t, NewPull, o)
	must(t, pull.Bind(ctx, "inproc://a"))
	must(t, push.Connect("inproc://a"))
	says(t, push, "1")
	says(t, push, "2")
	must(t, push.Disconnect("inproc://a"))
	if got := drained(t, pull); !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("%q came", got)
	}
	must(t, push.Connect("inproc://b"))
	says(t, push, "3")
	must(t, push.Disconnect("inproc://b"))
	must(t, pull.Bind(ctx, "inproc://b"))
	wants(t, pull, "3")
}

// TestDisconnectDropsReceived: Disconnect drops messages that were received from a
// peer and not taken, and so it does with those that the peer still sends; those of other
// peers stay.
func TestDisconnectDropsReceived(t *testing.T) {
	t.Parallel()
	for _, endpoint := range []string{"inproc://a", anyPort} {
		t.Run(endpoint, func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			o := inprocOptions()
			o.RecvHWM, o.SendHWM = 2, 2
			one, other := open(t, NewDealer, o), open(t, NewDealer, o)
			must(t, one.Bind(ctx, endpoint))
			if endpoint == "inproc://a" {
				must(t, other.Bind(ctx, "inproc://b"))
			} else {
				must(t, other.Bind(ctx, endpoint))
			}
			dealer := open(t, NewDealer, o)
			must(t, dealer.Connect(one.LastEndpoint()))
			must(t, dealer.Connect(other.LastEndpoint()))
			says(t, one, "of one")
			says(t, one, "of one")
			says(t, other, "of other")
			// Both queues hold messages, and one's reader may wait for room.
			eventually(t, "all has come", func() bool {
				n := 0
				for _, p := range dealer.Peers() {
					n += p.PendingMessages
				}
				return n == 3 || endpoint == "inproc://a"
			})
			if endpoint == anyPort {
				says(t, one, "of one")
				// Messages to it go out all the same.
				says(t, dealer, "to one")
				says(t, dealer, "to other")
			}
			must(t, dealer.Disconnect(one.LastEndpoint()))
			if endpoint == anyPort {
				wants(t, one, "to one")
				wants(t, other, "to other")
			}
			if got := drained(t, dealer); !slices.Equal(got, []string{"of other"}) {
				t.Errorf("%q came", got)
			}
			says(t, other, "more of other")
			wants(t, dealer, "more of other")
		})
	}
}

// TestNothingAfterADroppedMessage: a subscriber for which a message was dropped, with
// PolicyDisconnect, gets no later message on that connection.
func TestNothingAfterADroppedMessage(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	for range 100 {
		o := inprocOptions()
		o.SendHWM, o.RecvHWM, o.FullPolicy = 5, 5, PolicyDisconnect
		pub, sub := open(t, NewPub, only(zmtp.TypePub, o)), open(t, NewSub, only(zmtp.TypeSub, o))
		must(t, sub.Subscribe(""))
		must(t, pub.Bind(ctx, "inproc://a"))
		must(t, sub.Connect("inproc://a"))
		must(t, pub.WaitSubscribers(ctx, "", 1))
		for i := range 11 {
			must(t, pub.Send(ctx, []byte{byte(i)})) // the last finds no room
		}
		got := drained(t, sub) // and now there is room again
		for i := 11; i < 20; i++ {
			must(t, pub.Send(ctx, []byte{byte(i)}))
		}
		eventually(t, "the connection ends", func() bool { return len(pub.Peers()) == 0 })
		got = append(got, drained(t, sub)...)
		for i, m := range got {
			if m != string([]byte{byte(i)}) {
				t.Fatalf("message %d is %q of %q", i, m, got)
			}
		}
		if len(got) != 10 {
			t.Fatalf("%d messages came", len(got))
		}
	}
}
