package partner

import (
	"testing"
	"time"

	"clustermap/sockets"
)

// TestParkedIsBounded: a client cannot have more than its part of the requests that wait, and
// of all that wait the oldest gives way.
func TestParkedIsBounded(t *testing.T) {
	t.Parallel()
	passive := func() bool { return false }
	var w parked
	first := new(sockets.Peer)
	for i := range maxParkedEach + 1 {
		if kept, tooMany := w.add(request{peer: first}, 1, passive); kept != (i < maxParkedEach) || tooMany == kept {
			t.Fatalf("request %d of one client: kept %v, too many %v", i, kept, tooMany)
		}
	}
	for range maxParked {
		if kept, _ := w.add(request{peer: new(sockets.Peer)}, 1, passive); !kept {
			t.Fatal("a request of another client is not kept")
		}
	}
	w.forget(first)
	if n := len(w.take()); n != maxParked {
		t.Errorf("%d requests wait, want %d", n, maxParked)
	}
	if n := len(w.take()); n > 0 {
		t.Errorf("%d requests are left", n)
	}
}

// TestParkedNoneWhileActive: a request that was to wait for the server to become active does
// not if it has become so a moment ago.
func TestParkedNoneWhileActive(t *testing.T) {
	t.Parallel()
	var w parked
	if kept, tooMany := w.add(request{peer: new(sockets.Peer)}, 1, func() bool { return true }); kept || tooMany || len(w.take()) > 0 {
		t.Errorf("kept %v, too many %v", kept, tooMany)
	}
}

// TestParkedStaleVote: a client that asked the passive server while the active one was heard
// does not have it take over when that one is silent later.
func TestParkedStaleVote(t *testing.T) {
	t.Parallel()
	const most = 10 * time.Second
	var w parked
	if w.vote(0, time.Hour, most) {
		t.Error("it takes over though no client has asked")
	}
	w.asked = time.Minute
	for _, c := range []struct {
		what       string
		heard, now time.Duration
		want       bool
	}{
		{"just now", 0, time.Minute, true},
		{"lately", 59 * time.Second, time.Minute + most, true},
		{"before the other server was heard", 61 * time.Second, 62 * time.Second, false},
		{"long ago", 59 * time.Second, time.Minute + most + 1, false},
	} {
		if got := w.vote(c.heard, c.now, most); got != c.want {
			t.Errorf("a client has asked %s: %v", c.what, got)
		}
	}
	w.add(request{peer: new(sockets.Peer)}, time.Minute, func() bool { return false })
	if !w.vote(2*time.Minute, time.Hour, most) {
		t.Error("a request that waits does not count")
	}
}
