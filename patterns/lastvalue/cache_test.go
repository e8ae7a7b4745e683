package lastvalue

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"clustermap/sockets"
)

// TestPrefix: a new subscriber gets the last message of every topic with its prefix, in
// the order of the topics, and then live messages.
func TestPrefix(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	for _, m := range []string{"b2", "a", "b1", "b", "c", "b10", "b1", "a"} {
		r.publish(m, fmt.Sprint("value ", r.sent))
	}
	r.settle()
	for prefix, want := range map[string][]string{
		"":   {"a|value 7", "b|value 3", "b1|value 6", "b10|value 5", "b2|value 0", "c|value 4"},
		"b":  {"b|value 3", "b1|value 6", "b10|value 5", "b2|value 0"},
		"b1": {"b1|value 6", "b10|value 5"},
		"c":  {"c|value 4"},
		"bb": nil,
		"d":  nil,
	} {
		before := r.cache.Stats()
		sub := r.subscriber(prefix)
		r.answered(before.Subscriptions + 1)
		r.publish(prefix+"~", "live")
		r.wants(sub, append(want, prefix+"~|live")...)
		if s := r.cache.Stats(); s.Replayed != before.Replayed+uint64(len(want)) {
			t.Errorf("%q: %d values were sent again", prefix, s.Replayed-before.Replayed)
		}
		// Unsubscribe, for the other prefixes.
		r.cache.mu.Lock()
		r.cache.values.drop(r.cache.values.find([]byte(prefix + "~")))
		r.cache.mu.Unlock()
	}
}

// TestOnlyTheNewSubscriber: the second subscriber of a topic also gets the last value,
// and the first one does not get it again.
func TestOnlyTheNewSubscriber(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	r.publish("topic", "1")
	r.settle()
	var subs []*sockets.Sub
	for n := range uint64(5) {
		subs = append(subs, r.subscriber("topic"))
		r.answered(n + 1)
	}
	r.publish("topic", "2")
	for _, sub := range subs {
		r.wants(sub, "topic|1", "topic|2")
	}
}

// TestFrames: messages have any number of frames, and topics any length, also zero.
func TestFrames(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	long := strings.Repeat("long", 1000)
	messages := [][]string{{""}, {"", "x"}, {"alone"}, {"empty", ""}, {"many", "a", "", "b", long}, {long, long}, {long + "er"}}
	for _, m := range messages {
		r.publish(m...)
	}
	r.settle()
	sub := r.subscriber("")
	r.wants(sub, "|x", "alone", "empty|", long+"|"+long, long+"er", "many|a||b|"+long)
	if m, ok := r.cache.Get("many"); !ok || text(m) != "many|a||b|"+long {
		t.Errorf("Get returns %.20q, %v", m, ok)
	}
	if m, ok := r.cache.Get("none"); ok || m != nil {
		t.Errorf("Get of no topic returns %q", m)
	}
	// Each has its own bytes.
	m, _ := r.cache.Get("empty")
	r.publish("empty", "not any more")
	r.settle()
	if text(m) != "empty|" {
		t.Errorf("a copy became %q", text(m))
	}
}

// TestAgain: every subscription that arrives is answered, also a repeated one. One that
// was cancelled is not.
func TestAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	r.publish("a", "1")
	r.settle()
	sub, err := sockets.NewXSub(sockets.Options{})
	must(t, err)
	t.Cleanup(func() { sub.Close() })
	must(t, sub.Connect(r.endpoint))
	wants := func(want string) {
		t.Helper()
		m, err := sub.Recv(r.ctx)
		must(t, err)
		if text(m) != want {
			t.Fatalf("got %q, want %q", text(m), want)
		}
	}
	for range 3 { // like a device with XPUB_VERBOSE
		must(t, sub.Send(r.ctx, []byte("\x01a")))
		wants("a|1")
	}
	for range 3 { // an XSUB counts them, and sends the last one
		must(t, sub.Send(r.ctx, []byte("\x00a")))
	}
	must(t, sub.Send(r.ctx, []byte("\x01b")))
	r.answered(4)
	r.publish("a", "2")
	r.publish("b", "1")
	wants("b|1")
	// Neither of these is a subscription.
	must(t, sub.Send(r.ctx, []byte("hello"), []byte("\x02a")))
	must(t, sub.Send(r.ctx, nil))
	must(t, sub.Send(r.ctx, []byte("\x01a")))
	wants("a|2")
	if n := r.cache.Stats().Ignored; n != 2 {
		t.Errorf("%d messages were ignored", n)
	}
}

