package chp

import (
	"testing"

	"clustermap/internal/timer"
)

// TestPairStaleVote: a client that asked the passive server while the active one was heard
// does not have it take over when that one is silent later.
func TestPairStaleVote(t *testing.T) {
	t.Parallel()
	po, bo := pairOptions(t)
	primary, backup := startPairServer(t, po), startPairServer(t, bo)
	eventually(t, "the backup has a copy", func() bool { return primary.active() && backup.pair.copied.Load() })
	asked := timer.Now()
	backup.pair.asked.Store(int64(asked))
	eventually(t, "the primary is heard again", func() bool { return timer.At(backup.pair.node.Peer().Heard) > asked })
	primary.crash()
	eventually(t, "the primary is silent", func() bool { p := backup.pair.node.Peer(); return !p.Alive })
	for timer.Now()-asked < 3*bo.Pair.Timeout {
		backup.pair.vote(testContext(t))
		if backup.active() {
			t.Fatal("the backup takes over for a client that asked before")
		}
	}
	backup.pair.asked.Store(int64(timer.Now()))
	eventually(t, "a client that asks now has it take over", backup.active)
}
