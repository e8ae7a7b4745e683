package libzmq

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"clustermap/internal/hooks"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// The tests in this file say the same as libzmq's tests of the like names.

// either runs a test of SUB and XSUB.
func either(t *testing.T, f func(t *testing.T, s subscriberSocket)) {
	for name, create := range map[string]func(*testing.T) subscriberSocket{
		"SUB":  func(t *testing.T) subscriberSocket { return open(t, sockets.NewSub, sockets.Options{}) },
		"XSUB": func(t *testing.T) subscriberSocket { return open(t, sockets.NewXSub, sockets.Options{}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, create(t))
		})
	}
}

type subscriberSocket interface {
	Recv(context.Context) (sockets.Message, error)
	Connect(string) error
	Subscribe(string) error
	Unsubscribe(string) error
	Disconnect(string) error
	Close() error
}

// TestLibzmq_mock_pub_sub: the bytes of subscriptions, for a peer of ZMTP 3.1
// and for one of 3.0, in both directions.
func TestLibzmq_mock_pub_sub(t *testing.T) {
	t.Parallel()
	forms := map[uint8][]string{
		0: {"\x00\x02\x01A", "\x00\x02\x00A"},
		1: {"\x04\x0b\x09SUBSCRIBEA", "\x04\x08\x06CANCELA"},
	}
	for minor, form := range forms {
		t.Run(fmt.Sprintf("we subscribe at 3.%d", minor), func(t *testing.T) {
			t.Parallel()
			either(t, func(t *testing.T, s subscriberSocket) {
				endpoint, accept := listenRaw(t)
				must(t, s.Subscribe("A"))
				must(t, s.Connect(endpoint))
				r := accept()
				r.Send(greeting(minor), ready("PUB", nil))
				r.Greeted()
				r.Wants(form[0])
				r.Send([]byte("\x00\x04ALOL"))
				wants(t, s, "ALOL")
				must(t, s.Unsubscribe("A"))
				r.Wants(form[1])
			})
		})
		t.Run(fmt.Sprintf("we publish to 3.%d", minor), func(t *testing.T) {
			t.Parallel()
			pub := bind(t, sockets.NewXPub, sockets.Options{})
			r := dialRaw(t, pub.LastEndpoint())
			r.Send(greeting(minor), ready("SUB", nil))
			r.Greeted()
			r.Send([]byte(form[0]))
			wants(t, pub, "\x01A")
			says(t, pub, "ALOL")
			r.Wants("\x00\x04ALOL")
			r.Send([]byte(form[1]))
			wants(t, pub, "\x00A")
		})
	}
}

// TestLibzmq_xpub_topic: topics about as long as the short form of a frame
// takes, in both forms.
func TestLibzmq_xpub_topic(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 244, 245, 246, 247, 253, 254, 255, 256, 257} {
		topic := strings.Repeat("t", size)
		pub := bind(t, sockets.NewXPub, sockets.Options{})
		sub := dialled(t, sockets.NewSub, sockets.Options{}, pub.LastEndpoint())
		must(t, sub.Subscribe(topic))
		wants(t, pub, "\x01"+topic)
		says(t, pub, topic[1:]+"x", topic+"more")
		wants(t, sub, topic+"more")
		must(t, sub.Unsubscribe(topic))
		wants(t, pub, "\x00"+topic)
		up := dialled(t, sockets.NewXSub, sockets.Options{}, pub.LastEndpoint())
		says(t, up, "\x01"+topic)
		wants(t, pub, "\x01"+topic)
		says(t, up, "\x00"+topic)
		wants(t, pub, "\x00"+topic)
	}
}

// TestLibzmq_sub_forward: a subscription goes up through a device of XPUB and
// XSUB, and the message comes down.
func TestLibzmq_sub_forward(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	xpub, xsub := bind(t, sockets.NewXPub, sockets.Options{}), bind(t, sockets.NewXSub, sockets.Options{})
	pub := dialled(t, sockets.NewPub, sockets.Options{}, xsub.LastEndpoint())
	sub := dialled(t, sockets.NewSub, sockets.Options{}, xpub.LastEndpoint())
	must(t, sub.Subscribe(""))
	m, err := xpub.Recv(ctx)
	must(t, err)
	must(t, xsub.Send(ctx, m...))
	must(t, pub.WaitSubscribers(ctx, "", 1))
	says(t, pub, "forwarded")
	m, err = xsub.Recv(ctx)
	must(t, err)
	must(t, xpub.Send(ctx, m...))
	wants(t, sub, "forwarded")
}

