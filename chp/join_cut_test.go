package chp

import "testing"

// TestJoinWaitsForCut: a key that was set and deleted before the cut is not in the snapshot.
// If the KVPUB that set it has come during the snapshot, the join waits for the one that
// deletes it.
func TestJoinWaitsForCut(t *testing.T) {
	t.Parallel()
	for range 10 { // the deletion may come before the client has joined
		s := newScripted(t, asOurs)
		c := followScripted(t, ClientOptions{}, s)
		id, _ := s.ask()
		s.kvpub(pub{"/a", 1, "v"})
		// The client reads it before this one, which it refuses and counts.
		must(t, s.pub.Send(s.ctx, []byte("/x"), seqBytes(1)))
		eventually(t, "the first update has come", func() bool { return c.Stats().Refused[ReasonFrameCount] == 1 })
		s.kvsync(id, pub{"/b", 0, "w"})
		s.kthxbai(id, 2, "")
		s.kvpub(pub{"/a", 2, ""})
		wantContents(t, c, 2, map[string]string{"/b": "w"})
	}
}
