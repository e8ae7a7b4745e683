package sockets

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"clustermap/internal/queue"
)

// These tests are of loans on sockets that receive a stream; those on REQ and REP
// are beside them.

// needLoans skips a test that shows how connections are lent.
func needLoans(t *testing.T) {
	t.Helper()
	if !canLend {
		t.Skip("connections are not lent on this system")
	}
}

// numbered is a message with a number and some filling.
func numbered(i int) []byte {
	return binary.BigEndian.AppendUint32(bytes.Repeat([]byte{'x'}, i*i%1000), uint32(i))
}

func number(m []byte) int { return int(binary.BigEndian.Uint32(m[len(m)-4:])) }

// TestLoanTypes: for every type that queues its received messages the receive call reads
// the connection, once it has waited for a message.
func TestLoanTypes(t *testing.T) {
	needLoans(t)
	t.Parallel()
	type sender interface {
		Send(context.Context, ...[]byte) error
	}
	type receiver interface {
		Recv(context.Context) (Message, error)
		LastEndpoint() string
	}
	for _, c := range []struct {
		name string
		make func(t *testing.T) (receiver, *queue.Inbox, sender)
	}{
		{"PULL", func(t *testing.T) (receiver, *queue.Inbox, sender) {
			r := bind(t, NewPull, Options{})
			return r, &r.core.In, dialled(t, NewPush, Options{}, r.LastEndpoint())
		}},
		{"PAIR", func(t *testing.T) (receiver, *queue.Inbox, sender) {
			r := bind(t, NewPair, Options{})
			return r, &r.core.In, dialled(t, NewPair, Options{}, r.LastEndpoint())
		}},
		{"DEALER", func(t *testing.T) (receiver, *queue.Inbox, sender) {
			r := bind(t, NewDealer, Options{})
			return r, &r.core.In, dialled(t, NewDealer, Options{}, r.LastEndpoint())
		}},
		{"ROUTER", func(t *testing.T) (receiver, *queue.Inbox, sender) {
			r := bind(t, NewRouter, Options{})
			return r, &r.core.In, dialled(t, NewDealer, Options{}, r.LastEndpoint())
		}},
		{"SUB", func(t *testing.T) (receiver, *queue.Inbox, sender) {
			r := bind(t, NewSub, Options{})
			must(t, r.Subscribe(""))
			return r, &r.core.In, dialled(t, NewPub, Options{}, r.LastEndpoint())
		}},
		{"XSUB", func(t *testing.T) (receiver, *queue.Inbox, sender) {
			r := bind(t, NewXSub, Options{})
			must(t, r.Subscribe(""))
			return r, &r.core.In, dialled(t, NewPub, Options{}, r.LastEndpoint())
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r, in, s := c.make(t)
			ctx, cancel := context.WithCancel(testContext(t))
			got := make(chan []byte, 100)
			ended := make(chan error, 1)
			go func() {
				for {
					m, err := r.Recv(ctx)
					if err != nil {
						ended <- err
						return
					}
					got <- m[len(m)-1]
				}
			}()
			eventually(t, "a receive call reads the connection", func() bool {
				if in.Status().Read {
					return true
				}
				must(t, s.Send(testContext(t), []byte("message")))
				select { // a PUB may not know of the subscription yet
				case <-got:
				case <-time.After(10 * time.Millisecond):
				}
				for len(got) > 0 { // a goroutine that cannot pass on messages receives no more
					<-got
				}
				return in.Status().Read
			})
			must(t, s.Send(testContext(t), []byte("last")))
			for text := ""; text != "last"; {
				text = string(<-got)
			}
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("the context ends the wait with %v", err)
			}
		})
	}
}