// TestLibzmq_xpub_verbose counts the subscriptions reported of one and of two
// subscribers. A message of the application's own is a fence: it shows that no report
// came before it.
func TestLibzmq_xpub_verbose(t *testing.T) {
	t.Parallel()
	setup := func(t *testing.T, o sockets.Options) (pub *sockets.XPub, one, two *sockets.XSub) {
		t.Parallel()
		pub = bind(t, sockets.NewXPub, o)
		one, two = dialled(t, sockets.NewXSub, sockets.Options{}, pub.LastEndpoint()), dialled(t, sockets.NewXSub, sockets.Options{}, pub.LastEndpoint())
		must(t, one.WaitSubscribed(testContext(t)))
		must(t, two.WaitSubscribed(testContext(t)))
		return pub, one, two
	}
	t.Run("default", func(t *testing.T) {
		pub, one, two := setup(t, sockets.Options{})
		says(t, one, "\x01A", "\x01B", "\x01A", "fence")
		wants(t, pub, "\x01A", "\x01B", "fence")
		says(t, two, "\x01A", "fence")
		wants(t, pub, "fence")
		says(t, one, "\x00A", "\x00A", "fence") // the second is the last of the two, and two has it still
		wants(t, pub, "fence")
		says(t, two, "\x00A")
		wants(t, pub, "\x00A")
	})
	t.Run("verbose", func(t *testing.T) {
		pub, one, two := setup(t, sockets.Options{XPubVerbose: true})
		says(t, one, "\x01A", "\x01B", "\x01A", "fence")
		wants(t, pub, "\x01A", "\x01B", "\x01A", "fence")
		says(t, two, "\x01A", "fence")
		wants(t, pub, "\x01A", "fence")
		says(t, one, "\x00A", "\x00A", "fence")
		wants(t, pub, "fence")
		says(t, two, "\x00A")
		wants(t, pub, "\x00A")
	})
	t.Run("verboser", func(t *testing.T) {
		pub, one, two := setup(t, sockets.Options{XPubVerboser: true})
		says(t, one, "\x01A", "\x01B", "\x01A", "fence")
		wants(t, pub, "\x01A", "\x01B", "\x01A", "fence")
		says(t, two, "\x01A", "fence")
		wants(t, pub, "\x01A", "fence")
		says(t, one, "\x00A", "\x00A", "fence")
		wants(t, pub, "\x00A", "fence")
		says(t, two, "\x00A", "fence")
		wants(t, pub, "\x00A", "fence")
		must(t, one.Close())
		wants(t, pub, "\x00B")
	})
	// The option changes while there are subscriptions. Each is in force when the call
	// returns, and the XPUB's queue holds exactly the reported subscriptions.
	live := func(t *testing.T, o func(o *sockets.Options), subscribers int) (pub *sockets.XPub, subs []*sockets.Sub, change func()) {
		t.Parallel()
		names := inprocOptions()
		pub = open(t, sockets.NewXPub, names)
		must(t, pub.Bind(testContext(t), "inproc://a"))
		for range subscribers {
			subs = append(subs, dialled(t, sockets.NewSub, names, "inproc://a"))
		}
		return pub, subs, func() { must(t, pub.SetOptions(o)) }
	}
	t.Run("verbose later, one SUB", func(t *testing.T) {
		pub, subs, change := live(t, func(o *sockets.Options) { o.XPubVerbose = true }, 1)
		must(t, subs[0].Subscribe("A"))
		wantQueued(t, pub, "\x01A")
		must(t, subs[0].Subscribe("B"))
		wantQueued(t, pub, "\x01B")
		must(t, subs[0].Subscribe("A"))
		wantQueued(t, pub)
		change()
		must(t, subs[0].Subscribe("A"))
		wantQueued(t, pub, "\x01A")
		says(t, pub, "A", "B")
		wantQueued(t, subs[0], "A", "B")
	})
	t.Run("verbose later, two SUBs", func(t *testing.T) {
		pub, subs, change := live(t, func(o *sockets.Options) { o.XPubVerbose = true }, 2)
		must(t, subs[0].Subscribe("A"))
		wantQueued(t, pub, "\x01A")
		must(t, subs[1].Subscribe("A"))
		wantQueued(t, pub)
		must(t, subs[0].Subscribe("B"))
		wantQueued(t, pub, "\x01B")
		change()
		must(t, subs[1].Subscribe("A"))
		wantQueued(t, pub, "\x01A")
		says(t, pub, "A", "B")
		wantQueued(t, subs[0], "A", "B")
		wantQueued(t, subs[1], "A")
	})
	t.Run("verboser later, one SUB", func(t *testing.T) {
		pub, subs, change := live(t, func(o *sockets.Options) { o.XPubVerboser = true }, 1)
		must(t, subs[0].Unsubscribe("A")) // it has none
		wantQueued(t, pub)
		must(t, subs[0].Subscribe("A"))
		wantQueued(t, pub, "\x01A")
		must(t, subs[0].Subscribe("A"))
		wantQueued(t, pub)
		must(t, subs[0].Unsubscribe("A"))
		wantQueued(t, pub)
		must(t, subs[0].Unsubscribe("A"))
		wantQueued(t, pub, "\x00A")
		must(t, subs[0].Unsubscribe("A"))
		wantQueued(t, pub)
		change()
		must(t, subs[0].Subscribe("A"))
		wantQueued(t, pub, "\x01A")
		says(t, pub, "A")
		wantQueued(t, subs[0], "A")
		must(t, subs[0].Unsubscribe("A"))
		wantQueued(t, pub, "\x00A")
		must(t, subs[0].Unsubscribe("A")) // a SUB tells of none that it does not have
		wantQueued(t, pub)
	})
	t.Run("verboser later, two SUBs", func(t *testing.T) {
		pub, subs, change := live(t, func(o *sockets.Options) { o.XPubVerboser = true }, 2)
		must(t, subs[0].Subscribe("A"))
		wantQueued(t, pub, "\x01A")
		must(t, subs[1].Subscribe("A"))
		wantQueued(t, pub)
		must(t, subs[0].Unsubscribe("A"))
		wantQueued(t, pub)
		must(t, subs[1].Unsubscribe("A"))
		wantQueued(t, pub, "\x00A")
		change()
		must(t, subs[0].Subscribe("A"))
		must(t, subs[1].Subscribe("A"))
		wantQueued(t, pub, "\x01A", "\x01A")
		says(t, pub, "A")
		wantQueued(t, subs[0], "A")
		wantQueued(t, subs[1], "A")
		must(t, subs[1].Unsubscribe("A"))
		wantQueued(t, pub, "\x00A")
		must(t, subs[0].Unsubscribe("A"))
		wantQueued(t, pub, "\x00A")
		must(t, subs[1].Unsubscribe("A"))
		wantQueued(t, pub)
	})
}

