package order

import (
	"time"

	"clustermap/chp/internal/hot"
	"clustermap/internal/timer"
)

// Hot is which keys are updated most, in a window.
type Hot struct {
	Began          time.Duration // the window: a counter that began at another time is another one
	Length         time.Duration
	Updates, Bytes uint64 // of all keys
	Keys           []hot.Key
}

// Hot returns which keys are updated most, at most n of them, the hottest first. Counting begins
// with the first call, and ends when there is none for hotIdle: otherwise it costs nothing.
func (q *Sequencer) Hot(n int) Hot {
	h := q.hotKeys()
	h.Keys = hot.Top(h.Keys, n)
	return h
}

func (q *Sequencer) hotKeys() Hot {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := timer.Now()
	if q.hot == nil {
		q.hot = hot.New(now)
	}
	q.hot.Asked = now
	h := Hot{Began: q.hot.Began, Length: now - q.hot.Began, Keys: q.hot.Keys()}
	h.Updates, h.Bytes = q.hot.Totals()
	return h
}
