package sockets

import (
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"clustermap/internal/hooks"
	"clustermap/internal/testenv"
)

// TestSenderWritesWhatComesAlone: the sender of a message that comes alone writes it itself, so the
// connection has no writer yet.
func TestSenderWritesWhatComesAlone(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	pub := bind(t, NewPub, Options{})
	sub := dialled(t, NewSub, Options{}, pub.LastEndpoint())
	must(t, sub.Subscribe(""))
	must(t, pub.WaitSubscribers(ctx, "", 1))
	must(t, pub.Send(ctx, []byte("alone")))
	if m, err := sub.Recv(ctx); err != nil || string(m[0]) != "alone" {
		t.Fatalf("received %q, %v", m, err)
	}
	direct := runtime.GOOS == "linux" && !portable
	if started := pub.core.Status().Writers; started == direct {
		t.Errorf("a writer was started: %v", started)
	}
}

// TestSenderIsToldThatItsMessageComesAlone: of a publisher and of a ROUTER a sender that says so
// writes each message itself, however soon it follows the one before.
func TestSenderIsToldThatItsMessageComesAlone(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" || portable {
		t.Skip("writers write everything")
	}
	ctx := testContext(t)
	pub := bind(t, NewPub, Options{})
	sub := dialled(t, NewSub, Options{}, pub.LastEndpoint())
	must(t, sub.Subscribe(""))
	must(t, pub.WaitSubscribers(ctx, "", 1))
	router := bind(t, NewRouter, Options{})
	dealer := dialled(t, NewDealer, Options{Identity: []byte("dealer")}, router.LastEndpoint())
	must(t, router.WaitPeers(ctx, 1))
	for range 100 {
		hooks.Alone(pub)
		hooks.Alone(router)
		must(t, pub.Send(ctx, []byte("alone")))
		must(t, router.Send(ctx, []byte("dealer"), []byte("alone")))
	}
	for range 100 {
		_, err := sub.Recv(ctx)
		must(t, err)
		_, err = dealer.Recv(ctx)
		must(t, err)
	}
	if pub.core.Status().Writers || router.core.Status().Writers {
		t.Error("a writer was started")
	}
}

// TestOrderOfSendersAndWriters: messages that senders write themselves and messages that writers write
// arrive whole and in order, at one subscriber and at several.
func TestOrderOfSendersAndWriters(t *testing.T) {
	t.Parallel()
	for _, subscribers := range []int{1, 3} {
		ctx := testContext(t)
		pub := bind(t, NewPub, Options{FullPolicy: PolicyBlock})
		var subs []*Sub
		for range subscribers {
			sub := dialled(t, NewSub, Options{}, pub.LastEndpoint())
			must(t, sub.Subscribe(""))
			subs = append(subs, sub)
		}
		must(t, pub.WaitSubscribers(ctx, "", subscribers))
		n := testenv.Rounds(20_000)
		go func() {
			var body [100]byte
			for i := range n {
				binary.BigEndian.PutUint64(body[:], uint64(i))
				if pub.Send(ctx, body[:8+rand.IntN(len(body)-8)]) != nil {
					return
				}
				for start := time.Now(); i%100 < 20 && time.Since(start) < 400*time.Microsecond; {
				}
			}
		}()
		for _, sub := range subs {
			for i := range n {
				m, err := sub.Recv(ctx)
				must(t, err)
				if got := binary.BigEndian.Uint64(m[0]); got != uint64(i) {
					t.Fatalf("message %d came as number %d", got, i)
				}
			}
		}
	}
}
