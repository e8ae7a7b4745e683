package espresso

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"clustermap/internal/testenv"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// A tap between publishers and subscribers shows subscriptions, messages and
// unsubscriptions, each with its direction, topic, size, frames and time.
func TestPubSub(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	front, back := bound(t, sockets.NewXSub, sockets.Options{}), bound(t, sockets.NewXPub, sockets.Options{})
	tap, _ := running(t, front, back, Options{})
	o := tap.Observe(Filter{})
	t.Cleanup(o.Close)
	begun := time.Now()
	sub := connected(t, sockets.NewSub, sockets.Options{}, back)
	must(t, sub.Subscribe("top"))
	if e := next(t, o); e.Op != OpSubscribe || e.From != DirectionFromBackend || string(e.Topic()) != "top" || len(e.Frames) != 1 {
		t.Errorf("%+v", e)
	}
	pub := connected(t, sockets.NewPub, sockets.Options{}, front)
	must(t, pub.WaitSubscribers(ctx, "topic", 1))
	for i := range 10 {
		must(t, pub.Send(ctx, []byte("other")))
		must(t, pub.Send(ctx, []byte("topic"), []byte{1, byte(i)}, bytes.Repeat([]byte("x"), i*100)))
		m, err := sub.Recv(ctx)
		must(t, err)
		e := next(t, o)
		if e.Op != OpMessage || e.From != DirectionFromFrontend || string(e.Topic()) != "topic" || e.Size() != 7+i*100 || e.Envelope != 0 || fmt.Sprint(e.Frames) != fmt.Sprint([][]byte(m)) {
			t.Errorf("%+v", e)
		}
		if e.Time.Before(begun.Add(-time.Second)) || e.Time.After(time.Now().Add(time.Second)) {
			t.Errorf("at %v", e.Time)
		}
	}
	must(t, sub.Unsubscribe("top"))
	if e := next(t, o); e.Op != OpUnsubscribe || e.From != DirectionFromBackend || string(e.Topic()) != "top" {
		t.Errorf("%+v", e)
	}
	if s := o.Stats(); s.Messages != 12 || s.Lost != 0 {
		t.Errorf("%+v", s)
	}
	if s := tap.Stats(); s.FrontendIn.Messages != 10 || s.BackendIn.Messages != 2 {
		t.Errorf("%+v", s)
	}
}

// Between clients and services, the topic is the first frame after the envelope.
func TestReqRep(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	front, back := bound(t, sockets.NewRouter, sockets.Options{}), bound(t, sockets.NewDealer, sockets.Options{})
	tap, end := running(t, front, back, Options{})
	o := tap.Observe(Filter{})
	t.Cleanup(o.Close)
	service := connected(t, sockets.NewRep, sockets.Options{}, back)
	client := connected(t, sockets.NewReq, sockets.Options{Identity: []byte("me")}, front)
	must(t, client.Send(ctx, []byte("sum"), []byte("1"), []byte("2")))
	_, err := service.Recv(ctx)
	must(t, err)
	must(t, service.Send(ctx, []byte("3")))
	_, err = client.Recv(ctx)
	must(t, err)
	if e := next(t, o); e.From != DirectionFromFrontend || e.Envelope != 2 || string(e.Topic()) != "sum" || string(e.Frames[0]) != "me" || len(e.Frames) != 5 {
		t.Errorf("%+v", e)
	}
	if e := next(t, o); e.From != DirectionFromBackend || e.Envelope != 2 || string(e.Topic()) != "3" {
		t.Errorf("%+v", e)
	}
	// Without an empty frame, the envelope is the identity.
	dealer := connected(t, sockets.NewDealer, sockets.Options{}, front)
	must(t, dealer.Send(ctx, []byte("bare")))
	if e := next(t, o); e.Envelope != 1 || string(e.Topic()) != "bare" {
		t.Errorf("%+v", e)
	}
	end()
	if err := o.Next(ctx, new(Event)); err != io.EOF {
		t.Errorf("after the end: %v", err)
	}
}

