package sockets

import (
	"context"
	"errors"
	"testing"
)

// TestCloseRefusesMessages: once Close has begun, a message to the only peer is
// refused, as Close says, though the socket still waits for its peer to take messages
// queued before.
func TestCloseRefusesMessages(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	for name, send := range map[string]func(*Dealer) error{
		"one frame":  func(d *Dealer) error { return d.Send(ctx, []byte("late")) },
		"two frames": func(d *Dealer) error { return d.Send(ctx, []byte("late"), []byte("late")) },
		"TrySend":    func(d *Dealer) error { return d.TrySend([]byte("late")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dealer := open(t, NewDealer, Options{SendHWM: 1 << 30, Linger: hang})
			must(t, dealer.Connect(freePort(t)))
			must(t, dealer.Send(ctx, []byte("early"))) // the peer does not take it, so Close waits
			closing, stop := context.WithCancel(ctx)
			defer stop()
			closed := make(chan struct{})
			go func() {
				defer close(closed)
				_ = dealer.CloseContext(closing)
			}()
			eventually(t, "messages are refused", func() bool { return errors.Is(send(dealer), ErrClosed) })
			select {
			case <-closed:
				t.Error("Close did not wait for the message that was sent before")
			default:
			}
			stop()
			<-closed
		})
	}
}
