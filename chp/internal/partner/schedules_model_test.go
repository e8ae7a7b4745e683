package partner

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestPairModelSchedules: the same for long random schedules, in which the next event
// comes while the servers still react to the one before.
func TestPairModelSchedules(t *testing.T) {
	needsMemory(t)
	t.Parallel()
	seeds := uint64(3000)
	if testing.Short() {
		seeds = 300
	}
	if w := modelSeeds(seeds, 0, modelSchedule); w.fault != "" {
		t.Error(w)
	}
}

// modelSeeds returns the first of so many schedules that has a fault, or else the last one.
func modelSeeds(seeds uint64, m modelMutation, schedule func(uint64, modelMutation) *modelPair) (w *modelPair) {
	for seed := range seeds {
		if w = schedule(seed, m); w.fault != "" {
			w.fault = fmt.Sprintf("seed %d: %s", seed, w.fault)
			break
		}
	}
	return w
}

func modelSchedule(seed uint64, m modelMutation) *modelPair {
	random := rand.New(rand.NewPCG(seed, 1))
	w := newModelPair(seed%2 == 0, m, random)
	events := modelEvents
	if seed%4 == 3 {
		events = slices.Concat(events, modelLosses)
	}
	for range 40 {
		e := events[random.IntN(len(events))]
		if e.do(w) {
			w.history = append(w.history, fmt.Sprintf("%d: %s", w.now, e.name))
		}
		for range random.IntN(3 * modelTimeout / 2) {
			w.pass()
		}
		if w.fault != "" {
			return w
		}
	}
	w.heal()
	return w
}

// TestPairModelSingleFaults: no acknowledged update is lost if there is one fault at a
// time: a server is killed, or isolated from everybody for any time, and the next fault
// comes only when the pair is together again. Clients ask both servers and write to
// both at any time.
func TestPairModelSingleFaults(t *testing.T) {
	needsMemory(t)
	t.Parallel()
	seeds := uint64(1000)
	if testing.Short() {
		seeds = 200
	}
	if w := modelSeeds(seeds, 0, modelSingleFaults); w.fault != "" {
		t.Error(w)
	}
}

func modelSingleFaults(seed uint64, m modelMutation) *modelPair {
	random := rand.New(rand.NewPCG(seed, 2))
	w := newModelPair(seed%2 == 0, m, random)
	w.prompt = seed%4 < 2
	for range 4 {
		w.busy(random.IntN(modelTimeout))
		i := random.IntN(2)
		e := modelEvents[i*len(modelEvents[:12])/2+2*random.IntN(2)] // kill or isolate
		led := w.servers[i].active
		if w.stalled = random.IntN(2) == 0; w.stalled { // some updates are on their way to the other server
			w.busy(random.IntN(modelTimeout / 4))
		}
		e.do(w)
		w.stalled = false
		killed := !w.servers[i].up
		w.history = append(w.history, fmt.Sprintf("%d: %s", w.now, e.name))
		w.busy(random.IntN(4 * modelTimeout))
		acked := w.acknowledged()
		w.history = append(w.history, fmt.Sprintf("%d: heal", w.now))
		last := modelEvents[len(modelEvents)-1]
		last.do(w)
		if !w.servers[i].up {
			w.start(i)
		}
		for range 2 * modelTimeout {
			w.busy(1)
			if w.prompt && (led || killed) { // no message is on its way while both serve
				maps.Copy(acked, w.acknowledged())
			}
		}
		w.heal()
		w.keeps(acked)
		if w.fault != "" {
			break
		}
	}
	return w
}

// TestPairModelFindsFaults: the model finds the faults that the rules prevent.
func TestPairModelFindsFaults(t *testing.T) {
	needsMemory(t)
	t.Parallel()
	for m, name := range map[modelMutation]string{modelEpochs: "epochs decide", modelCopies: "any map is copied"} {
		_, fault := exploreModel(newModelPair(false, m, nil), 5)
		if fault == "" {
			_, fault = exploreModel(newModelPair(true, m, nil), 5)
		}
		if fault == "" {
			t.Errorf("%s: no fault is found", name)
		}
		t.Logf("%s: %s", name, fault)
	}
	w := newModelPair(false, modelExpiry, nil) // a shorter way than by exploring
	for _, name := range []string{"update at primary", "kill primary", "clients ask backup", "update at backup", "kill backup", "start primary", "clients ask primary", "expiry at primary",
		"kill primary", "start primary", "clients ask primary", "expiry at primary"} {
		w.apply(modelEvents[slices.IndexFunc(modelEvents, func(e modelEvent) bool { return e.name == name })])
	}
	if w.heal(); w.fault == "" {
		t.Error("expiry counts: no fault is found")
	}
	t.Logf("expiry counts: %v", w)
	if w = modelSeeds(10_000, modelNewMaps, modelSchedule); w.fault == "" {
		t.Error("terms of a new map: no fault is found")
	}
	t.Logf("terms of a new map: %v", w)
	w = modelSeeds(2000, modelNoHolds, modelSingleFaults)
	if w.fault == "" {
		t.Error("no holds: no fault is found")
	}
	t.Logf("no holds: %v", w)
}
