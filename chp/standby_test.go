package chp

import (
	"errors"
	"sync/atomic"
	"testing"

	"clustermap/internal/kvmsg"
)

// stand answers the next snapshot request as a passive server does, after a part of a
// snapshot.
func (s *scripted) stand(part ...pub) {
	s.t.Helper()
	id, _ := s.ask()
	for _, p := range part {
		s.kvsync(id, p)
	}
	must(s.t, s.router.Send(s.ctx, id, []byte("STANDBY")))
}

// A client leaves a passive server for the next one, and OnFailure gets the reason.
func TestStandbyNextServer(t *testing.T) {
	t.Parallel()
	passive, active := newScripted(t, asOurs), newScripted(t, asOurs)
	failures := make(chan error, 100)
	c := followScripted(t, ClientOptions{OnFailure: func(server string, err error) {
		if server != passive.name() {
			t.Errorf("%s failed: %v", server, err)
		}
		failures <- err
	}}, passive, active)
	passive.stand()
	active.answer(7, pub{"k", 7, "v"})
	wantContents(t, c, 7, map[string]string{"k": "v"})
	if err := <-failures; !errors.Is(err, ErrStandby) {
		t.Errorf("OnFailure was told of %v", err)
	}
	passive.nobodyAsks()
}

// A single server is asked again and again, and the messages before its report that it is
// not active are dropped.
func TestStandbyOneServer(t *testing.T) {
	t.Parallel()
	s := newScripted(t, asOurs)
	var others atomic.Int64
	c := followScripted(t, ClientOptions{OnFailure: func(_ string, err error) {
		if !errors.Is(err, ErrStandby) {
			others.Add(1)
		}
	}}, s)
	s.stand()
	for range 5 {
		s.stand(pub{"old", 1, "x"}, pub{"k", 2, "old"})
	}
	s.answer(7, pub{"k", 7, "v"})
	wantContents(t, c, 7, map[string]string{"k": "v"})
	if n := others.Load(); n != 0 {
		t.Errorf("%d failures for another reason", n)
	}
	if st := c.Stats(); len(st.Refused) != 0 || st.Syncs != 1 {
		t.Errorf("%+v", st)
	}
}

// The active server dies, and the other one is passive for a while: the client asks
// it again and again, and keeps its map meanwhile.
func TestStandbyUntilTakeover(t *testing.T) {
	t.Parallel()
	primary, backup := newScripted(t, asOurs), newScripted(t, asOurs)
	c := followScripted(t, ClientOptions{}, primary, backup)
	primary.answer(3, pub{"a", 1, "1"}, pub{"b", 3, "2"})
	must(t, c.WaitActive(testContext(t)))
	primary.close()
	for range 6 {
		backup.stand()
		if got := have(c); len(got) != 2 {
			t.Errorf("the client has %v", got)
		}
	}
	backup.answer(9, pub{"a", 9, "3"})
	wantContents(t, c, 9, map[string]string{"a": "3"})
}

// A server that is no longer active says so to clients that follow it, in one write
// with the end of the snapshot or later. They go to the other one.
func TestStandbyWhileActive(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]bool{"with the snapshot": true, "later": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, second := newScripted(t, asOurs), newScripted(t, asOurs)
			c := followScripted(t, ClientOptions{}, first, second)
			id, subtree := first.ask()
			first.kvsync(id, pub{"k", 3, "first"})
			first.kthxbai(id, 3, subtree)
			if !before {
				wantContents(t, c, 3, map[string]string{"k": "first"})
			}
			must(t, first.router.Send(first.ctx, id, []byte("STANDBY")))
			second.answer(5, pub{"k", 5, "second"})
			wantContents(t, c, 5, map[string]string{"k": "second"})
		})
	}
}

// A server of another make cannot be passive: from it the message is one that is not
// sound, like any other of one frame.
func TestStandbyOfOthers(t *testing.T) {
	t.Parallel()
	s := newScripted(t, asPlain)
	c := followScripted(t, ClientOptions{OnFailure: func(_ string, err error) { t.Error(err) }}, s)
	stop := s.beat(0)
	id, subtree := s.ask()
	stop()
	must(t, s.router.Send(s.ctx, id, []byte("STANDBY")))
	s.kvsync(id, pub{"k", 3, "v"})
	s.kthxbai(id, 3, subtree)
	wantContents(t, c, 3, map[string]string{"k": "v"})
	if n := c.Stats().Refused[kvmsg.ReasonFrameCount]; n != 1 {
		t.Errorf("%d messages refused, want 1", n)
	}
}