// TestNoGap: subscribers come and go while each topic counts up. From its first value
// of a topic, a subscriber gets all values of the topic, each once.
func TestNoGap(t *testing.T) {
	t.Parallel()
	const topics, subscribers, rounds = 300, 4, 6
	r := newRig(t, Options{})
	counts := make([]int, topics)
	publish := func(n int) {
		counts[n]++
		r.publish(fmt.Sprintf("%03d", n), strconv.Itoa(counts[n]), strings.Repeat("x", rand.IntN(600)))
	}
	for n := range topics {
		publish(n)
	}
	r.settle()
	stop := make(chan struct{})
	var publishing, running sync.WaitGroup
	publishing.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				for range 50 {
					publish(rand.IntN(topics))
				}
				time.Sleep(100 * time.Microsecond)
			}
		}
	})
	for range subscribers {
		running.Go(func() {
			for round := range rounds {
				prefix := fmt.Sprintf("%03d", rand.IntN(topics))[:rand.IntN(4)]
				sub := r.subscriber(prefix)
				seen := map[string]int{}
				for range 100 * (1 + round%4) {
					m, err := sub.Recv(r.ctx)
					if err != nil {
						t.Error(err)
						return
					}
					topic := string(m[0])
					n, _ := strconv.Atoi(string(m[1]))
					if before, ok := seen[topic]; ok && n != before+1 {
						t.Errorf("prefix %q, topic %s: %d after %d", prefix, topic, n, before)
						return
					}
					seen[topic] = n
					if len(prefix) == 3 && len(seen) == 1 && n > 1 {
						break // a single topic has few messages
					}
				}
				sub.Close()
			}
		})
	}
	running.Wait()
	close(stop)
	publishing.Wait()
	eventually(t, "nobody joins any more", func() bool { return r.cache.Stats().Joining == 0 })
}

// TestManyTopics: an answer of several megabytes arrives completely while the topics
// change, and no value is older than one that arrived before.
func TestManyTopics(t *testing.T) {
	t.Parallel()
	const topics = 6000
	r := newRig(t, Options{})
	value := strings.Repeat("v", 200)
	for n := range topics {
		r.publish(fmt.Sprintf("%05d", n), "0", value)
	}
	r.settle()
	sub := r.subscriber("")
	latest := make(map[string]int, topics)
	for round := 1; len(latest) < topics; round++ {
		r.publish(fmt.Sprintf("%05d", rand.IntN(topics)), strconv.Itoa(round), value)
		for range 40 {
			m, err := sub.Recv(r.ctx)
			must(t, err)
			n, _ := strconv.Atoi(string(m[1]))
			if before, ok := latest[string(m[0])]; ok && n <= before {
				t.Fatalf("topic %s: %d after %d", m[0], n, before)
			}
			if latest[string(m[0])] = n; len(latest) == topics {
				break
			}
		}
	}
}

// TestManySubscriptions: a subscriber with thousands of subscriptions gets the last
// values of all of them, except those that it cancels meanwhile.
func TestManySubscriptions(t *testing.T) {
	t.Parallel()
	const topics = 2000
	r := newRig(t, Options{})
	for n := range topics {
		r.publish(fmt.Sprintf("%04d", n))
	}
	r.settle()
	sub := r.subscriber()
	for n := range topics {
		must(t, sub.Subscribe(fmt.Sprintf("%04d", n)))
	}
	for n := range topics {
		r.wants(sub, fmt.Sprintf("%04d", n))
	}
	r.answered(topics)
}

// TestSlowSubscriber: a subscriber that does not read holds one chunk of last values.
// When live messages exceed its high-water mark, it is disconnected. It gets the last
// values when it reconnects.
func TestSlowSubscriber(t *testing.T) {
	t.Parallel()
	const topics = 200
	r := newRig(t, Options{Subscribers: sockets.Options{SendHWMBytes: 2 << 20, SendBuffer: 32 << 10}})
	value := strings.Repeat("v", 48<<10)
	for n := range topics {
		r.publish(fmt.Sprintf("%03d", n), "old", value)
	}
	r.settle()
	o := sockets.Options{RecvHWMBytes: 1, RecvHWM: 1, RecvBuffer: 32 << 10, ReconnectInterval: time.Millisecond}
	slow := r.subscriberWith(o, "")
	other := r.subscriber("1")
	// There are 10 MB to send. The subscriber and the system buffer some, and the cache
	// one chunk.
	eventually(t, "the last values are on their way", func() bool { return r.cache.Stats().Replayed > topics/5 })
	for range topics / 2 { // it does not delay a subscriber that reads
		_, err := other.Recv(r.ctx)
		must(t, err)
	}
	eventually(t, "only one joins", func() bool { return r.cache.Stats().Joining == 1 })
	for _, p := range r.cache.Subscribers() {
		if p.QueuedBytes > 2*chunkBytes+len(value) {
			t.Errorf("%d bytes are queued for a subscriber", p.QueuedBytes)
		}
	}
	if n := r.cache.Stats().Replayed; n > topics*3/2 {
		t.Errorf("%d values were sent to a subscriber that does not read", n)
	}
	for n := range topics {
		r.publish(fmt.Sprintf("%03d", n), "new", value)
	}
	eventually(t, "the subscriber is disconnected", func() bool {
		return len(r.cache.Subscribers()) == 1 || r.cache.Stats().Subscriptions >= 3
	})
	got := map[string]bool{}
	for len(got) < topics {
		m, err := slow.Recv(r.ctx)
		must(t, err)
		if string(m[1]) == "new" {
			got[string(m[0])] = true
		}
	}
}

