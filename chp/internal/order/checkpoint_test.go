package order

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"clustermap/chp/internal/journal"
	"clustermap/chp/internal/ledger"
	"clustermap/chp/internal/live"
	"clustermap/chp/internal/state"
)

// lastMap is a journal that remembers the identities of the maps that were stored.
type lastMap struct {
	journal.Memory
	during func() // called by Save, between what it does and its return

	mu     sync.Mutex
	stored []byte // the first byte of each identity
}

func (j *lastMap) Save(_ context.Context, cut func() (*state.Image, journal.Index)) error {
	c, _ := cut()
	defer c.Release()
	j.mu.Lock()
	j.stored = append(j.stored, c.ID[0])
	during := j.during
	j.during = nil
	j.mu.Unlock()
	if during != nil {
		during()
	}
	return nil
}

func (j *lastMap) maps() []byte {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.stored)
}

// A checkpoint that is due while a passive server stores the copy of a map does not store the
// map before it once more: later entries would follow that one, and a restart would take the
// result for the active server's map.
func TestCheckpointBesideACopyStoresTheCopy(t *testing.T) {
	t.Parallel()
	const before, copied = 1, 2
	j := new(lastMap)
	begin := state.New(1)
	begin.ID[0] = before
	q := new(Sequencer)
	q.Init(Options{Live: new(live.Map), State: begin, Journal: j, Publisher: nobody{}, EarlyTimeout: time.Second})
	var checkpoint sync.WaitGroup
	j.during = func() {
		checkpoint.Go(func() {
			if err := q.Checkpoint(t.Context()); err != nil {
				t.Error(err)
			}
		})
		for range 10_000 { // it gets every chance to come first
			if runtime.Gosched(); len(j.maps()) > 1 {
				return
			}
		}
	}
	if err := q.Install(t.Context(), q.NewCopy(1, [ledger.MapIDSize]byte{copied}, []state.Reign{{}})); err != nil {
		t.Fatal(err)
	}
	checkpoint.Wait()
	if got := j.maps(); !slices.Equal(got, []byte{copied, copied}) {
		t.Errorf("the journal got the maps %v, in this order; the server has %d", got, q.Live().Now().ID[0])
	}
}
