package chp

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// A client joins a map of a million keys while updates go on, and ends with the
// server's state; several that come at once are served by few passes.
func TestJoinLargeMap(t *testing.T) {
	t.Parallel()
	keys := 1_000_000
	switch {
	case raceDetector:
		keys = 100_000
	case testing.Short():
		keys = 200_000
	}
	ctx := testContext(t)
	s := startServer(t, ServerOptions{SubscriberQueue: 512 << 20})
	writer := startClient(t, s, ClientOptions{Subtrees: []string{"/flush"}})
	must(t, writer.WaitActive(ctx))
	value := make([]byte, 32)
	for i := range keys {
		must(t, writer.Set(ctx, fmt.Sprintf("/m/%07d", i), value))
	}
	_, err := writer.SetSync(ctx, "/flush", value)
	must(t, err)
	if s.Len() != keys+1 {
		t.Fatalf("the server has %d keys", s.Len())
	}

	stop := make(chan struct{})
	var writing sync.WaitGroup
	changed := 0
	writing.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				changed = i
				if _, err := writer.SetSync(ctx, "/flush", []byte("end")); err != nil {
					t.Error(err)
				}
				return
			default:
			}
			if i > keys && i%100 == 0 {
				// The longer joining takes, the slower: the updates that wait for the
				// newcomers meanwhile have to fit in SubscriberQueue.
				time.Sleep(time.Millisecond)
			}
			key := fmt.Sprintf("/m/%07d", i*7919%keys)
			var err error
			if i%5 == 0 {
				err = writer.Delete(ctx, key)
			} else {
				err = writer.Set(ctx, key, fmt.Appendf(nil, "%032d", i))
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	began := time.Now()
	var joined []*Client
	for range 3 {
		joined = append(joined, startClient(t, s, ClientOptions{}))
	}
	for _, c := range joined {
		must(t, c.WaitActive(ctx))
	}
	took := time.Since(began)
	close(stop)
	writing.Wait()
	if changed == 0 {
		t.Error("no updates went on: the test does not test")
	}
	for _, c := range joined {
		waitEqual(t, s, c)
		if st := c.Stats(); st.Syncs != 1 || st.Gaps != 0 {
			t.Errorf("%d snapshots and %d gaps", st.Syncs, st.Gaps)
		}
	}
	t.Logf("three clients in sync with %d keys after %v, during %d updates", keys, took.Round(time.Millisecond), changed)
}
