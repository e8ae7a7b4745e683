package binarystar

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"clustermap/internal/election"
	"clustermap/internal/testenv"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// TestTimeoutForever: a time-out as long as can be is never over.
func TestTimeoutForever(t *testing.T) {
	t.Parallel()
	o, err := Options{Role: RolePrimary, Bind: "x", Peer: "y", Timeout: math.MaxInt64}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	m := election.NewMachine(o.Role, o.Timeout, 0, 0).Hear(time.Hour, election.Candidate{Role: RoleBackup, State: StateBackup})
	if m.Silent(2 * time.Hour) {
		t.Error("the peer is silent")
	}
}

// TestStart: if two nodes start, in either order and without votes, the primary becomes
// active.
func TestStart(t *testing.T) {
	t.Parallel()
	for first := range 2 {
		c := newCouple(t, func(o *Options) { o.Timeout = hang })
		c.start(first)
		if accept, err := c.nodes[first].Vote(testContext(t)); accept || err != nil {
			t.Errorf("a vote before the time-out: %v, %v", accept, err)
		}
		c.start(1 - first)
		c.settled(0)
		if p := c.nodes[1].Peer(); p.Guide || p.Epoch != 1 || p.SameRole || time.Since(p.Heard) > hang {
			t.Errorf("the peer is %+v", p)
		}
		elect(t, c.nodes[0])
		if accept, err := c.nodes[1].Vote(testContext(t)); accept || err != nil {
			t.Errorf("a vote for the passive one: %v, %v", accept, err)
		}
	}
}

// TestAlone: a primary without a peer serves after the time-out, a backup never.
func TestAlone(t *testing.T) {
	t.Parallel()
	c := newCouple(t, nil)
	elect(t, c.start(0))
	c.kill(0)
	backup := c.start(1)
	for range 3 {
		elect(t, newCouple(t, nil).start(0)) // as long as it takes until a primary serves
		if accept, err := backup.Vote(testContext(t)); accept || err != nil {
			t.Fatalf("a backup that never had a peer: %v, %v", accept, err)
		}
	}
}

// TestFailover: after a kill the passive node takes over by a vote. The other node follows
// when it is restarted, and takes over in turn.
func TestFailover(t *testing.T) {
	t.Parallel()
	c := newCouple(t, nil)
	c.both()
	active := 0
	for reign := uint64(2); reign <= 4; reign++ {
		c.kill(active)
		active = 1 - active
		elect(t, c.nodes[active])
		if s := c.nodes[active].Status(); s.Epoch != reign || s.Reason != ReasonPeerSilent {
			t.Errorf("took over: %+v", s)
		}
		c.start(1 - active)
		c.settled(active)
	}
}

// TestVotelessFailover: with Voteless, silence is enough.
func TestVotelessFailover(t *testing.T) {
	t.Parallel()
	c := newCouple(t, func(o *Options) { o.Voteless = true })
	c.start(0)
	c.start(1)
	for range 2 {
		// On a slow machine there may be other failovers.
		active := c.anySettled()
		c.kill(active)
		eventually(t, "the other one takes over", func() bool { return c.nodes[1-active].State() == StateActive })
		c.start(active)
	}
	c.anySettled()
}

// TestNoVoteNoFailover: silence alone is not enough.
func TestNoVoteNoFailover(t *testing.T) {
	t.Parallel()
	c := newCouple(t, nil)
	_, backup := c.both()
	c.kill(0)
	eventually(t, "the backup misses its peer", func() bool { return !backup.Peer().Alive })
	other := newCouple(t, nil) // where a vote comes
	_, votes := other.both()
	other.kill(0)
	elect(t, votes)
	if s := backup.State(); s != StatePassive {
		t.Errorf("without a vote: %v", s)
	}
}

