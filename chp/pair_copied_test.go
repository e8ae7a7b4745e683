package chp

import (
	"fmt"
	"testing"
	"time"

	"clustermap/chp/commit"
)

// TestPairCopiedData: a passive server whose epoch is higher than that of the active one,
// which does not hear it, goes on following. It may have updates which the active server
// did not have yet when it last told its state: they are no reason to take over.
func TestPairCopiedData(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	po, bo := pairOptions(t)
	dir := t.TempDir()
	log := openLog(t, dir)
	_, err := log.Replay(func(commit.Entry) error { return nil })
	must(t, err)
	must(t, log.SetEpoch(5))
	must(t, log.Close())
	bo.Log = openLog(t, dir)
	po.Pair.PeerState = "tcp://127.0.0.1:1" // where no server sends its state
	po.Pair.Interval = time.Millisecond     // it often tells its own

	primary := startAlone(t, po)
	c := pairClient(t, po, bo)
	must(t, c.WaitActive(ctx))
	_, err = c.SetSync(ctx, "/first", []byte("v"))
	must(t, err)
	backup := startPairServer(t, bo)
	primary.looksAt(t, bo.Pair.State)
	eventually(t, "the backup follows", primary.inSync)
	changes := backup.pair.Node().Status().Changes
	for i, end := 0, time.Now().Add(time.Second); time.Now().Before(end); i++ {
		_, err := c.SetSync(ctx, fmt.Sprintf("/%d", i%100), []byte("v"))
		must(t, err)
	}
	if st := backup.pair.Node().Status(); st.Changes != changes || !primary.active() {
		t.Errorf("the backup is %v because it is the %v", st.State, st.Reason)
	}
}