// The meaning of a message depends on the types of the sockets.
func TestInterpret(t *testing.T) {
	t.Parallel()
	pubsub := Ends{zmtp.TypeXSub, zmtp.TypeXPub}
	reqrep := Ends{zmtp.TypeRouter, zmtp.TypeDealer}
	pipeline := Ends{zmtp.TypePull, zmtp.TypePush}
	for _, c := range []struct {
		ends     Ends
		from     Direction
		frames   string // with commas between
		op       Op
		topic    string
		envelope int
	}{
		{pubsub, DirectionFromFrontend, "\x01A", OpMessage, "\x01A", 0},
		{pubsub, DirectionFromBackend, "\x01A", OpSubscribe, "A", 0},
		{pubsub, DirectionFromBackend, "\x00", OpUnsubscribe, "", 0},
		{pubsub, DirectionFromBackend, "\x02A", OpMessage, "\x02A", 0},
		{pubsub, DirectionFromBackend, "", OpMessage, "", 0},
		{Ends{zmtp.TypeXPub, zmtp.TypeXSub}, DirectionFromFrontend, "\x01A", OpSubscribe, "A", 0},
		{reqrep, DirectionFromFrontend, "id,,A,B", OpMessage, "A", 2},
		{reqrep, DirectionFromFrontend, "id,id,,A", OpMessage, "A", 3},
		{reqrep, DirectionFromFrontend, "id,A", OpMessage, "A", 1},
		{reqrep, DirectionFromFrontend, "id", OpMessage, "", 1},
		{reqrep, DirectionFromFrontend, "id,", OpMessage, "", 2},
		{reqrep, DirectionFromBackend, "id,,A", OpMessage, "A", 2},
		{Ends{zmtp.TypeDealer, zmtp.TypeDealer}, DirectionFromFrontend, "A,B", OpMessage, "A", 0},
		{pipeline, DirectionFromFrontend, "A,,B", OpMessage, "A", 0},
	} {
		e := Event{From: c.from}
		for f := range strings.SplitSeq(c.frames, ",") {
			e.Frames = append(e.Frames, []byte(f))
		}
		c.ends.interpret(&e)
		if e.Op != c.op || string(e.Topic()) != c.topic || e.Envelope != c.envelope {
			t.Errorf("%q from the %v of %v: %v, topic %q, envelope %d", c.frames, c.from, c.ends, e.Op, e.Topic(), e.Envelope)
		}
	}
}

// pipeline is a tap in a pipeline, and its two ends.
type pipeline struct {
	tap  *Tap
	end  func()
	push *sockets.Push
	pull *sockets.Pull
}

func newPipeline(t testing.TB, o Options) *pipeline {
	t.Helper()
	front, back := bound(t, sockets.NewPull, sockets.Options{}), bound(t, sockets.NewPush, sockets.Options{})
	p := &pipeline{}
	p.tap, p.end = running(t, front, back, o)
	p.push = connected(t, sockets.NewPush, sockets.Options{}, front)
	p.pull = connected(t, sockets.NewPull, sockets.Options{}, back)
	return p
}

// pass sends messages through the tap and receives them.
func (p *pipeline) pass(t testing.TB, messages ...string) {
	t.Helper()
	ctx := testContext(t)
	for _, m := range messages {
		must(t, p.push.Send(ctx, []byte(m)))
	}
	for _, m := range messages {
		got, err := p.pull.Recv(ctx)
		must(t, err)
		if len(got) != 1 || string(got[0]) != m {
			t.Fatalf("%q came, want %q", got, m)
		}
	}
}