// TestLibzmq_xsub_verbose: every subscription is sent; of ends only the last
// one's, or all with the option.
func TestLibzmq_xsub_verbose(t *testing.T) {
	t.Parallel()
	for _, verbose := range []bool{false, true} {
		t.Run(fmt.Sprint(verbose), func(t *testing.T) {
			t.Parallel()
			pub := bind(t, sockets.NewXPub, sockets.Options{XPubVerboser: true})
			sub := dialled(t, sockets.NewXSub, sockets.Options{XSubVerboseUnsubscribe: verbose}, pub.LastEndpoint())
			must(t, sub.WaitSubscribed(testContext(t)))
			all := func(messages ...string) []string {
				if verbose {
					return messages
				}
				return []string{messages[len(messages)-1]}
			}
			says(t, sub, "\x00A", "fence")
			wants(t, pub, all("\x00A", "fence")...)
			says(t, sub, "\x01A", "\x01A", "\x01A", "fence")
			wants(t, pub, "\x01A", "\x01A", "\x01A", "fence")
			says(t, sub, "\x00A", "\x00A", "fence")
			wants(t, pub, all("\x00A", "\x00A", "fence")...)
			says(t, sub, "\x00A")
			wants(t, pub, "\x00A")
			says(t, sub, "\x00A", "fence")
			wants(t, pub, all("\x00A", "fence")...)
			// And with the methods.
			must(t, sub.Unsubscribe("B"))
			says(t, sub, "fence")
			wants(t, pub, all("\x00B", "fence")...)
		})
	}
	t.Run("later", func(t *testing.T) {
		t.Parallel()
		names := inprocOptions()
		pub := open(t, sockets.NewXPub, names)
		must(t, pub.Bind(testContext(t), "inproc://a"))
		sub := dialled(t, sockets.NewXSub, names, "inproc://a")
		must(t, pub.SetOptions(func(o *sockets.Options) { o.XPubVerboser = true }))
		tells := func(frame string, want ...string) {
			t.Helper()
			says(t, sub, frame)
			wantQueued(t, pub, want...)
		}
		tells("\x00A")
		tells("\x01A", "\x01A")
		tells("\x01A", "\x01A")
		tells("\x00A")
		tells("\x00A", "\x00A")
		must(t, sub.SetOptions(func(o *sockets.Options) { o.XSubVerboseUnsubscribe = true }))
		tells("\x00A", "\x00A")
		for _, frame := range []string{"\x01A", "\x01A", "\x00A", "\x00A"} {
			tells(frame, frame)
		}
	})
}

