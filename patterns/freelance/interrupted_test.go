package freelance

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestInterruptedRequest: a request whose handler is interrupted because its server
// ends goes to the next server.
func TestInterruptedRequest(t *testing.T) {
	t.Parallel()
	begun := make(chan bool, 1)
	s := startServer(t, ServerOptions{Handler: func(ctx context.Context, _ [][]byte) ([][]byte, error) {
		begun <- true
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	c, second := withSecond(t, s.Endpoint(), ClientOptions{})
	one := c.begin(testContext(t), "1")
	<-begun
	end, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if err := s.Shutdown(end); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if r := <-one; r.err != nil || r.Server != second.Endpoint() {
		t.Errorf("%v from %q", r.err, r.Server)
	}
}