// TestLoanStream: various receive calls in turn, with and without waiting, receive all
// messages that were sent, in order.
func TestLoanStream(t *testing.T) {
	t.Parallel()
	pull := bind(t, NewPull, Options{RecvHWM: 100})
	push := dialled(t, NewPush, Options{}, pull.LastEndpoint())
	const count = 20_000
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		for i := range count {
			if err := push.Send(testContext(t), numbered(i)); err != nil {
				t.Error(err)
				return
			}
			if i%500 == 0 {
				time.Sleep(100 * time.Microsecond) // that the receiver waits at times
			}
		}
	})
	var b Batch
	defer b.Release()
	next := 0
	expect := func(m []byte) {
		if i := number(m); i != next {
			t.Fatalf("message %d comes in place of %d", i, next)
		}
		next++
	}
	for i := 0; next < count; i++ {
		switch i % 4 {
		case 0:
			must(t, pull.RecvBatch(testContext(t), &b))
			for j := range b.Len() {
				body, _ := b.Message(j).Next()
				expect(body)
			}
		case 1, 2:
			m, err := pull.Recv(testContext(t))
			must(t, err)
			expect(m[0])
		default:
			for {
				m, err := pull.TryRecv()
				if errors.Is(err, ErrWouldBlock) {
					break
				}
				must(t, err)
				expect(m[0])
			}
		}
	}
}

// TestLoanShared: of several goroutines that receive from a socket one reads, and
// all get messages, each of them once.
func TestLoanShared(t *testing.T) {
	t.Parallel()
	pull := bind(t, NewPull, Options{})
	push := dialled(t, NewPush, Options{}, pull.LastEndpoint())
	const count = 20_000
	ctx, cancel := context.WithCancel(testContext(t))
	var mu sync.Mutex
	var got []int
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				m, err := pull.Recv(ctx)
				if err != nil {
					return
				}
				mu.Lock()
				if got = append(got, number(m[0])); len(got) == count {
					cancel()
				}
				mu.Unlock()
			}
		})
	}
	for i := range count {
		must(t, push.Send(testContext(t), numbered(i)))
		if i%100 == 0 {
			time.Sleep(20 * time.Microsecond)
		}
	}
	wg.Wait()
	cancel()
	slices.Sort(got)
	for i, n := range got {
		if i != n {
			t.Fatalf("message %d comes in place of %d", n, i)
		}
	}
	if len(got) != count {
		t.Errorf("%d messages, want %d", len(got), count)
	}
}

// TestLoanTryAlone: a receive call that does not wait reads the bytes that have come to a
// lent connection; without a message, it does not prolong the loan.
func TestLoanTryAlone(t *testing.T) {
	needLoans(t)
	t.Parallel()
	pull := open(t, NewPull, Options{})
	pull.core.Tuning.LoanTerm = 20 * time.Millisecond
	must(t, pull.Bind(testContext(t), "tcp://127.0.0.1:*"))
	push := dialled(t, NewPush, Options{}, pull.LastEndpoint())
	lent := func() bool {
		return pull.core.In.Status().Loan != nil
	}
	for i := range 10 {
		eventually(t, "the connection is lent", func() bool {
			go push.Send(context.Background(), []byte("message"))
			_, err := pull.Recv(testContext(t))
			must(t, err)
			return lent()
		})
		text := fmt.Sprint(i)
		must(t, push.Send(testContext(t), []byte(text)))
		eventually(t, "the message is there", func() bool {
			m, err := pull.TryRecv()
			return err == nil && string(m[0]) == text
		})
		eventually(t, "the loan ends", func() bool {
			_, err := pull.TryRecv()
			if !errors.Is(err, ErrWouldBlock) {
				t.Fatal(err)
			}
			return !lent()
		})
	}
}

