package chp

import (
	"fmt"
	"testing"
)

// TestPairLosesWhatOnlyOneServerHad: what docs/CONSISTENCY.md says that a pair can lose. The
// backup is down, the primary acknowledges an update, and its machine is lost; an operator
// makes a server of what the backup has.
func TestPairLosesWhatOnlyOneServerHad(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	po, bo := pairOptions(t)
	lost, kept := t.TempDir(), t.TempDir()
	po.Log, bo.Log = openLog(t, lost), openLog(t, kept)
	primary, backup := startPairServer(t, po), startPairServer(t, bo)
	client := pairClient(t, po, bo)
	_, err := client.SetSync(ctx, "/before", []byte("1"))
	must(t, err)
	eventually(t, "they are in sync", primary.inSync)
	promote := func() pairServer {
		po.Log = openLog(t, kept)
		return startAlone(t, po)
	}

	backup.crash()
	eventually(t, "the primary is alone", func() bool { return !primary.inSync() })
	_, err = client.SetSync(ctx, "/paid", []byte("1"))
	fmt.Println(err) // <nil>: the primary alone has it
	primary.crash()  // and its disk is lost
	promoted := promote()
	eventually(t, "the client is served", func() bool {
		_, found := client.Get("/before")
		return found && promoted.active() && client.State() == StateActive
	})
	_, err = client.SetSync(ctx, "/after", []byte("1"))
	must(t, err)
	_, paid := client.Get("/paid")
	fmt.Println(paid) // false

	if paid {
		t.Error("it is there")
	}
	if _, found := client.Get("/before"); !found {
		t.Error("what both had is lost")
	}
}
