package order

import (
	"testing"
	"testing/synctest"
	"time"

	"clustermap/chp/internal/journal"
	"clustermap/chp/internal/live"
	"clustermap/chp/internal/state"
)

// Keys are counted from the first question on until there is none for a while.
func TestHotKeysAreCountedWhileSomebodyAsks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := new(Sequencer)
		q.Init(Options{Live: new(live.Map), State: state.New(1), Journal: journal.Memory{}, Publisher: nobody{}})
		if q.hot != nil {
			t.Error("counted before a question")
		}
		began := q.Hot(1).Began
		for range 10 {
			time.Sleep(hotIdle)
			q.heartbeat()
			if got := q.Hot(1).Began; got != began {
				t.Errorf("began anew at %v", got)
			}
		}
		time.Sleep(hotIdle + 1)
		q.heartbeat()
		if q.hot != nil {
			t.Error("goes on counting")
		}
		q.Shut()
	})
}