// TestLibzmq_xpub_manual: the application chooses the subscriptions.
func TestLibzmq_xpub_manual(t *testing.T) {
	t.Parallel()
	t.Run("basic", func(t *testing.T) {
		t.Parallel()
		pub := bind(t, sockets.NewXPub, sockets.Options{XPubManual: true})
		sub := dialled(t, sockets.NewXSub, sockets.Options{}, pub.LastEndpoint())
		says(t, sub, "\x01A")
		wants(t, pub, "\x01A")
		must(t, pub.Subscribe("B"))
		says(t, pub, "A", "B")
		wants(t, sub, "B")
	})
	t.Run("unsubscribe", func(t *testing.T) {
		t.Parallel()
		pub := bind(t, sockets.NewXPub, sockets.Options{XPubManual: true})
		sub := dialled(t, sockets.NewXSub, sockets.Options{}, pub.LastEndpoint())
		says(t, sub, "\x01A", "\x01B")
		wants(t, pub, "\x01A")
		must(t, pub.Subscribe("XA"))
		wants(t, pub, "\x01B")
		must(t, pub.Subscribe("XB"))
		says(t, sub, "\x00A")
		wants(t, pub, "\x00A")
		must(t, pub.Unsubscribe("XA"))
		says(t, sub, "\x00B") // told, and nothing done about it
		wants(t, pub, "\x00B")
		says(t, pub, "A", "B", "XA", "XB")
		wants(t, sub, "XB")
		must(t, sub.Close())
		eventually(t, "no topic is left", func() bool { return pub.Subscriptions() == 0 })
	})
	t.Run("device", func(t *testing.T) {
		t.Parallel()
		// The subscriptions of a subscriber are cancelled upstream when it goes.
		xpub, xsub := bind(t, sockets.NewXPub, sockets.Options{XPubManual: true}), open(t, sockets.NewXSub, sockets.Options{})
		pub := bind(t, sockets.NewXPub, sockets.Options{})
		must(t, xsub.Connect(pub.LastEndpoint()))
		sub := dialled(t, sockets.NewSub, sockets.Options{}, xpub.LastEndpoint())
		must(t, sub.Subscribe("A"))
		wants(t, xpub, "\x01A")
		must(t, xpub.Subscribe("A"))
		says(t, xsub, "\x01A")
		wants(t, pub, "\x01A")
		says(t, pub, "A")
		wants(t, xsub, "A")
		says(t, xpub, "A")
		wants(t, sub, "A")
		must(t, sub.Close())
		wants(t, xpub, "\x00A")
		says(t, xsub, "\x00A")
		wants(t, pub, "\x00A")
		eventually(t, "no topic is left", func() bool { return xpub.Subscriptions() == 0 })
	})
	t.Run("missing subscriptions", func(t *testing.T) {
		t.Parallel()
		// Two subscribe at once; each gets its own although both are told of
		// before either is answered for good.
		pub := bind(t, sockets.NewXPub, sockets.Options{XPubManual: true})
		subs := map[string]*sockets.Sub{}
		for _, topic := range []string{"topic 1", "topic 2"} {
			subs[topic] = dialled(t, sockets.NewSub, sockets.Options{}, pub.LastEndpoint())
			must(t, subs[topic].Subscribe(topic))
		}
		for range 2 {
			m, err := pub.Recv(testContext(t))
			must(t, err)
			must(t, pub.Subscribe(string(m[0][1:])))
		}
		for topic, sub := range subs {
			says(t, pub, topic)
			wants(t, sub, topic)
		}
	})
	t.Run("cleanup", func(t *testing.T) {
		t.Parallel()
		// The end of all subscriptions that a peer asked for is reported when it goes,
		// however they were answered, and though another peer has them.
		pub := bind(t, sockets.NewXPub, sockets.Options{XPubManual: true})
		sub, other := dialled(t, sockets.NewSub, sockets.Options{}, pub.LastEndpoint()), dialled(t, sockets.NewSub, sockets.Options{}, pub.LastEndpoint())
		for _, topic := range []string{"A", "B", "C"} {
			must(t, sub.Subscribe(topic))
			wants(t, pub, "\x01"+topic)
			must(t, pub.Subscribe("X"+topic))
		}
		must(t, other.Subscribe("B"))
		wants(t, pub, "\x01B")
		must(t, pub.Subscribe("B"))
		must(t, sub.Close())
		wants(t, pub, "\x00A", "\x00B", "\x00C")
		eventually(t, "one topic is left", func() bool { return pub.Subscriptions() == 1 })
		if err := pub.Subscribe("late"); !errors.Is(err, sockets.ErrUnroutable) {
			t.Errorf("%v", err)
		}
	})
	t.Run("user message", func(t *testing.T) {
		t.Parallel()
		pub := bind(t, sockets.NewXPub, sockets.Options{XPubManual: true})
		sub := dialled(t, sockets.NewXSub, sockets.Options{}, pub.LastEndpoint())
		says(t, sub, "\x02A")
		wants(t, pub, "\x02A")
	})
	t.Run("only first subscribe", func(t *testing.T) {
		t.Parallel()
		pub := bind(t, sockets.NewXPub, sockets.Options{OnlyFirstSubscribe: true})
		sub := dialled(t, sockets.NewXSub, sockets.Options{OnlyFirstSubscribe: true}, pub.LastEndpoint())
		for first := range byte(4) {
			m := [][]byte{[]byte("common"), {first, 'B', 'C'}}
			must(t, sub.Send(testContext(t), m...))
			wants(t, pub, "common "+string(m[1]))
		}
		must(t, sub.Send(testContext(t), []byte("\x01A"), []byte("own")))
		wants(t, pub, "\x01A", "own")
	})
}

