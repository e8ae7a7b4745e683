package partner

import (
	"testing"
)

// TestPairMapOfOneServerReplacesNoneOfBoth: a server that has lost its data, and does not
// hear the other one, serves an empty map. However often it starts and accepts updates then,
// it does not replace the map that both servers had.
func TestPairMapOfOneServerReplacesNoneOfBoth(t *testing.T) {
	t.Parallel()
	for starts := range 4 {
		w := modelLosesData(t, 0, starts+1)
		for i := range w.servers {
			if s := &w.servers[i]; w.fault != "" || len(s.log) != 1 || !s.log[0].both {
				t.Errorf("%d starts: server %d has %v: %v", starts+1, i, s.log, w)
			}
		}
	}
	if w := modelLosesData(t, modelNewMaps, 2); w.fault == "" {
		t.Error("terms of a new map: no fault is found")
	}
}

// modelLosesData has the primary lose its data, and start so often without hearing the
// backup. Each time it accepts an update.
func modelLosesData(t *testing.T, m modelMutation, starts int) *modelPair {
	t.Helper()
	w := newModelPair(false, m, nil)
	w.order(t, "update at primary", "kill primary", "lose the data of primary", "cut the servers off from each other")
	// Its clock is wrong, too: its updates have sequences of the past.
	w.sequence = 0
	for range starts {
		w.order(t, "start primary", "clients ask primary", "update at primary", "kill primary")
	}
	w.heal()
	return w
}

// TestPairNewMapDoesNotReplaceOlder: the same for a map that the backup got when the primary
// had been alone, and in which nothing was changed since then.
func TestPairNewMapDoesNotReplaceOlder(t *testing.T) {
	t.Parallel()
	var w *modelPair
	for range 4 { // two maps are taken for one with a probability of 1/256
		w = newModelPair(false, 0, nil)
		w.order(t, "kill backup", "kill primary", "start primary", "clients ask primary", "update at primary", "start backup")
		if !w.servers[1].follows || len(w.servers[1].log) != 1 {
			t.Fatalf("the backup does not follow: %v", w)
		}
		w.order(t, "kill primary", "lose the data of primary", "cut the servers off from each other")
		for range 3 {
			w.order(t, "start primary", "clients ask primary", "update at primary", "kill primary")
		}
		w.heal()
		if a, b := w.servers[0].log, w.servers[1].log; w.fault == "" && len(a) == 1 && a[0].number == 1 && len(b) == 1 && b[0].number == 1 {
			return
		}
	}
	t.Errorf("the servers have %v and %v: %v", w.servers[0].log, w.servers[1].log, w)
}

// TestPairPromotedServerTookOver: a server that has restarted and is promoted took over as
// one that ran all the time. What it acknowledges then is not discarded for an update that
// the other one has accepted and told no client of.
func TestPairPromotedServerTookOver(t *testing.T) {
	t.Parallel()
	for how, names := range map[string][]string{
		"started":   {"kill backup", "kill primary", "start primary", "clients ask primary", "start backup"},
		"took over": {"kill primary", "clients ask backup", "start primary", "kill backup", "clients ask primary", "start backup"},
	} {
		w, told := modelPromotes(t, 0, names)
		for i := range w.servers {
			if log := w.servers[i].log; w.fault != "" || len(log) != 3 || log[2].number != told {
				t.Errorf("a primary that %s: server %d has %v: %v", how, i, log, w)
			}
		}
		if w, told = modelPromotes(t, modelPromotions, names); w.servers[0].log[len(w.servers[0].log)-1].number == told {
			t.Errorf("a primary that %s: no fault is found if a promoted server does not take over", how)
		}
	}
}

// modelPromotes has events happen after which the primary is active, and begins a term with
// an update that the backup does not get. Both are killed; the backup starts again, is
// promoted, and accepts updates. It returns the number of the last one, and the pair when it
// is together again.
func modelPromotes(t *testing.T, m modelMutation, names []string) (w *modelPair, told int) {
	t.Helper()
	w = newModelPair(false, m, nil)
	w.order(t, "update at primary")
	w.order(t, names...)
	if !w.servers[0].active || !w.servers[1].follows {
		t.Fatalf("the backup does not follow the primary: %v", w)
	}
	w.cut, w.links = true, [2][]modelMessage{}
	w.update(0, true)
	if u := w.servers[0].log[1]; u.acked {
		t.Fatal("the primary does not wait for the backup")
	}
	w.order(t, "kill primary", "kill backup", "start backup")
	for range startTimeouts * modelTimeout {
		w.pass()
	}
	w.order(t, "promote backup", "update at backup", "update at backup")
	last := w.servers[1].log[2]
	if !last.acked {
		t.Fatal("the backup does not serve")
	}
	w.heal()
	return w, last.number
}

// TestPairRestartedServerDidNotTakeOver: a server that has restarted does not know whether
// the other one, which took over and is gone, had told clients of its updates. So of one term
// that one's continue, though it may have told nobody, and this server gives up its own.
func TestPairRestartedServerDidNotTakeOver(t *testing.T) {
	t.Parallel()
	w := newModelPair(false, 0, nil)
	w.order(t, "update at primary", "kill primary", "clients ask backup", "start primary")
	w.cut, w.links = true, [2][]modelMessage{}
	w.update(1, true)
	last := w.servers[1].log[1]
	if last.acked {
		t.Fatal("the backup does not wait for the primary")
	}
	w.order(t, "kill backup", "kill primary", "start primary", "clients ask primary", "update at primary")
	w.heal()
	for i := range w.servers {
		if log := w.servers[i].log; w.fault != "" || len(log) != 2 || log[1].number != last.number {
			t.Errorf("server %d has %v: %v", i, log, w)
		}
	}
}
