package chp

import (
	"testing"
	"time"
)

// A server of this package that sends heartbeats may take longer than SyncTimeout to
// send a snapshot: it has much to do.
func TestBusyServerIsNotSilent(t *testing.T) {
	t.Parallel()
	s := newScripted(t, asOurs)
	defer s.beat(0)()
	c := followScripted(t, ClientOptions{SyncTimeout: 4 * time.Second, OnFailure: func(_ string, err error) { t.Error(err) }}, s)
	id, subtree := s.ask()
	silence(t, 5*time.Second)
	s.kvsync(id, pub{"k", 1, "v"})
	s.kthxbai(id, 1, subtree)
	must(t, c.WaitActive(testContext(t)))
	s.nobodyAsks()
}
