package queue

import (
	"context"
	"errors"
	"testing"
	"time"
)

// borrowed is a connection whose reads return a test's results.
type borrowed struct {
	reads  chan func() (found, again bool, err error)
	kicked chan struct{}
}

func newBorrowed() *borrowed {
	return &borrowed{make(chan func() (found, again bool, err error)), make(chan struct{}, 1)}
}

func (b *borrowed) Receive(context.Context) (found, again bool, err error) { return (<-b.reads)() }

func (b *borrowed) Kick() { b.kicked <- struct{}{} }

// TestLendingEnds: the reader gets its connection back, with the error that ended
// it, when the receive call that has it says so, or it is not used, or it is recalled.
func TestLendingEnds(t *testing.T) {
	t.Parallel()
	failed := errors.New("read failed")
	type test struct {
		in   *Inbox
		from *borrowed
		gone chan struct{}
	}
	read := func(x test, again bool, err error) {
		done := make(chan bool)
		go func() { done <- x.in.Poll() }()
		x.from.reads <- func() (bool, bool, error) { return true, again, err }
		if !<-done {
			t.Error("the message that was found is not reported")
		}
	}
	for name, c := range map[string]struct {
		term time.Duration
		do   func(x test)
		want error
	}{
		"unused":       {time.Millisecond, func(test) {}, nil},
		"given back":   {time.Hour, func(x test) { read(x, false, nil) }, nil},
		"ended":        {time.Hour, func(x test) { read(x, true, nil); read(x, false, failed) }, failed},
		"another peer": {time.Hour, func(x test) { read(x, true, nil); x.in.Peers(1) }, nil},
		"readable":     {time.Hour, func(x test) { x.in.Readable() }, nil},
		"poller":       {time.Hour, func(x test) { x.in.Watch(make(chan struct{}, 1)) }, nil},
		"closed":       {time.Hour, func(x test) { x.in.Close() }, nil},
		"connection":   {time.Hour, func(x test) { close(x.gone) }, ErrClosed},
		"recalled while read": {time.Hour, func(x test) {
			go x.in.Poll()
			x.from.reads <- func() (bool, bool, error) {
				x.in.Peers(1)
				<-x.from.kicked
				return false, true, nil
			}
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := test{newInbox(HWM{Messages: 1, Bytes: 1}), newBorrowed(), make(chan struct{})}
			var l Lending
			l.Init(x.from, c.term)
			x.in.Peers(1)
			back := make(chan error)
			go func() { back <- x.in.Lend(&l, x.gone) }()
			if name != "unused" {
				eventually(t, "it is lent", func() bool { return x.in.Status().Loan != nil })
			}
			c.do(x)
			if err := <-back; err != c.want {
				t.Errorf("the reader gets it back with %v, want %v", err, c.want)
			}
			if x.in.Poll() {
				t.Error("it is still lent")
			}
		})
	}
}