// TestSplitBrain: while the link is down both nodes serve; when it is restored, the newer
// reign continues, and no node ends.
func TestSplitBrain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		apart func(l *link, apart bool)
		links []int
	}{
		{"cut", (*link).setCut, []int{0, 1}},
		{"hole", func(l *link, apart bool) { l.setHole(apart) }, []int{0, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			pair := newCouple(t, nil)
			primary, backup := pair.both()
			for _, i := range c.links {
				c.apart(pair.hears[i], true)
			}
			elect(t, backup)
			if primary.State() != StateActive || primary.Epoch() != 1 || backup.Epoch() != 2 {
				t.Errorf("apart: %+v, %+v", primary.Status(), backup.Status())
			}
			for _, i := range c.links {
				c.apart(pair.hears[i], false)
			}
			pair.settled(1)
			if s := primary.Status(); s.Reason != ReasonPeerNewer || s.Epoch != 2 {
				t.Errorf("the older reign: %+v", s)
			}
		})
	}
}

// TestEqualReigns: of two reigns with the same number the primary's continues, with a
// higher number.
func TestEqualReigns(t *testing.T) {
	t.Parallel()
	c := newCouple(t, nil)
	_, backup := c.both()
	c.hears[0].setCut(true)
	c.hears[1].setCut(true)
	elect(t, backup) // reign 2
	c.kill(0)
	c.opts[0].Epoch = 1
	primary := c.start(0)
	elect(t, primary) // reign 2 as well
	c.hears[0].setCut(false)
	c.hears[1].setCut(false)
	c.settled(0)
	if primary.Epoch() < 3 || backup.Epoch() < 3 {
		t.Errorf("epochs %d, %d", primary.Epoch(), backup.Epoch())
	}
}

// TestDeaf: if the passive node does not hear the active one, but is heard, the active one
// becomes passive as soon as the other one gets a vote.
func TestDeaf(t *testing.T) {
	t.Parallel()
	c := newCouple(t, nil)
	primary, backup := c.both()
	c.hears[1].setCut(true)
	elect(t, backup)
	eventually(t, "the primary yields", func() bool { return primary.State() == StatePassive })
	c.hears[1].setCut(false)
	c.settled(1)
}

// TestHandover: the peer takes over without a vote or silence, in both directions.
func TestHandover(t *testing.T) {
	t.Parallel()
	// With this time-out no peer becomes silent.
	c := newCouple(t, func(o *Options) { o.Timeout = hang })
	c.both()
	for active := range 4 {
		active %= 2
		if err := c.nodes[1-active].Handover(testContext(t)); !errors.Is(err, ErrNotActive) {
			t.Errorf("from the passive: %v", err)
		}
		if err := c.nodes[active].Handover(testContext(t)); err != nil {
			t.Fatal(err)
		}
		if s := c.nodes[active].State(); s != StatePassive {
			t.Errorf("afterwards: %v", s)
		}
		c.settled(1 - active)
	}
	if e := c.nodes[0].Epoch(); e != 5 {
		t.Errorf("epoch %d after four handovers", e)
	}
}

// TestHandoverInVain: there is no peer, or it does not hear the handover.
func TestHandoverInVain(t *testing.T) {
	t.Parallel()
	c := newCouple(t, func(o *Options) { o.Timeout = 3 * time.Second })
	primary, _ := c.both()

	c.hears[1].setCut(true) // the backup hears nothing
	ctx, cancel := context.WithTimeout(testContext(t), 5*c.opts[0].Interval)
	defer cancel()
	if err := primary.Handover(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a handover that is not heard: %v", err)
	}
	if s := primary.State(); s != StateYielding {
		t.Errorf("after that: %v", s)
	}
	c.kill(1)
	elect(t, primary) // the peer is silent by now
	if err := primary.Handover(testContext(t)); !errors.Is(err, ErrNoSuccessor) {
		t.Errorf("a handover to nobody: %v", err)
	}
	c.hears[1].setCut(false)
	c.start(1)
	c.settled(0)
}

