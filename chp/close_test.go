package chp

import (
	"context"
	"testing"
)

// Close returns after Serve has ended everything, also if the end of Serve's context
// came first.
func TestServerCloseAwaitsServe(t *testing.T) {
	t.Parallel()
	for range 20 {
		s, err := NewServer(ServerOptions{Logger: quiet()})
		must(t, err)
		ctx, cancel := context.WithCancel(testContext(t))
		go s.Serve(ctx)
		<-s.Ready()
		c := startClient(t, s, ClientOptions{})
		must(t, c.WaitActive(testContext(t)))
		cancel()
		eventually(t, "Serve closes the sockets", func() bool {
			s.state.Lock()
			defer s.state.Unlock()
			return s.phase == phaseClosed
		})
		must(t, s.Close())
		select {
		case <-s.ended:
		default:
			t.Error("Close has returned, and the server has not ended")
			return
		}
	}
}
