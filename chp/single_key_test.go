package chp

import (
	"testing"

	"clustermap/internal/interop"
)

// A client of one key in no subtree asks a server of another kind for the whole map,
// and subscribes to the key alone. The updates between two of the key are not missing.
func TestSingleKeyHasNoGaps(t *testing.T) {
	t.Parallel()
	interop.Require(t)
	p := cloneServer(t)
	p.Call(cloneSet("lamp", "1"), nil)
	c := cloneClient(t, ClientOptions{Subtrees: []string{"lamp"}}, p)
	for _, value := range []string{"2", "3"} {
		p.Call(cloneSet("other", value), nil)
		p.Call(cloneSet("lamp", value), nil)
		eventually(t, "the update has come", func() bool { v, _ := c.Get("lamp"); return string(v) == value })
	}
	if stats := c.Stats(); stats.Gaps > 0 || stats.Syncs != 1 {
		t.Errorf("%d gaps, %d snapshots", stats.Gaps, stats.Syncs)
	}
}
