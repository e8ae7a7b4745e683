package majordomo

import (
	"fmt"
	"slices"
	"sync"
	"testing"
)

// TestRequest: requests of both versions are executed by workers of both versions.
func TestRequest(t *testing.T) {
	t.Parallel()
	for _, v := range []Version{Version01, Version02} {
		for _, cv := range []Version{Version01, Version02} {
			t.Run(fmt.Sprintf("worker %v client %v", v, cv), func(t *testing.T) {
				t.Parallel()
				b, endpoint := startBroker(t, BrokerOptions{})
				startWorker(t, "echo", endpoint, echo, WorkerOptions{Version: v, Concurrency: 3})
				c := startClient(t, endpoint, ClientOptions{Version: cv})
				var all sync.WaitGroup
				for i := range 20 {
					all.Go(func() {
						for j := range 100 {
							want := []string{fmt.Sprint(i), fmt.Sprint(j)}
							reply, err := c.Request(testContext(t), "echo", []byte(want[0]), []byte(want[1]))
							if err != nil || !slices.Equal(texts(reply), want) {
								t.Errorf("%q, %v, want %q", reply, err, want)
								return
							}
						}
					})
				}
				all.Wait()
				if s := b.Stats(); s.Replies != 2000 || s.Malformed != 0 || s.Bytes != 0 {
					t.Errorf("%+v", s)
				}
			})
		}
	}
}