// TestCompare: of two nodes that start, the one with the larger payload becomes active in
// either role; and each sees the other's payload.
func TestCompare(t *testing.T) {
	t.Parallel()
	var loads [2]atomic.Pointer[string]
	c := newCouple(t, func(o *Options) {
		load := &loads[o.Role-RolePrimary]
		s := o.Role.String()
		load.Store(&s)
		o.Payload = func() []byte { return []byte(*load.Load()) }
		// "backup" sorts before "primary": the smaller payload is better.
		o.Compare = func(own, peer []byte) int { return -bytes.Compare(own, peer) }
	})
	c.start(0)
	c.start(1)
	c.settled(1)
	later := strings.Repeat("x", 2*MaxPayload)
	loads[1].Store(&later)
	eventually(t, "the payload is told, cut off", func() bool { return string(c.nodes[0].Peer().Payload) == later[:MaxPayload] })
}

// TestActiveStopsForPeerWithMoreData: a node that returns with data which the active one lacks becomes
// active after that has stopped. What the active one accepts until then counts: if that is more, it goes on.
func TestActiveStopsForPeerWithMoreData(t *testing.T) {
	t.Parallel()
	for _, accepts := range []bool{false, true} { // something until Stop
		var accepting [2]atomic.Bool
		var load, stopped atomic.Int64
		c := newCouple(t, func(o *Options) {
			i := o.Role - RolePrimary
			o.Compare = func(own, peer []byte) int { return cmp.Compare(own[0], peer[0]) }
			o.Payload = func() []byte {
				if i == 1 {
					return []byte{5}
				}
				return []byte{byte(load.Load())}
			}
			o.Stop = func(epoch uint64) {
				if accepts && i == 0 {
					load.Store(9)
				}
				accepting[i].Store(false)
				stopped.Store(int64(epoch))
			}
			o.StoreEpoch = func(uint64) error { // before the node is active
				if i == 1 && accepting[0].Load() {
					t.Error("the backup becomes active while the primary accepts")
				}
				return nil
			}
		})
		primary := c.start(0)
		elect(t, primary)
		accepting[0].Store(true)
		c.start(1)
		eventually(t, "the primary stops", func() bool { return stopped.Load() == 1 })
		c.settled(map[bool]int{false: 1, true: 0}[accepts])
	}
}

// TestStoreEpoch: each epoch is stored before the peer hears it, and a node that cannot
// store one ends.
func TestStoreEpoch(t *testing.T) {
	t.Parallel()
	var stored [2]atomic.Uint64
	var fail atomic.Bool
	c := newCouple(t, func(o *Options) {
		i := o.Role - RolePrimary
		o.StoreEpoch = func(epoch uint64) error {
			if i == 1 && fail.Load() {
				return errTest
			}
			if epoch <= stored[i].Load() {
				t.Errorf("%v: epoch %d after %d", o.Role, epoch, stored[i].Load())
			}
			stored[i].Store(epoch)
			return nil
		}
	})
	c.opts[0].Epoch = 6
	stored[0].Store(6)
	_, backup := c.both()
	if a, b := stored[0].Load(), stored[1].Load(); a != 7 || b != 7 {
		t.Errorf("stored %d and %d", a, b)
	}
	fail.Store(true)
	c.kill(0)
	eventually(t, "the vote fails", func() bool {
		accept, err := backup.Vote(testContext(t))
		if accept {
			t.Fatal("active without an epoch")
		}
		return errors.Is(err, errTest) && errors.Is(err, ErrClosed)
	})
	<-backup.Done()
	if err := backup.Err(); !errors.Is(err, errTest) || backup.State() != StatePassive {
		t.Errorf("%v, %v", backup.State(), err)
	}
}