// TestLibzmq_xpub_manual_last_value: after a subscription was received, the
// next message goes to that subscriber alone.
func TestLibzmq_xpub_manual_last_value(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	pub := bind(t, sockets.NewXPub, sockets.Options{XPubManualLastValue: true})
	join := func() *sockets.Sub {
		sub := dialled(t, sockets.NewSub, sockets.Options{}, pub.LastEndpoint())
		must(t, sub.Subscribe("A"))
		wants(t, pub, "\x01A")
		must(t, pub.Subscribe("A"))
		return sub
	}
	one := join()
	says(t, pub, "A last 1")
	wants(t, one, "A last 1")
	two := join()
	says(t, pub, "A last 2", "A all 1")
	wants(t, two, "A last 2", "A all 1")
	wants(t, one, "A all 1")
	three := join()
	says(t, pub, "B", "A all 2") // a message without subscribers counts as well
	must(t, hooks.SendWire(ctx, pub, wire("A all 3"), 1, nil))
	wants(t, three, "A all 2", "A all 3")
	four := join()
	must(t, hooks.SendWire(ctx, pub, append(wire("B"), wire("A last 4")...), 2, nil))
	must(t, hooks.SendWire(ctx, pub, wire("A all 4"), 1, nil))
	wants(t, four, "A last 4", "A all 4")
	wants(t, one, "A all 2", "A all 3", "A all 4")
	wants(t, two, "A all 2", "A all 3", "A all 4")
	wants(t, three, "A all 4")
	must(t, four.Close())
	wants(t, pub, "\x00A")
	says(t, pub, "A all 5") // the peer that subscribed last is gone
	wants(t, one, "A all 5")
}

