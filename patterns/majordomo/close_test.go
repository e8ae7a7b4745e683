package majordomo

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"clustermap/sockets"
)

// TestClientCloseWhileConnecting: Close returns while requests open connections to a
// broker of another implementation, at any stage of their handshakes.
func TestClientCloseWhileConnecting(t *testing.T) {
	t.Parallel()
	// A router that never replies needs a connection for each request.
	router, err := sockets.NewRouter(sockets.Options{})
	must(t, err)
	t.Cleanup(func() { router.Close() })
	must(t, router.Bind(testContext(t), anyPort))
	endpoint := router.LastEndpoint()
	for i := range 200 {
		c := startClient(t, endpoint, ClientOptions{Connections: 8})
		var requests sync.WaitGroup
		for range 8 {
			requests.Go(func() {
				if _, err := c.Request(context.Background(), "service"); !errors.Is(err, ErrClosed) {
					t.Error(err)
				}
			})
		}
		time.Sleep(time.Duration(i%40) * 100 * time.Microsecond)
		must(t, c.Close())
		requests.Wait()
	}
}