// TestUnsubscribeMeanwhile: an unsubscription ends the answer.
func TestUnsubscribeMeanwhile(t *testing.T) {
	t.Parallel()
	const topics = 300
	r := newRig(t, Options{Subscribers: sockets.Options{SendBuffer: 32 << 10}})
	value := strings.Repeat("v", 32<<10)
	for n := range topics {
		r.publish(fmt.Sprintf("a%03d", n), value)
	}
	r.settle()
	sub := r.subscriberWith(sockets.Options{RecvHWMBytes: 1, RecvHWM: 1, RecvBuffer: 32 << 10}, "a")
	eventually(t, "the last values are on their way", func() bool { return r.cache.Stats().Replayed > 0 })
	must(t, sub.Unsubscribe("a"))
	must(t, sub.Subscribe("b"))
	eventually(t, "the unsubscription has come", func() bool { return r.cache.Stats().Subscriptions == 2 })
	r.publish("b", "end")
	if n := len(r.upTo(sub, "b|end")); n >= topics {
		t.Errorf("%d values came", n)
	}
	r.answered(2)
	r.publish("b", "more")
	r.publish("a", "no")
	r.publish("b", "last")
	r.wants(sub, "b|more", "b|last")

	// So does a disconnection.
	gone := r.subscriberWith(sockets.Options{RecvHWMBytes: 1, RecvHWM: 1, RecvBuffer: 32 << 10}, "a")
	eventually(t, "it joins", func() bool { return r.cache.Stats().Joining == 1 })
	must(t, gone.Close())
	eventually(t, "it has gone", func() bool { return r.cache.Stats().Joining == 0 && len(r.cache.Subscribers()) == 1 })
	eventually(t, "its subscriptions too", func() bool { return r.cache.out.Subscriptions() == 1 })
}

// TestExpiry: a topic that is not updated expires; one that is updated does not.
func TestExpiry(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{Expiry: 50 * time.Millisecond})
	r.publish("once", "1")
	r.settle()
	eventually(t, "it is forgotten", func() bool {
		_, ok := r.cache.Get("once")
		return !ok
	})
	if s := r.cache.Stats(); s.Topics != 0 || s.Bytes != 0 || s.Expired != 1 {
		t.Errorf("%+v", s)
	}
	sub := r.subscriber("")
	r.answered(1)
	r.publish("once", "2")
	r.wants(sub, "once|2")
}

// TestForeignPublishers: a cache connects to some publishers and others connect to it.
// Last values outlive their publishers.
func TestForeignPublishers(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	endpoint, err := r.cache.BindPublisher(r.ctx, anyPort)
	must(t, err)
	other, err := sockets.NewPub(sockets.Options{})
	must(t, err)
	must(t, other.Connect(endpoint))
	must(t, other.WaitSubscribers(r.ctx, "", 1))
	must(t, other.Send(r.ctx, frames("other", "1")...))
	r.sent++
	r.publish("first", "1")
	r.settle()
	must(t, other.Close())
	must(t, r.pub.Close())
	eventually(t, "the publishers have gone", func() bool {
		for _, p := range r.cache.Publishers() {
			if p.Connected {
				return false
			}
		}
		return true
	})
	r.wants(r.subscriber(""), "first|1", "other|1")
}

// TestOptions: all options that would break the guarantees are reported at once.
func TestOptions(t *testing.T) {
	t.Parallel()
	_, err := New(Options{
		MaxTopics: -1, MaxBytes: -1, Expiry: -1,
		Publisher:   sockets.Options{Conflate: true, InvertMatching: true},
		Subscribers: sockets.Options{InvertMatching: true, WaitSubscriber: true, FullPolicy: sockets.PolicyBlock},
	})
	for _, field := range []string{
		"MaxTopics", "MaxBytes", "Expiry", "Publisher.Conflate", "Publisher.InvertMatching",
		"Subscribers.InvertMatching", "Subscribers.WaitSubscriber", "Subscribers.FullPolicy",
	} {
		if err == nil || !strings.Contains(err.Error(), "option "+field+": ") {
			t.Errorf("no error for %s: %v", field, err)
		}
	}
	if _, ok := errors.AsType[*OptionError](err); !ok {
		t.Errorf("%T", err)
	}
	if _, err := New(Options{Subscribers: sockets.Options{SendBuffer: -1}}); err == nil {
		t.Error("options of a socket are not checked")
	}
	if _, err := New(Options{Publisher: sockets.Options{SendBuffer: -1}}); err == nil {
		t.Error("options of a socket are not checked")
	}
}
