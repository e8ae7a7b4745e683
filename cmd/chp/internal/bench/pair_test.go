package bench

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"clustermap/chp"
	"clustermap/cmd/chp/internal/bench/workload"
)

// A pair counts only if it is in sync in the end, and both have the same.
func TestPairFault(t *testing.T) {
	t.Parallel()
	sound := func() (a, p *chp.Status) {
		return &chp.Status{State: chp.ServerActive, InSync: true, Keys: 5, Sequence: 9}, &chp.Status{State: chp.ServerPassive, Keys: 5, Sequence: 9}
	}
	if err := pairFault(sound()); err != nil {
		t.Error(err)
	}
	for want, spoil := range map[string]func(a, p *chp.Status) (*chp.Status, *chp.Status){
		"not in sync":    func(a, p *chp.Status) (*chp.Status, *chp.Status) { a.InSync = false; return a, p },
		"4 keys":         func(a, p *chp.Status) (*chp.Status, *chp.Status) { p.Keys--; return a, p },
		"at sequence 10": func(a, p *chp.Status) (*chp.Status, *chp.Status) { p.Sequence++; return a, p },
		"one active and": func(a, _ *chp.Status) (*chp.Status, *chp.Status) { return a, nil },
	} {
		if err := pairFault(spoil(sound())); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// A run whose servers differ gives no rate.
func TestPairThatDiffersHasNoRate(t *testing.T) {
	t.Parallel()
	reports := []workload.Report{report(), report()}
	r := newResult(config())
	r.add(&Round{
		CHP:  newMeasurement(config(), outcome{seconds: 1, reports: reports}, content),
		Pair: newMeasurement(config(), outcome{seconds: 2, reports: reports, fault: pairFault(nil, nil)}, content),
	})
	r.conclude()
	if err := r.faults(); err == nil || !strings.Contains(err.Error(), "round 1, pair: the servers of the pair") {
		t.Errorf("%v", err)
	}
	if r.UpdatesPerSecond != nil || r.PairRatio != nil || r.Rounds[0].PairRatio != nil {
		t.Errorf("%+v", r)
	}
}

func TestRatiosToThePlainServer(t *testing.T) {
	t.Parallel()
	reports := []workload.Report{report(), report()}
	at := func(seconds float64) *Measurement {
		return newMeasurement(config(), outcome{seconds: seconds, reports: reports}, content)
	}
	r := newResult(config())
	r.add(&Round{CHP: at(1), Data: at(2), Pair: at(4)})
	r.add(&Round{CHP: at(1), Data: at(1), Pair: at(5)})
	r.add(&Round{CHP: at(2), Data: at(8), Pair: at(10)})
	r.conclude()
	if *r.DataRatio != 0.5 || *r.PairRatio != 0.2 || r.Ratio != nil || *r.DataUpdatesPerSecond != 500 || *r.PairUpdatesPerSecond != 200 {
		t.Errorf("data %v at %v, pair %v at %v", *r.DataRatio, *r.DataUpdatesPerSecond, *r.PairRatio, *r.PairUpdatesPerSecond)
	}
}

func TestPairTasksFit(t *testing.T) {
	t.Parallel()
	tasks, err := pairTasks(time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	a, b := tasks[0].Pair, tasks[1].Pair
	if a.Backup || !b.Backup || a.State != b.PeerState || b.State != a.PeerState || a.State == b.State || a.Peer == b.Peer ||
		!strings.HasSuffix(b.Peer, fmt.Sprintf(":%d", a.Port)) || !strings.HasSuffix(a.Peer, fmt.Sprintf(":%d", b.Port)) {
		t.Errorf("%+v and %+v", a, b)
	}
}
