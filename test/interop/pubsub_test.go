package interop

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"testing"
	"time"

	"clustermap/internal/interop"
	"clustermap/sockets"
)

func TestInteropPub(t *testing.T) {
	t.Parallel()
	for _, who := range []side{weBind, theyBind} {
		t.Run(string(who), func(t *testing.T) {
			t.Parallel()
			ctx := timeLimit(t)
			pub := open(t, sockets.NewPub, sockets.Options{FullPolicy: sockets.PolicyBlock})
			sub := linkTo(t, pub, who, "SUB", "--subscribe", "")
			check(t, pub.WaitSubscribers(ctx, "", 1))
			for seed, s := range shapes(true) {
				message := interop.Frames(seed, 0, s)
				check(t, pub.Send(ctx, message...))
				wantDescribed(t, pythonReceives(sub, 1)[0], message)
			}
		})
	}
}

// wantTold compares the subscriptions that an XPUB of libzmq has received.
func wantTold(t *testing.T, pub *interop.Process, want ...string) {
	t.Helper()
	var got []string
	for _, m := range pythonReceives(pub, len(want)) {
		got = append(got, string(m[0].Bytes))
	}
	if !slices.Equal(got, want) {
		t.Fatalf("libzmq was told %q, want %q", got, want)
	}
}

func TestInteropSub(t *testing.T) {
	t.Parallel()
	for _, who := range []side{weBind, theyBind} {
		t.Run(string(who), func(t *testing.T) {
			t.Parallel()
			ctx := timeLimit(t)
			sub := open(t, sockets.NewSub, sockets.Options{})
			check(t, sub.Subscribe(""))
			pub := linkTo(t, sub, who, "XPUB")
			wantTold(t, pub, "\x01")
			for seed, s := range shapes(true) {
				count := s.count()
				sent := pythonSends(pub, nil, seed, s, count)
				for i := range count {
					m, err := sub.Recv(ctx)
					check(t, err)
					wantFrames(t, m, interop.Frames(seed, i, s))
				}
				sent.Done(nil)
			}
		})
	}
}

// TestInteropPubTopics has a SUB of libzmq change its mind. A subscription to a
// topic of its own behind each change shows when the change is in force, as
// they travel in order.
func TestInteropPubTopics(t *testing.T) {
	t.Parallel()
	for _, who := range []side{weBind, theyBind} {
		t.Run(string(who), func(t *testing.T) {
			t.Parallel()
			ctx := timeLimit(t)
			pub := open(t, sockets.NewPub, sockets.Options{})
			sub := linkTo(t, pub, who, "SUB")
			change := func(op, topic string) {
				sub.Call(interop.Op{"op": op, "topic": []byte(topic)}, nil)
			}
			step := func(fence string, want ...string) {
				t.Helper()
				change("subscribe", fence)
				check(t, pub.WaitSubscribers(ctx, fence, 1))
				for _, topic := range []string{"", "a", "ab", "abc", "abd", "b", "\x00\xff", "A", fence} {
					check(t, pub.Send(ctx, []byte(topic), []byte("body")))
				}
				for i, m := range pythonReceives(sub, len(want)+1) {
					if got := string(m[0].Bytes); i < len(want) && got != want[i] {
						t.Fatalf("%s: message %d is %q, want those of %q", fence, i, got, want)
					} else if i == len(want) && got != fence {
						t.Fatalf("%s: %q came beside those of %q", fence, got, want)
					}
				}
			}
			step("fence 0")
			change("subscribe", "ab")
			step("fence 1", "ab", "abc", "abd")
			change("subscribe", "abc")
			change("subscribe", "abc")
			step("fence 2", "ab", "abc", "abd")
			change("unsubscribe", "ab")
			step("fence 3", "abc")
			change("unsubscribe", "abc") // of two
			change("subscribe", "\x00")
			step("fence 4", "abc", "\x00\xff")
			change("unsubscribe", "abc")
			change("subscribe", "")
			step("fence 5", "", "a", "ab", "abc", "abd", "b", "\x00\xff", "A")
			change("unsubscribe", "")
			change("unsubscribe", "never")
			step("fence 6", "\x00\xff")
		})
	}
}

// TestInteropSubTopics has our SUB change its mind.
func TestInteropSubTopics(t *testing.T) {
	t.Parallel()
	for _, who := range []side{weBind, theyBind} {
		t.Run(string(who), func(t *testing.T) {
			t.Parallel()
			ctx := timeLimit(t)
			sub := open(t, sockets.NewSub, sockets.Options{})
			pub := linkTo(t, sub, who, "XPUB")
			wantNext := func(want ...string) {
				t.Helper()
				for _, topic := range want {
					m, err := sub.Recv(ctx)
					check(t, err)
					wantFrames(t, m, [][]byte{[]byte(topic), []byte("body")})
				}
			}
			send := func() {
				for _, topic := range []string{"", "a", "ab", "b", "\x00", "end"} {
					pythonSays(pub, topic, "body")
				}
			}
			check(t, sub.Subscribe("end"))
			wantTold(t, pub, "\x01end")
			send()
			wantNext("end")

			check(t, sub.Subscribe("a"))
			check(t, sub.Subscribe("a"))
			check(t, sub.Subscribe("\x00"))
			wantTold(t, pub, "\x01a", "\x01\x00")
			send()
			wantNext("a", "ab", "\x00", "end")

			// Only the second of two is told to the publisher.
			check(t, sub.Unsubscribe("a"))
			check(t, sub.Subscribe("b"))
			wantTold(t, pub, "\x01b")
			send()
			wantNext("a", "ab", "b", "\x00", "end")

			check(t, sub.Unsubscribe("a"))
			check(t, sub.Unsubscribe("never"))
			check(t, sub.Unsubscribe("b"))
			wantTold(t, pub, "\x00a", "\x00b")
			send()
			wantNext("\x00", "end")

			check(t, sub.Subscribe(""))
			wantTold(t, pub, "\x01")
			send()
			wantNext("", "a", "ab", "b", "\x00", "end")
		})
	}
}

