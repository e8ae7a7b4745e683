package follow

import (
	"context"
	"testing"

	"clustermap/chp/internal/submit"
	"clustermap/internal/buf"
	"clustermap/internal/hooks"
	"clustermap/internal/testenv"
	"clustermap/internal/wake"
	"clustermap/sockets"
)

// oneSend is an uplink whose queue is full after a call of SendWire.
type oneSend struct {
	*sockets.Pub
	messages int
}

func (o *oneSend) SendWire(_ context.Context, _ []byte, messages int, _ hooks.Owner) error {
	if o.messages > 0 {
		return wake.Ended.Err()
	}
	o.messages = messages
	return nil
}

// A question goes with the updates before it when Send does not wait: behind them there may be no
// room for it, and it would be lost.
func TestQuestionIsNotLost(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, submit.Lent, 4 * submit.Lent} {
		pub, err := sockets.NewPub(sockets.Options{})
		testenv.Must(t, err)
		defer pub.Close()
		o := &oneSend{Pub: pub}
		u := &uplink{pub: o}
		chunk := buf.Get(4 * submit.Lent)
		testenv.Must(t, u.Send(false, chunk.Data()[:size], 3, chunk, true))
		chunk.Release()
		if n := cap(u.asking); n > 2*submit.Lent {
			t.Errorf("with %d bytes: %d are kept", size, n)
		}
		if o.messages != 4 {
			t.Errorf("with %d bytes: %d messages were sent, want 4", size, o.messages)
		}
	}
}
