package chp

import (
	"strings"
	"testing"

	"clustermap/chp/internal/wire"
	"clustermap/internal/kvmsg"
)

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

// TestJoinHasTransactionsBetweenCuts: a client of several subtrees gets a snapshot of each, and one
// may have its part of a transaction, and the other not yet. The join waits for what is missing, and
// asks the server for a heartbeat, which says that nothing is.
func TestJoinHasTransactionsBetweenCuts(t *testing.T) {
	t.Parallel()
	for _, quiet := range []bool{false, true} {
		s := newScriptedWith(t, wire.Server{Instance: strings.Repeat("1", 32), Model: 6}.Properties())
		c := followScripted(t, ClientOptions{Subtrees: []string{"/a/", "/b/"}}, s)
		id, first := s.ask()
		_, second := s.ask()
		s.kthxbai(id, 10, first)
		s.kvsync(id, pub{second + "k", 13, "v"})
		s.kthxbai(id, 20, second)
		question, err := s.router.Recv(s.ctx)
		must(t, err)
		if len(question) != 4 || string(question[1]) != "SYNC?" || string(question[3]) != "\x01" {
			t.Fatalf("the client asks %q", question)
		}
		want := map[string]string{second + "k": "v"}
		if !quiet {
			s.publish(first+"k", 12, nil, kvmsg.PropertyMore+"=1\n", "v")
			s.kvpub(pub{second + "k", 13, "v"})
			want[first+"k"] = "v"
		}
		if c.State() == StateActive {
			t.Error("active before the client can have all")
		}
		must(t, s.pub.Send(s.ctx, []byte(kvmsg.KeyHUGZ), seqBytes(20), nil, nil, nil))
		must(t, c.WaitActive(s.ctx))
		wantContents(t, c, 20, want)
	}
}