// TestInteropSubPlainPub waits for the subscription with WaitSubscribed, where
// the publisher cannot tell. The program looks for new subscriptions before it
// sends; libzmq itself does so only now and then.
func TestInteropSubPlainPub(t *testing.T) {
	t.Parallel()
	ctx := timeLimit(t)
	sub := open(t, sockets.NewSub, sockets.Options{})
	check(t, sub.Subscribe("a"))
	pub := linkTo(t, sub, theyBind, "PUB")
	check(t, sub.WaitSubscribed(ctx))
	for {
		pythonSays(pub, "b", "no")
		pythonSays(pub, "a", "yes")
		// libzmq's PONG makes it no more than likely that the first one comes.
		moment, cancel := context.WithTimeout(ctx, time.Second)
		m, err := sub.Recv(moment)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			continue
		}
		check(t, err)
		wantFrames(t, m, [][]byte{[]byte("a"), []byte("yes")})
		return
	}
}

// TestInteropXSub takes subscriptions in the form of messages, as a peer of
// ZMTP 3.0 and every XSUB send them.
func TestInteropXSub(t *testing.T) {
	t.Parallel()
	ctx := timeLimit(t)
	pub := open(t, sockets.NewPub, sockets.Options{})
	sub := linkTo(t, pub, weBind, "XSUB")
	pythonSays(sub, "\x01a")
	pythonSays(sub, "neither of the two")
	pythonSays(sub, "\x01fence")
	check(t, pub.WaitSubscribers(ctx, "fence", 1))
	check(t, pub.Send(ctx, []byte("b")))
	check(t, pub.Send(ctx, []byte("ab")))
	wantDescribed(t, pythonReceives(sub, 1)[0], [][]byte{[]byte("ab")})
	pythonSays(sub, "\x00a")
	pythonSays(sub, "\x01over")
	check(t, pub.WaitSubscribers(ctx, "over", 1))
	check(t, pub.Send(ctx, []byte("ab")))
	check(t, pub.Send(ctx, []byte("over")))
	wantDescribed(t, pythonReceives(sub, 1)[0], [][]byte{[]byte("over")})
}

// TestInteropPubFlood counts small messages both ways, with nothing lost.
func TestInteropPubFlood(t *testing.T) {
	t.Parallel()
	const count = 50_000
	t.Run("to libzmq", func(t *testing.T) {
		t.Parallel()
		ctx := timeLimit(t)
		pub := open(t, sockets.NewPub, sockets.Options{FullPolicy: sockets.PolicyBlock})
		sub := linkTo(t, pub, weBind, "SUB", "--subscribe", base64Of("topic"))
		check(t, pub.WaitSubscribers(ctx, "topic", 1))
		counting := sub.Start(interop.Op{"op": "count", "n": count})
		body := make([]byte, 100)
		for i := range count {
			binary.BigEndian.PutUint64(body, uint64(i))
			check(t, pub.Send(ctx, []byte("other"), body))
			check(t, pub.Send(ctx, []byte("topic"), body))
		}
		var c counted
		counting.Done(&c)
		if c != (counted{count, true, 0, count - 1}) {
			t.Errorf("libzmq counted %+v", c)
		}
	})
	t.Run("from libzmq", func(t *testing.T) {
		t.Parallel()
		ctx := timeLimit(t)
		sub := open(t, sockets.NewSub, sockets.Options{})
		check(t, sub.Subscribe("topic"))
		pub := linkTo(t, sub, weBind, "XPUB")
		wantTold(t, pub, "\x01topic")
		flood := pub.Start(interop.Op{"op": "flood", "n": count, "size": 100, "head": [][]byte{[]byte("topic")}})
		var b sockets.Batch
		defer b.Release()
		for i := 0; i < count; {
			check(t, sub.RecvBatch(ctx, &b))
			for j := range b.Len() {
				topic, rest := b.Message(j).Next()
				body, rest := rest.Next()
				if string(topic) != "topic" || len(body) != 100 || len(rest) != 0 || binary.BigEndian.Uint64(body) != uint64(i) {
					t.Fatalf("message %d is %q %q", i, topic, body)
				}
				i++
			}
		}
		flood.Done(nil)
	})
}
