//go:build !portable

package sockets

import (
	"context"
	"testing"
	"time"

	"clustermap/internal/link"
)

// TestBusyPoll: the option says for how long the one that reads looks.
func TestBusyPoll(t *testing.T) {
	t.Parallel()
	if link.NewSpin(1).Limit == 0 {
		t.Skip("one processor only: receive calls sleep at once")
	}
	for _, c := range []struct{ given, want time.Duration }{
		{0, DefaultBusyPoll}, {-1, 0}, {time.Millisecond, time.Millisecond},
	} {
		req, rep := couple(t, Options{BusyPoll: c.given})
		ctx, cancel := context.WithCancel(testContext(t))
		ended := rep.inRecv(t, req, ctx)
		if l := rep.core.In.Status().Loan; l != nil {
			if got := l.(interface{ Lent() *link.Receiving }).Lent().Spin.Limit; got != c.want {
				t.Errorf("BusyPoll %v: the receive call looks for %v, want %v", c.given, got, c.want)
			}
		}
		cancel()
		<-ended
	}
}
