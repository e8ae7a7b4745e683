package partner

import (
	"slices"
	"testing"
)

// TestPairUnacknowledgedUpdateReplacesNothing: a server that has taken over accepts the
// first update of its reign and ends before the other one has it. That one takes over in
// turn and acknowledges updates. They are not discarded for the update that no client was
// told of, although both reigns are of one term.
func TestPairUnacknowledgedUpdateReplacesNothing(t *testing.T) {
	t.Parallel()
	for _, isolated := range []bool{false, true} {
		w := newModelPair(false, 0, nil)
		do := func(name string) {
			t.Helper()
			i := slices.IndexFunc(modelEvents, func(e modelEvent) bool { return e.name == name })
			if !w.apply(modelEvents[i]) {
				t.Fatalf("%s: cannot be after %v", name, w.history)
			}
		}
		for _, name := range []string{"clients ask primary", "update at primary", "kill primary", "clients ask backup", "start primary"} {
			if name == "clients ask primary" && w.servers[0].active {
				continue
			}
			do(name)
		}
		if !w.servers[1].active || !w.servers[0].follows {
			t.Fatal("the backup has not taken over")
		}
		w.cut, w.links = true, [2][]modelMessage{}
		w.update(1, true)
		if u := w.servers[1].log[1]; u.acked {
			t.Fatal("the backup does not wait for the primary")
		}
		if isolated {
			w.servers[1].apart = true
		} else {
			do("kill backup")
		}
		do("clients ask primary")
		do("update at primary")
		told := w.servers[0].log[1]
		if !told.acked {
			t.Fatal("the primary has not taken over")
		}
		w.heal()
		for i := range w.servers {
			if log := w.servers[i].log; w.fault != "" || !slices.ContainsFunc(log, func(u modelUpdate) bool { return u.number == told.number }) {
				t.Errorf("isolated %v: %q, log %v", isolated, w.fault, log)
			}
		}
	}
}