// Each observer has its own filter, by topic prefix and direction.
func TestFilter(t *testing.T) {
	t.Parallel()
	p := newPipeline(t, Options{})
	all := p.tap.Observe(Filter{})
	some := p.tap.Observe(Filter{Topics: []string{"A", "BB"}, From: DirectionFromFrontend})
	none := p.tap.Observe(Filter{From: DirectionFromBackend})
	p.pass(t, "A1", "B1", "BB1", "C1", "", "A2")
	p.end()
	for name, c := range map[string]struct {
		o    *Observer
		want string
	}{"all": {all, "[A1 B1 BB1 C1  A2]"}, "some": {some, "[A1 BB1 A2]"}, "none": {none, "[]"}} {
		got := []string{}
		var e Event
		for {
			err := c.o.Next(t.Context(), &e)
			if err == io.EOF {
				break
			}
			must(t, err)
			got = append(got, string(e.Topic()))
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%s: %q, want %s", name, got, c.want)
		}
	}
}

// An observer that does not read never delays the traffic: messages for which its queue
// has no room are forwarded and counted, and it learns their number when it reads again.
func TestStalledObserver(t *testing.T) {
	t.Parallel()
	p := newPipeline(t, Options{Queue: 4 << 10})
	stalled := p.tap.Observe(Filter{})
	t.Cleanup(stalled.Close)
	const messages, size = 1000, 100
	for i := range messages {
		p.pass(t, fmt.Sprintf("%0*d", size, i))
	}
	var e Event
	heard, lost, lostBytes := 0, uint64(0), uint64(0)
	for ctx := testContext(t); uint64(heard)+lost < messages; {
		must(t, stalled.Next(ctx, &e))
		if e.Op == OpLost {
			lost, lostBytes = lost+e.Lost, lostBytes+e.LostBytes
		} else if heard++; string(e.Topic()) != fmt.Sprintf("%0*d", size, heard-1) {
			t.Fatalf("message %d is %q", heard, e.Topic())
		}
	}
	if want := (4 << 10) / (size + 2 + recordHead + bodyHead); heard != want || lostBytes != lost*(size+2) {
		t.Errorf("%d messages, %d lost, %d bytes of them; want %d messages", heard, lost, lostBytes, want)
	}
	if s := stalled.Stats(); s.Messages != uint64(heard) || s.Lost != lost || s.LostBytes != lostBytes {
		t.Errorf("%+v", s)
	}
	// It continues with new messages.
	p.pass(t, "now")
	if e := next(t, stalled); string(e.Topic()) != "now" {
		t.Errorf("%+v", e)
	}
	// A loss between two queued messages is reported between them.
	p.pass(t, "first", strings.Repeat("x", 5000), "last")
	for i, want := range []Op{OpMessage, OpLost, OpMessage} {
		if e := next(t, stalled); e.Op != want || want == OpLost && (e.Lost != 1 || e.LostBytes != 5009) {
			t.Errorf("event %d: %+v", i, e)
		}
	}
}

// Observers come and go while messages are forwarded, and end properly.
func TestObserversComeAndGo(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	p := newPipeline(t, Options{})
	first := p.tap.Observe(Filter{})
	p.pass(t, "1")
	second := p.tap.Observe(Filter{})
	p.pass(t, "2")
	for i, want := range []string{"1", "2"} {
		if e := next(t, first); string(e.Topic()) != want {
			t.Errorf("event %d: %q", i, e.Topic())
		}
	}
	if e := next(t, second); string(e.Topic()) != "2" {
		t.Errorf("%q", e.Topic())
	}
	waiting := make(chan error)
	go func() { waiting <- first.Next(ctx, new(Event)) }()
	first.Close()
	if err := <-waiting; !errors.Is(err, ErrClosed) {
		t.Errorf("a closed observer: %v", err)
	}
	first.Close()
	short, cancel := context.WithCancel(ctx)
	cancel()
	if err := second.Next(short, new(Event)); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v", err)
	}
	p.pass(t, "3")
	p.end()
	if e := next(t, second); string(e.Topic()) != "3" {
		t.Errorf("%q", e.Topic())
	}
	for _, o := range []*Observer{second, p.tap.Observe(Filter{})} {
		if err := o.Next(ctx, new(Event)); err != io.EOF {
			t.Errorf("after the end: %v", err)
		}
	}
}