// TestSubscription: a subscriber that does not read blocks nothing, then gets the newest
// status, and can detect that it missed others.
func TestSubscription(t *testing.T) {
	t.Parallel()
	c := newCouple(t, func(o *Options) { o.Timeout = hang })
	primary := c.start(0)
	s, err := primary.Subscribe()
	if err != nil {
		t.Fatal(err)
	}
	first := <-s.C()
	if first.State != StatePrimary || first.Changes != 0 || first.Reason != ReasonStarted {
		t.Errorf("first: %+v", first)
	}
	c.start(1)
	c.settled(0)
	for active := range 4 {
		if err := c.nodes[active%2].Handover(testContext(t)); err != nil {
			t.Fatal(err)
		}
		c.settled(1 - active%2)
	}
	eventually(t, "the newest status comes", func() bool {
		got := <-s.C()
		return got.State == StateActive && got.Epoch == 5 && got.Changes > 5
	})
	extra, err := primary.Subscribe()
	if err != nil {
		t.Fatal(err)
	}
	extra.Close()
	extra.Close()
	for range extra.C() {
	}
	primary.Close()
	for range s.C() {
	}
	s.Close()
	if _, err := primary.Subscribe(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Subscribe after Close: %v", err)
	}
}

// TestClosed: all methods of a closed node return, and waiting calls end.
func TestClosed(t *testing.T) {
	t.Parallel()
	c := newCouple(t, func(o *Options) { o.Timeout = hang })
	primary, _ := c.both()
	c.hears[1].setCut(true)
	waiting := make(chan error)
	go func() { waiting <- primary.Handover(context.Background()) }()
	eventually(t, "it yields", func() bool { return primary.State() == StateYielding })
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() { primary.Close() })
	}
	all.Wait()
	if err := <-waiting; !errors.Is(err, ErrClosed) {
		t.Errorf("Handover: %v", err)
	}
	if err := primary.Handover(testContext(t)); !errors.Is(err, ErrClosed) {
		t.Errorf("Handover after Close: %v", err)
	}
	if _, err := primary.Vote(testContext(t)); !errors.Is(err, ErrClosed) {
		t.Errorf("Vote after Close: %v", err)
	}
	if err := primary.Err(); err != nil {
		t.Errorf("Err after Close: %v", err)
	}
	<-primary.Done()
}

// TestShortForm: a subscriber that does not announce X-BSTAR gets only the guide's form.
func TestShortForm(t *testing.T) {
	t.Parallel()
	c := newCouple(t, nil)
	c.both()
	for _, topic := range []string{"", "3", "B"} {
		sub, err := sockets.NewSub(sockets.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Close()
		if err := sub.Subscribe(topic); err != nil {
			t.Fatal(err)
		}
		if err := sub.Connect(c.nodes[0].Endpoint()); err != nil {
			t.Fatal(err)
		}
		if topic == "B" {
			ctx, cancel := context.WithTimeout(context.Background(), 10*c.opts[0].Interval)
			defer cancel()
			if m, err := sub.Recv(ctx); err == nil {
				t.Errorf("subscribed to the long form: %q", m)
			}
			continue
		}
		for range 5 {
			m, err := sub.Recv(testContext(t))
			if err != nil {
				t.Fatal(err)
			}
			if len(m) != 1 || string(m[0]) != "3" {
				t.Errorf("received %q", m)
			}
		}
	}
}

// TestWrongProgram: if another program uses the peer's endpoint for a time, the node finds
// its peer afterwards. Invalid messages are counted.
func TestWrongProgram(t *testing.T) {
	t.Parallel()
	c := newCouple(t, nil)
	push, err := sockets.NewPush(sockets.Options{Linger: sockets.LingerNone})
	if err != nil {
		t.Fatal(err)
	}
	defer push.Close()
	if err := push.Bind(testContext(t), "tcp://127.0.0.1:*"); err != nil {
		t.Fatal(err)
	}
	c.hears[0].lead(push.LastEndpoint())
	failed := make(chan struct{}, 1)
	c.opts[0].Monitor = func(e sockets.Event) {
		if e.Kind == sockets.EventHandshakeFailed {
			select {
			case failed <- struct{}{}:
			default:
			}
		}
	}
	primary := c.start(0)
	<-failed

	pub, err := sockets.NewPub(sockets.Options{Linger: sockets.LingerNone})
	if err != nil {
		t.Fatal(err)
	}
	defer pub.Close()
	if err := pub.Bind(testContext(t), "tcp://127.0.0.1:*"); err != nil {
		t.Fatal(err)
	}
	c.hears[0].lead(pub.LastEndpoint())
	eventually(t, "messages that tell no state are counted", func() bool {
		_ = pub.Send(testContext(t), []byte("good morning"))
		return primary.Status().Refused > 2
	})
	if p := primary.Peer(); p.Alive || p.State != 0 {
		t.Errorf("who tells no state is a peer: %+v", p)
	}
	pub.Close()
	c.start(1)
	c.settled(0)
}

// TestStuckConnectionIsReplaced: a connection on which nothing arrives any more is replaced
// after an interval or so, long before heartbeats or the system would notice.
func TestStuckConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	c := newCouple(t, func(o *Options) { o.Timeout = hang })
	primary, _ := c.both()
	l := c.hears[0]
	before := l.carried.Load()
	l.setStuck(before)
	stuck := time.Now()
	eventually(t, "the backup is heard again", func() bool {
		return primary.Peer().Heard.Sub(stuck) > leastConnect && l.carried.Load() > before
	})
}