// TestLibzmq_xpub_nodrop: with XPUB_NODROP a full queue makes Send wait, and
// nothing is lost.
func TestLibzmq_xpub_nodrop(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	const hwm = 2000
	pub := bind(t, sockets.NewXPub, sockets.Options{FullPolicy: sockets.PolicyBlock, SendHWM: hwm})
	sub := dialled(t, sockets.NewSub, sockets.Options{RecvHWM: hwm}, pub.LastEndpoint())
	must(t, sub.Subscribe(""))
	wants(t, pub, "\x01")
	body := make([]byte, 4096)
	sent := 0
	for {
		short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		err := pub.Send(short, body)
		cancel()
		if err != nil {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			break
		}
		sent++
	}
	if sent < hwm {
		t.Errorf("only %d messages were taken", sent)
	}
	for range sent {
		if _, err := sub.Recv(ctx); err != nil {
			t.Fatal(err)
		}
	}
	must(t, pub.Send(ctx, []byte("end")))
	wants(t, sub, "end")
}

// TestLibzmq_xpub_welcome_msg: a new subscriber gets the welcome message, if it
// is subscribed to it.
func TestLibzmq_xpub_welcome_msg(t *testing.T) {
	t.Parallel()
	pub := bind(t, sockets.NewXPub, sockets.Options{WelcomeMessage: []byte("W")})
	sub := open(t, sockets.NewSub, sockets.Options{})
	must(t, sub.Subscribe("W"))
	must(t, sub.Connect(pub.LastEndpoint()))
	wants(t, pub, "\x01W")
	wants(t, sub, "W")
	// From a PUB too, before anything else.
	r := dialRaw(t, bind(t, sockets.NewPub, sockets.Options{WelcomeMessage: []byte("W")}).LastEndpoint()).Greet("SUB", nil)
	r.Wants("\x00\x01W")
}

// TestLibzmq_pub_invert_matching: with the option on both sides, peers get the messages
// that do not match their subscriptions.
func TestLibzmq_pub_invert_matching(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	pub := bind(t, sockets.NewPub, sockets.Options{InvertMatching: true})
	one := dialled(t, sockets.NewSub, sockets.Options{InvertMatching: true}, pub.LastEndpoint())
	two := dialled(t, sockets.NewSub, sockets.Options{InvertMatching: true}, pub.LastEndpoint())
	must(t, one.Subscribe("prefix1"))
	must(t, two.Subscribe("p"))
	must(t, one.WaitSubscribed(ctx))
	must(t, two.WaitSubscribed(ctx))
	must(t, pub.WaitSubscribers(ctx, "other", 2))
	says(t, pub, "prefix1", "prefix2", "other", "p")
	wants(t, one, "prefix2", "other", "p")
	wants(t, two, "other")

	// The matching is inverted, on both sides, while there are subscriptions.
	names := inprocOptions()
	pub = open(t, sockets.NewPub, names)
	must(t, pub.Bind(ctx, "inproc://a"))
	one, two = dialled(t, sockets.NewSub, names, "inproc://a"), dialled(t, sockets.NewSub, names, "inproc://a")
	must(t, one.Subscribe("prefix1"))
	must(t, two.Subscribe("p2"))
	for _, invert := range []bool{false, true} {
		to := map[string]*sockets.Sub{"prefix1": one, "p2": two}
		if invert {
			to["prefix1"], to["p2"] = two, one
		}
		for _, s := range []interface {
			SetOptions(func(*sockets.Options)) error
		}{pub, one, two} {
			must(t, s.SetOptions(func(o *sockets.Options) { o.InvertMatching = invert }))
		}
		for topic, sub := range to {
			says(t, pub, topic)
			wantQueued(t, sub, topic)
			wantQueued(t, one)
			wantQueued(t, two)
		}
	}
}

// TestLibzmq_pubsub_topics_count: both sides know the number of distinct
// topics.
func TestLibzmq_pubsub_topics_count(t *testing.T) {
	t.Parallel()
	pub := bind(t, sockets.NewXPub, sockets.Options{XPubVerboser: true})
	sub := dialled(t, sockets.NewSub, sockets.Options{}, pub.LastEndpoint())
	holds := func(want int) {
		t.Helper()
		if here, there := sub.Subscriptions(), pub.Subscriptions(); here != want || there != want {
			t.Errorf("%d and %d topics, want %d", here, there, want)
		}
	}
	holds(0)
	for i, topic := range []string{"topic1", "topic2", "topic3", "top", ""} {
		must(t, sub.Subscribe(topic))
		wants(t, pub, "\x01"+topic)
		holds(i + 1)
		must(t, sub.Subscribe(topic))
		wants(t, pub, "\x01"+topic)
		holds(i + 1)
	}
	must(t, sub.Unsubscribe("top"))
	holds(5)
	must(t, sub.Unsubscribe("top"))
	wants(t, pub, "\x00top")
	holds(4)
	must(t, sub.Unsubscribe("never"))
	holds(4)
}