// With two directions at once, the times of an observer's events never decrease, and the
// messages of each direction are in order.
func TestTimesNeverDecrease(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	front, back := bound(t, sockets.NewPair, sockets.Options{}), bound(t, sockets.NewPair, sockets.Options{})
	tap, _ := running(t, front, back, Options{})
	o := tap.Observe(Filter{})
	t.Cleanup(o.Close)
	a, b := connected(t, sockets.NewPair, sockets.Options{}, front), connected(t, sockets.NewPair, sockets.Options{}, back)
	const n = 2000
	sent := make(chan error, 4)
	for from, to := range map[*sockets.Pair]*sockets.Pair{a: b, b: a} {
		go func() {
			for i := range n {
				if err := from.Send(ctx, fmt.Append(nil, i)); err != nil {
					sent <- err
					return
				}
			}
			sent <- nil
		}()
		go func() {
			for range n {
				if _, err := to.Recv(ctx); err != nil {
					sent <- err
					return
				}
			}
			sent <- nil
		}()
	}
	count := map[Direction]int{}
	var last time.Time
	var e Event
	for range 2 * n {
		must(t, o.Next(ctx, &e))
		if string(e.Topic()) != fmt.Sprint(count[e.From]) || e.Time.Before(last) {
			t.Fatalf("%v after %v: message %q of the %v, want %d", e.Time, last, e.Topic(), e.From, count[e.From])
		}
		count[e.From]++
		last = e.Time
	}
	for range 4 {
		must(t, <-sent)
	}
	// As if the other direction had received a later message meanwhile.
	later := last.Add(time.Hour)
	o.mu.Lock()
	o.last = later.UnixNano()
	o.mu.Unlock()
	must(t, a.Send(ctx, nil))
	if e := next(t, o); !e.Time.Equal(later) {
		t.Errorf("an event at %v after one at %v", e.Time, later)
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	front, back := open(t, sockets.NewPull, sockets.Options{}), open(t, sockets.NewPush, sockets.Options{})
	for _, queue := range []int{-1, 1, minQueue - 1} {
		var wrong *OptionError
		if _, err := NewTap(front, back, Options{Queue: queue}); !errors.As(err, &wrong) || wrong.Field != "Queue" {
			t.Errorf("a queue of %d: %v", queue, err)
		}
	}
	if _, err := NewTap(back, back, Options{}); !errors.Is(err, sockets.ErrCannotForward) {
		t.Errorf("two PUSH: %v", err)
	}
}

// Copying and reading messages does not allocate once the buffers have grown.
func TestAllocTap(t *testing.T) {
	ctx := testContext(t)
	front, back := bound(t, sockets.NewXSub, sockets.Options{}), bound(t, sockets.NewXPub, sockets.Options{})
	tap, _ := running(t, front, back, Options{})
	all, some := tap.Observe(Filter{From: DirectionFromFrontend}), tap.Observe(Filter{From: DirectionFromFrontend, Topics: []string{"topic"}})
	t.Cleanup(all.Close)
	t.Cleanup(some.Close)
	sub := connected(t, sockets.NewSub, sockets.Options{}, back)
	must(t, sub.Subscribe(""))
	pub := connected(t, sockets.NewPub, sockets.Options{}, front)
	must(t, pub.WaitSubscribers(ctx, "topic", 1))
	message := [][]byte{[]byte("topic"), make([]byte, 300)}
	var b sockets.Batch
	defer b.Release()
	var e Event
	round := func() {
		for range 50 {
			must(t, pub.Send(ctx, message...))
		}
		for n := 0; n < 50; n += b.Len() {
			must(t, sub.RecvBatch(ctx, &b))
		}
		for range 50 {
			must(t, all.Next(ctx, &e))
			must(t, some.Next(ctx, &e))
		}
	}
	if n := testenv.Allocs(200, 500, round); n != 0 {
		t.Errorf("50 messages allocate %v times", n)
	}
}