// TestProbe: a node learns at once whether its peer is there, on a new connection.
func TestProbe(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	c := newCouple(t, func(o *Options) { o.Timeout = hang })
	primary, _ := c.both()
	l := c.hears[0]
	before := l.carried.Load()
	l.setStuck(before)
	if err := primary.Probe(ctx); err != nil || l.carried.Load() == before {
		t.Errorf("the peer is there: %v, %d connections and %d before", err, l.carried.Load(), before)
	}
	l.setHole(true)
	soon, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	if err := primary.Probe(soon); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the peer does not answer: %v", err)
	}
	c.kill(0)
	if err := primary.Probe(ctx); !errors.Is(err, ErrClosed) {
		t.Errorf("the node is closed: %v", err)
	}

	o := c.opts[0]
	o.Peer = "tcp://127.0.0.1:1"
	alone, err := New(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	defer alone.Close()
	if err := alone.Probe(ctx); !errors.Is(err, ErrPeerDown) || !alone.Peer().Down {
		t.Errorf("nothing listens: %v", err)
	}
}

// TestProbeDoesNotDependOnOneAttempt: while a network begins to work, attempts fail that the
// system repeats much too late; an answer to a later one counts.
func TestProbeDoesNotDependOnOneAttempt(t *testing.T) {
	t.Parallel()
	c := newCouple(t, func(o *Options) { o.Interval, o.Timeout = hang/6, hang/6+time.Second })
	primary, _ := c.both()
	l := c.hears[0]
	l.setStuck(l.carried.Load() + 2)
	ctx, cancel := context.WithTimeout(testContext(t), c.opts[0].Interval) // before the node dials anew by itself
	defer cancel()
	if err := primary.Probe(ctx); err != nil {
		t.Errorf("the peer is there: %v", err)
	}
}