// TestLoanBehind: a receive call that does not keep up with the peer leaves the reading
// to the reader.
func TestLoanBehind(t *testing.T) {
	needLoans(t)
	t.Parallel()
	pull := open(t, NewPull, Options{})
	pull.core.Tuning.Behind = 4 << 10
	must(t, pull.Bind(testContext(t), "tcp://127.0.0.1:*"))
	push := dialled(t, NewPush, Options{}, pull.LastEndpoint())
	received := make(chan int)
	done := make(chan struct{})
	go func() {
		defer close(received)
		for {
			m, err := pull.Recv(context.Background())
			if err != nil {
				return
			}
			select {
			case received <- len(m[0]):
			case <-done:
				return
			}
		}
	}()
	eventually(t, "a receive call reads the connection", func() bool {
		if !pull.core.In.Status().Read {
			must(t, push.Send(testContext(t), []byte("message")))
			<-received
		}
		return pull.core.In.Status().Read
	})
	large := make([]byte, 8<<10) // which comes in one piece
	must(t, push.Send(testContext(t), large))
	if n := <-received; n != len(large) {
		t.Fatalf("%d bytes were received, want %d", n, len(large))
	}
	close(done)
	// No other message comes, with which the connection might be lent again.
	if pull.core.In.Status().Read {
		t.Error("the receive call still reads the connection")
	}
}

// TestLoanSlow: a connection is lent only while messages come soon one after the
// other.
func TestLoanSlow(t *testing.T) {
	needLoans(t)
	t.Parallel()
	pull := bind(t, NewPull, Options{})
	push := dialled(t, NewPush, Options{}, pull.LastEndpoint())
	received := make(chan struct{})
	go func() {
		defer close(received)
		for {
			if _, err := pull.Recv(context.Background()); err != nil {
				return
			}
			received <- struct{}{}
		}
	}()
	t.Cleanup(func() {
		pull.Close()
		for range received {
		}
	})
	message := func() {
		must(t, push.Send(testContext(t), []byte("message")))
		<-received
	}
	eventually(t, "a receive call reads the connection", func() bool {
		if !pull.core.In.Status().Read {
			message()
		}
		return pull.core.In.Status().Read
	})
	eventually(t, "it has done so for long", func() bool {
		return pull.core.In.Status().Lapsed
	})
	message()
	if pull.core.In.Status().Loan != nil {
		t.Error("the connection is still lent")
	}

	// Now no wait is a short one.
	slow := open(t, NewPull, Options{})
	slow.core.Tuning.LoanTerm = time.Nanosecond
	must(t, slow.Bind(testContext(t), "tcp://127.0.0.1:*"))
	push = dialled(t, NewPush, Options{}, slow.LastEndpoint())
	for range 100 {
		done := make(chan struct{})
		go func() {
			defer close(done)
			push.Send(context.Background(), []byte("message"))
		}()
		_, err := slow.Recv(testContext(t))
		must(t, err)
		<-done
		if slow.core.In.Status().Loan != nil {
			t.Error("a connection is lent, though the peer makes us wait")
		}
	}
}

// TestLoanSpun: polling counts as waiting, so a receive call that keeps up by polling is
// not behind, however much it reads.
func TestLoanSpun(t *testing.T) {
	needLoans(t)
	t.Parallel()
	pull := open(t, NewPull, Options{BusyPoll: time.Second})
	pull.core.Tuning.Behind, pull.core.Tuning.LoanTerm = 4<<10, time.Hour
	must(t, pull.Bind(testContext(t), "tcp://127.0.0.1:*"))
	push := dialled(t, NewPush, Options{}, pull.LastEndpoint())
	for lent := 0; lent < 20; {
		done := make(chan struct{})
		go func() {
			defer close(done)
			time.Sleep(100 * time.Microsecond) // so that a receive call waits for it
			for s := pull.core.In.Status(); s.Loan != nil && !s.Read; s = pull.core.In.Status() {
				time.Sleep(10 * time.Microsecond)
			}
			push.Send(context.Background(), make([]byte, 1000))
		}()
		_, err := pull.Recv(testContext(t))
		must(t, err)
		<-done
		switch {
		case pull.core.In.Status().Loan != nil:
			lent++
		case lent > 0:
			t.Errorf("after %d messages the connection is not lent any more", lent)
			lent = 20
		}
	}
}
