package chp

import (
	"fmt"
	"strconv"
	"sync"
	"testing"

	"clustermap/internal/testenv"
)

// TestCollectOrder: the updates of a client stay in order and none is lost.
func TestCollectOrder(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	replica := startClient(t, s, ClientOptions{WatchQueue: 64 << 20})
	must(t, replica.WaitActive(ctx))
	w, err := replica.Watch()
	must(t, err)
	defer w.Close()

	var others sync.WaitGroup
	defer others.Wait()
	const clients = 3
	n := testenv.Rounds(3000)
	for k := range clients {
		c := startClient(t, s, ClientOptions{Subtrees: []string{"/none/"}})
		others.Go(func() {
			for i := range n {
				if err := c.Set(ctx, fmt.Sprintf("/%d", k), []byte(strconv.Itoa(i))); err != nil {
					t.Error(err)
					return
				}
				if i%50 == 0 {
					if err := c.Flush(ctx); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	next := map[string]int{}
	for seen := 0; seen < clients*n; {
		e, err := w.Next(ctx)
		must(t, err)
		if e.Op != OpSet {
			continue
		}
		if want := strconv.Itoa(next[string(e.Key)]); string(e.Value) != want {
			t.Fatalf("%s has the value %s, want %s", e.Key, e.Value, want)
		}
		next[string(e.Key)]++
		seen++
	}
}