// TestProbeEndsItsAttempts: a call that waits for long for a peer that does not answer does not
// use more and more sockets.
func TestProbeEndsItsAttempts(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts nothing
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	n, err := New(testContext(t), Options{Role: RolePrimary, Bind: "tcp://127.0.0.1:*", Peer: "tcp://" + silent.Addr().String(), Interval: time.Millisecond, Timeout: 2 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	var mu sync.Mutex
	var all []*sockets.Sub
	dial := n.dial
	n.dial = func() (*sockets.Sub, error) {
		sub, err := dial()
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			all = append(all, sub)
		}
		return sub, err
	}
	ctx, cancel := context.WithCancel(testContext(t))
	ended := make(chan error)
	go func() { ended <- n.Probe(ctx) }()
	eventually(t, "most of a hundred attempts have ended, and it goes on", func() bool {
		mu.Lock()
		defer mu.Unlock()
		open := 0
		for _, sub := range all {
			if !errors.Is(sub.Subscribe(""), sockets.ErrClosed) {
				open++
			}
		}
		return len(all) >= 100 && open < 50
	})
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestPeerThatConnectsIsHeard: a node that hears nothing connects anew when its peer has
// connected to it, also if it waits for an attempt. So both know each other at the same time.
func TestPeerThatConnectsIsHeard(t *testing.T) {
	t.Parallel()
	c := newCouple(t, func(o *Options) { o.Timeout = hang })
	primary, backup := c.both()
	l := c.hears[1]
	before := l.carried.Load()
	l.setStuck(before + 1)
	eventually(t, "the backup waits for an attempt", func() bool { return l.carried.Load() > before })
	cut := time.Now()
	if err := primary.Probe(testContext(t)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the backup hears the primary", func() bool { return backup.Peer().Heard.After(cut) })
}

// TestImpossibleStatesAreRefused: an epoch above all, or a payload that cannot be, changes
// nothing, and is counted.
func TestImpossibleStatesAreRefused(t *testing.T) {
	t.Parallel()
	c := newCouple(t, func(o *Options) { o.Valid = func(payload []byte) bool { return string(payload) == "good" } })
	primary := c.start(0)
	pub, err := sockets.NewPub(sockets.Options{Linger: sockets.LingerNone, Metadata: map[string]string{property: "1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer pub.Close()
	if err := pub.Bind(testContext(t), "tcp://127.0.0.1:*"); err != nil {
		t.Fatal(err)
	}
	c.hears[0].lead(pub.LastEndpoint())
	send := func(epoch uint64, payload string) {
		_ = pub.Send(testContext(t), appendLong(nil, election.Candidate{State: StatePassive, Role: RoleBackup, Epoch: epoch, Payload: []byte(payload)}))
	}
	eventually(t, "they are counted", func() bool {
		send(MaxEpoch+1, "good")
		send(1<<62, "good")
		send(1, "bad")
		return primary.Status().Refused > 10
	})
	if p := primary.Peer(); p.State != 0 || primary.Epoch() != 0 {
		t.Errorf("the peer is %+v, the own epoch %d", p, primary.Epoch())
	}
	eventually(t, "what can be is heard", func() bool {
		send(1, "good")
		return primary.Peer().State == StatePassive
	})
}

// TestForgedEpochsDoNotPartPair: after messages with epochs as high as they can be, which
// only one node has received, a message raises an epoch by a bounded step, and the other
// node hears this one and follows it.
func TestForgedEpochsDoNotPartPair(t *testing.T) {
	t.Parallel()
	for _, messages := range []uint64{1, 3, 300} {
		t.Run(fmt.Sprint(messages), func(t *testing.T) {
			t.Parallel()
			c := newCouple(t, nil)
			primary := c.start(0)
			pub, err := sockets.NewPub(sockets.Options{Linger: sockets.LingerNone, Metadata: map[string]string{property: "1"}})
			if err != nil {
				t.Fatal(err)
			}
			defer pub.Close()
			if err := pub.Bind(testContext(t), "tcp://127.0.0.1:*"); err != nil {
				t.Fatal(err)
			}
			c.hears[0].lead(pub.LastEndpoint())
			for range messages {
				before := primary.Epoch()
				if before == MaxEpoch {
					break
				}
				eventually(t, "the forged state is heard", func() bool {
					m := appendLong(nil, election.Candidate{State: StateActive, Role: RoleBackup, Epoch: min(primary.Epoch()+election.MaxJump, MaxEpoch)})
					_ = pub.Send(testContext(t), m)
					return primary.Epoch() > before
				})
			}
			c.start(1)
			c.settled(0)
			c.kill(0)
			eventually(t, "it takes over", func() bool { ok, _ := c.nodes[1].Vote(testContext(t)); return ok })
		})
	}
}

// TestSameRoleIsSeen: two primaries report the configuration error.
func TestSameRoleIsSeen(t *testing.T) {
	t.Parallel()
	c := newCouple(t, nil)
	c.opts[1].Role = RolePrimary
	a, b := c.start(0), c.start(1)
	eventually(t, "both see that their roles are the same", func() bool { return a.Peer().SameRole && b.Peer().SameRole })
	if a.State() != StatePrimary || b.State() != StatePrimary {
		t.Errorf("%v, %v", a.State(), b.State())
	}
}

// TestCurve: a pair whose nodes know each other's keys, and a stranger.
func TestCurve(t *testing.T) {
	t.Parallel()
	keys := [2]zmtp.KeyPair{zmtp.GenerateKeyPair(), zmtp.GenerateKeyPair()}
	c := newCouple(t, func(o *Options) {
		own, peer := keys[o.Role-RolePrimary], keys[o.Role.Other()-RolePrimary]
		o.BindSecurity = sockets.Security{
			CurveServer: true, CurveSecretKey: own.Secret, Authenticate: sockets.AllowKeys(peer.Public),
		}
		o.PeerSecurity = sockets.Security{CurveSecretKey: own.Secret, CurveServerKey: peer.Public}
	})
	c.both()
	refused := make(chan error, 1)
	stranger := zmtp.GenerateKeyPair()
	o := c.opts[1]
	o.Peer = c.nodes[0].Endpoint()
	o.PeerSecurity.CurveSecretKey = stranger.Secret
	o.Monitor = func(e sockets.Event) {
		if e.Kind == sockets.EventHandshakeFailed {
			select {
			case refused <- e.Err:
			default:
			}
		}
	}
	n, err := New(testContext(t), o)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	<-refused
	if p := n.Peer(); p.State != 0 {
		t.Errorf("a stranger hears %+v", p)
	}
}

// TestOptions: all invalid fields are reported at once, by name.
func TestOptions(t *testing.T) {
	t.Parallel()
	good := Options{Role: RolePrimary, Bind: "tcp://127.0.0.1:*", Peer: "tcp://127.0.0.1:1"}
	o, err := good.withDefaults()
	if err != nil || o.Interval != DefaultInterval || o.Timeout != DefaultTimeout {
		t.Errorf("defaults: %+v, %v", o, err)
	}
	for field, change := range map[string]func(o *Options){
		"Role":         func(o *Options) { o.Role = 3 },
		"Bind":         func(o *Options) { o.Bind = "" },
		"Peer":         func(o *Options) { o.Peer = "" },
		"Interval":     func(o *Options) { o.Interval = -1; o.Timeout = 1 },
		"Timeout":      func(o *Options) { o.Timeout = DefaultInterval },
		"Epoch":        func(o *Options) { o.Epoch = MaxEpoch + 1 },
		"BindSecurity": func(o *Options) { o.BindSecurity.CurveServer = true },
		"PeerSecurity": func(o *Options) { o.PeerSecurity.PlainUsername = strings.Repeat("x", 256) },
	} {
		o := good
		change(&o)
		_, err := New(testContext(t), o)
		if fault, ok := errors.AsType[*OptionError](err); !ok || fault.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	_, err = New(testContext(t), Options{})
	for _, field := range []string{"Role", "Bind", "Peer"} {
		if err == nil || !strings.Contains(err.Error(), "option "+field+": ") {
			t.Errorf("no word of %s: %v", field, err)
		}
	}
	for _, change := range []func(o *Options){
		func(o *Options) { o.Bind = "nonsense" },
		func(o *Options) { o.Peer = "nonsense" },
	} {
		o := good
		change(&o)
		if n, err := New(testContext(t), o); err == nil {
			n.Close()
			t.Errorf("%q, %q are taken", o.Bind, o.Peer)
		}
	}
}

// TestVoteAllocatesNothing: a server can call Vote for each request.
func TestVoteAllocatesNothing(t *testing.T) {
	c := newCouple(t, nil)
	primary, backup := c.both()
	for _, n := range []*Node{primary, backup} {
		ctx := testContext(t)
		if allocs := testenv.Allocs(0, 1000, func() { _, _ = n.Vote(ctx) }); allocs >= 1 {
			t.Errorf("%v: %v allocations", n.State(), allocs)
		}
	}
}
