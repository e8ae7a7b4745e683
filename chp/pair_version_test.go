package chp

import (
	"log/slog"
	"strings"
	"testing"

	"clustermap/chp/internal/order"
	"clustermap/sockets"
)

// A server of a pair refuses one that speaks a newer version of the pair's protocol, and its
// log says so.
func TestPairRefusesNewerFollower(t *testing.T) {
	t.Parallel()
	var log lockedLog
	po, _ := pairOptions(t)
	po.Logger = slog.New(slog.NewTextHandler(&log, nil))
	s := startAlone(t, po)
	for _, version := range []string{"2", "17", "x", "0"} {
		f := dialFollower(t, s, func(o *sockets.Options) { o.Metadata[propertyPeer] = version })
		f.follow(s)
		select {
		case <-f.gone:
		case <-testContext(t).Done():
			t.Fatalf("a follower of version %s is accepted", version)
		}
	}
	eventually(t, "the log says why", func() bool {
		return strings.Contains(log.String(), "what the other server of the pair sends was written by a newer version (protocol 17; this program reads up to 1)")
	})
	s.sequencer.Between(func(*order.Moment) {
		if s.pair.Journal().Follower() != nil {
			t.Error("one of them follows")
		}
	})
}

// Both servers announce the version, so that the other one can refuse it.
func TestPairAnnouncesVersion(t *testing.T) {
	t.Parallel()
	po, _ := pairOptions(t)
	s := startAlone(t, po)
	version := make(chan string, 1)
	dialFollower(t, s, func(o *sockets.Options) {
		o.Monitor = func(e sockets.Event) {
			if e.Kind == sockets.EventHandshakeSucceeded {
				text, _ := e.Peer.Property(propertyPeer)
				version <- text
			}
		}
	})
	if got := <-version; got != peerVersion {
		t.Errorf("the server announces %q, want %q", got, peerVersion)
	}
}
