package sockets

import "testing"

// TestDropsOfEndedConnection: a peer's statistics keep the messages that were dropped
// when its connection has ended, and count those that were queued then.
func TestDropsOfEndedConnection(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	pub := bind(t, NewPub, Options{SendHWM: 10})
	sub := stuck(t, pub)
	peer := (*Peer)(pub.core.Pipes()[0].Peer())
	for range 100 {
		must(t, pub.Send(ctx, []byte("message")))
	}
	if s := peer.Stats(); s.Drops != 90 || s.QueuedMessages != 10 {
		t.Fatalf("%+v", s)
	}
	sub.Conn.Close()
	eventually(t, "the connection ends", func() bool { return len(pub.Peers()) == 0 })
	if s := peer.Stats(); s.Drops != 100 || s.QueuedMessages != 0 || s.Connected {
		t.Errorf("%+v", s)
	}
}