// TestLibzmq_hwm_pubsub: up to the mark nothing is dropped, received messages do not
// count, and above the mark exactly the excess is dropped, or send calls wait.
func TestLibzmq_hwm_pubsub(t *testing.T) {
	t.Parallel()
	// pair makes an XPUB and a SUB to all of it.
	pair := func(t *testing.T, endpoint string, send, recv sockets.Options) (*sockets.XPub, *sockets.Sub) {
		t.Helper()
		pub := open(t, sockets.NewXPub, send)
		must(t, pub.Bind(testContext(t), endpoint))
		sub := dialled(t, sockets.NewSub, recv, pub.LastEndpoint())
		must(t, sub.Subscribe(""))
		wants(t, pub, "\x01")
		return pub, sub
	}
	exchange := func(t *testing.T, pub *sockets.XPub, sub *sockets.Sub, n int) {
		t.Helper()
		ctx := testContext(t)
		for i := range n {
			must(t, pub.TrySend(fmt.Append(nil, i)))
		}
		for i := range n {
			m, err := sub.Recv(ctx)
			must(t, err)
			if want := fmt.Sprint(i); string(m[0]) != want {
				t.Fatalf("%q, want %q", m[0], want)
			}
		}
		wantQueued(t, sub)
	}
	for name, endpoint := range map[string]string{"tcp": anyPort, "ipc": "ipc://*", "inproc": "inproc://" + t.Name()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, hwm := range []int{1000, 100} {
				t.Run(fmt.Sprint("mark ", hwm), func(t *testing.T) {
					pub, sub := pair(t, endpoint, sockets.Options{}, sockets.Options{})
					must(t, pub.SetOptions(func(o *sockets.Options) { o.SendHWM = hwm }))
					exchange(t, pub, sub, hwm)
				})
			}
			t.Run("again", func(t *testing.T) {
				const hwm = 11024
				pub, sub := pair(t, endpoint, sockets.Options{SendHWM: hwm}, sockets.Options{RecvHWM: hwm})
				exchange(t, pub, sub, 9999)
				exchange(t, pub, sub, 1100) // more than the mark with those before
			})
			t.Run("waits", func(t *testing.T) {
				ctx := testContext(t)
				pub, sub := pair(t, endpoint, sockets.Options{}, sockets.Options{})
				must(t, pub.SetOptions(func(o *sockets.Options) { o.SendHWM, o.FullPolicy = 2000, sockets.PolicyBlock }))
				body := make([]byte, 4096) // so that the system's buffers do not hold too many
				sent, received, full := uint32(0), uint32(0), 0
				receive := func() {
					t.Helper()
					m, err := sub.Recv(ctx)
					must(t, err)
					if n := binary.BigEndian.Uint32(m[0]); n != received {
						t.Fatalf("message %d, want %d", n, received)
					}
					received++
				}
				for sent < 6000 || full == 0 {
					binary.BigEndian.PutUint32(body, sent)
					err := pub.TrySend(body)
					if errors.Is(err, sockets.ErrWouldBlock) {
						full++
						receive()
						continue
					}
					must(t, err)
					sent++
				}
				for received < sent {
					receive()
				}
				says(t, pub, "end")
				wants(t, sub, "end")
			})
		})
	}
	t.Run("beyond", func(t *testing.T) {
		t.Parallel()
		const hwm = 10
		pub := bind(t, sockets.NewPub, sockets.Options{SendHWM: hwm, Linger: sockets.LingerNone})
		attached(t, pub.LastEndpoint(), "SUB", "").Send(zmtp.AppendSubscribe(nil, nil))
		must(t, pub.WaitSubscribers(testContext(t), "", 1))
		must(t, pub.Send(testContext(t), plug))
		eventually(t, "the writer is stuck", func() bool { return pub.Peers()[0].QueuedMessages == 0 })
		before := pub.Peers()[0]
		for range 3 * hwm {
			says(t, pub, "x")
		}
		after := pub.Peers()[0]
		if after.QueuedMessages > hwm || int(after.Drops-before.Drops)+after.QueuedMessages-before.QueuedMessages != 3*hwm {
			t.Errorf("%+v, then %+v", before, after)
		}
	})
}
