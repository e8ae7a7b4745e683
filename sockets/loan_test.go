package sockets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"clustermap/internal/link"
	"clustermap/internal/testenv"
	"clustermap/zmtp"
)

// canLend says that the connections of tests can be lent.
const canLend = runtime.GOOS == "linux" && !portable

// couple is a REQ connected to a REP, after so many round trips that the
// connection is lent where that can be.
func couple(t *testing.T, o Options) (*Req, *Rep) {
	t.Helper()
	rep := bind(t, NewRep, o)
	req := dialled(t, NewReq, o, rep.LastEndpoint())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range warmUp {
			m, err := rep.Recv(testContext(t))
			if err == nil {
				err = rep.Send(context.Background(), m...)
			}
			if err != nil {
				t.Error(err)
			}
		}
	}()
	for i := range warmUp {
		ask(t, req, fmt.Sprint(i))
	}
	<-done
	return req, rep
}

const warmUp = 20

// ask asks, and looks at the reply, which is to be the same.
func ask(t *testing.T, req *Req, text string) {
	t.Helper()
	must(t, req.Send(testContext(t), []byte(text)))
	m, err := req.Recv(testContext(t))
	must(t, err)
	if len(m) != 1 || string(m[0]) != text {
		t.Fatalf("the reply is %q, want %q", texts(m), text)
	}
}

// answer answers one request with itself.
func answer(t *testing.T, rep *Rep) {
	t.Helper()
	m, err := rep.Recv(testContext(t))
	must(t, err)
	must(t, rep.Send(context.Background(), m...))
}

// inLoan has a REP be asked until the goroutine that receives from it reads the
// connection, which it does when it was back in time.
func inLoan(t *testing.T, req *Req, rep *Rep) {
	t.Helper()
	if !canLend {
		ask(t, req, "question") // so that there is a connection, as after a loan
		return
	}
	eventually(t, "a receive call reads the connection", func() bool {
		// Many requests without a pause in between: a connection is not lent to
		// a receive call that waits for long.
		for range warmUp {
			if rep.core.In.Status().Read {
				return true
			}
			ask(t, req, "question")
		}
		return false
	})
}

// inRecv has a REP wait in a loan for a request that does not come.
func (r *Rep) inRecv(t *testing.T, req *Req, ctx context.Context) <-chan error {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		for {
			m, err := r.Recv(ctx)
			if err == nil {
				err = r.Send(ctx, m...)
			}
			if err != nil {
				ended <- err
				return
			}
		}
	}()
	inLoan(t, req, r)
	return ended
}

// TestLoan: with one peer, and a goroutine that always comes back, that one
// reads; the messages are the right ones.
func TestLoan(t *testing.T) {
	t.Parallel()
	req, rep := couple(t, Options{})
	ctx, cancel := context.WithCancel(testContext(t))
	ended := rep.inRecv(t, req, ctx)
	for i := range testenv.Rounds(2000) {
		ask(t, req, string(bytes.Repeat([]byte{'x'}, i*i%100_000)))
	}
	inLoan(t, req, rep)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the context ends the wait with %v", err)
	}
	// And with another context it goes on.
	go answer(t, rep)
	ask(t, req, "once more")
}

// TestLoanContexts: a context of its own for each call.
func TestLoanContexts(t *testing.T) {
	t.Parallel()
	req, rep := couple(t, Options{})
	var wg sync.WaitGroup
	defer wg.Wait()
	done := make(chan struct{})
	defer close(done)
	wg.Go(func() {
		for {
			ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
			m, err := rep.Recv(ctx)
			cancel()
			switch {
			case err == nil:
				must(t, rep.Send(context.Background(), m...))
			case !errors.Is(err, context.DeadlineExceeded):
				t.Error(err)
				return
			}
			select {
			case <-done:
				return
			default:
			}
		}
	})
	for i := range 500 {
		ask(t, req, fmt.Sprint(i))
		if i%50 == 0 {
			time.Sleep(3 * time.Millisecond)
		}
	}
}

// TestLoanClose: Close ends the call that reads.
func TestLoanClose(t *testing.T) {
	t.Parallel()
	req, rep := couple(t, Options{})
	ended := rep.inRecv(t, req, context.Background())
	must(t, rep.Close())
	if err := <-ended; !errors.Is(err, ErrClosed) {
		t.Errorf("Close ends the wait with %v", err)
	}
}

// TestLoanLinger: Close ends the wait of a receive call at once, while it still waits for
// queued messages to be sent.
func TestLoanLinger(t *testing.T) {
	t.Parallel()
	rep := bind(t, NewRep, Options{})
	req := dialled(t, NewReq, Options{Linger: time.Hour}, rep.LastEndpoint())
	go func() {
		for range warmUp {
			answer(t, rep)
		}
	}()
	for range warmUp {
		ask(t, req, "question")
	}
	// The next request goes to a peer that never comes.
	must(t, req.Connect(freePort(t)))
	must(t, req.Send(testContext(t), []byte("never")))
	ended := make(chan error, 1)
	go func() {
		_, err := req.Recv(context.Background())
		ended <- err
	}()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = req.CloseContext(ctx) })
	if err := <-ended; !errors.Is(err, ErrClosed) {
		t.Errorf("the wait ends with %v", err)
	}
	cancel()
	wg.Wait()
}

// TestLoanSecondPeer: another peer that comes is heard, though a receive call reads only
// the first one's connection.
func TestLoanSecondPeer(t *testing.T) {
	t.Parallel()
	req, rep := couple(t, Options{})
	ctx, cancel := context.WithCancel(testContext(t))
	ended := rep.inRecv(t, req, ctx)
	other := dialled(t, NewReq, Options{}, rep.LastEndpoint())
	for i := range 100 {
		ask(t, other, fmt.Sprint(i))
		ask(t, req, fmt.Sprint(i))
	}
	must(t, other.Close())
	for range warmUp {
		ask(t, req, "alone again")
	}
	cancel()
	<-ended
}

// TestLoanLost: the end of the connection in a loan is noticed, and the next
// connection is read.
func TestLoanLost(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{}, 10)
	rep := bind(t, NewRep, Options{Monitor: func(e Event) {
		if e.Kind == EventDisconnected {
			gone <- struct{}{}
		}
	}})
	for range 3 {
		req := dialled(t, NewReq, Options{}, rep.LastEndpoint())
		ctx, cancel := context.WithCancel(testContext(t))
		ended := rep.inRecv(t, req, ctx)
		must(t, req.Close())
		<-gone
		cancel()
		<-ended
	}
}

// TestLoanUnused: a connection that is lent and not read is read again by its
// reader: the end of it is noticed.
func TestLoanUnused(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{}, 1)
	rep := bind(t, NewRep, Options{Monitor: func(e Event) {
		if e.Kind == EventDisconnected {
			gone <- struct{}{}
		}
	}})
	req := dialled(t, NewReq, Options{}, rep.LastEndpoint())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range warmUp {
			answer(t, rep)
		}
	}()
	for range warmUp {
		ask(t, req, "question")
	}
	<-done
	must(t, req.Close())
	<-gone
}

// TestLoanTry: TryRecv finds messages that have come, too.
func TestLoanTry(t *testing.T) {
	t.Parallel()
	req, rep := couple(t, Options{})
	for i := range 20 {
		must(t, req.Send(testContext(t), []byte("question")))
		eventually(t, "the request is there", func() bool {
			m, err := rep.TryRecv()
			if err == nil {
				must(t, rep.Send(context.Background(), m...))
			}
			return err == nil
		})
		if m, err := req.Recv(testContext(t)); err != nil || len(m) != 1 {
			t.Fatal(i, m, err)
		}
		if i%2 == 0 {
			go answer(t, rep)
			ask(t, req, "question")
		}
	}
}

// TestLoanPoller: a wait in a Poller, or on Readable's channel, misses no message either.
func TestLoanPoller(t *testing.T) {
	t.Parallel()
	req, rep := couple(t, Options{})
	var poller Poller
	defer poller.Close()
	for range 20 {
		must(t, poller.Add(rep, PollIn))
		must(t, req.Send(testContext(t), []byte("question")))
		_, err := poller.Wait(testContext(t))
		must(t, err)
		answer(t, rep)
		_, err = req.Recv(testContext(t))
		must(t, err)
		poller.Remove(rep)
		go answer(t, rep)
		ask(t, req, "question")
	}
	must(t, req.Send(testContext(t), []byte("question")))
	<-rep.Readable()
	answer(t, rep)
}

// TestLoanStale: a message that comes after a reply, and before the next request, is no
// reply to that request, though it was not read before.
func TestLoanStale(t *testing.T) {
	t.Parallel()
	req := open(t, NewReq, Options{})
	req.core.Tuning.LoanTerm = time.Hour
	must(t, req.Bind(testContext(t), "tcp://127.0.0.1:*"))
	peer := dialRaw(t, req.LastEndpoint()).Greet("REP", nil)
	var sent link.Stream
	must(t, sent.Init(peer.Conn))
	lent := 0
	for i := 0; i < 1000 && lent < 20; i++ {
		body := fmt.Sprint(i)
		must(t, req.Send(testContext(t), []byte(body)))
		done := make(chan struct{})
		go func() {
			defer close(done)
			peer.Message()
			time.Sleep(10 * time.Microsecond) // so that a receive call waits for it
			peer.Send(wire("", body))
		}()
		got, err := req.Recv(testContext(t))
		must(t, err)
		<-done
		if string(got[0]) != body {
			t.Fatalf("the reply to %d is %q", i, got[0])
		}
		if req.core.In.Status().Loan != nil {
			lent++
			peer.Send(wire("", "stale"), wire("", "and another"))
			eventually(t, "it has arrived", func() bool { return sent.Unconfirmed() == 0 })
		}
	}
	if lent == 0 && canLend {
		t.Error("the connection was never lent")
	}
}

// TestDirectPartly: a message that the kernel takes in part goes out whole, in order.
func TestDirectPartly(t *testing.T) {
	t.Parallel()
	rep := bind(t, NewRep, Options{})
	req := dialled(t, NewReq, Options{SendBuffer: 4 << 10}, rep.LastEndpoint())
	go func() {
		for {
			m, err := rep.Recv(context.Background())
			if err != nil || rep.Send(context.Background(), m...) != nil {
				return
			}
		}
	}()
	const most = 16 << 10 // that a sender writes itself
	for i := range testenv.Rounds(300) {
		ask(t, req, string(bytes.Repeat([]byte{byte('a' + i%26)}, most-100-i)))
	}
}

// TestLoanBurst: a receive call that reads the connection is not held up by its own
// high-water mark: it queues the messages of one read, and takes them.
func TestLoanBurst(t *testing.T) {
	t.Parallel()
	rep := bind(t, NewRep, Options{RecvHWM: 10})
	peer := dialRaw(t, rep.LastEndpoint()).Greet("DEALER", nil)
	go func() {
		for {
			m, err := rep.Recv(context.Background())
			if err != nil || rep.Send(context.Background(), m...) != nil {
				return
			}
		}
	}()
	for range 20 {
		for range warmUp {
			peer.Send(wire("", "question"))
			peer.Message()
		}
		const burst = 500
		peer.Send(bytes.Repeat(wire("", "question"), burst))
		for range burst {
			peer.Message()
		}
	}
}

// TestLoanFlood: a peer that sends commands without a pause does not keep the
// context of the reading call from having its effect.
func TestLoanFlood(t *testing.T) {
	t.Parallel()
	rep := bind(t, NewRep, Options{})
	peer := dialRaw(t, rep.LastEndpoint()).Greet("DEALER", nil)
	ctx, cancel := context.WithCancel(testContext(t))
	ended := make(chan error, 1)
	go func() {
		for {
			m, err := rep.Recv(ctx)
			if err == nil {
				err = rep.Send(ctx, m...)
			}
			if err != nil {
				ended <- err
				return
			}
		}
	}()
	for range warmUp {
		peer.Send(wire("", "question"))
		peer.Message()
	}
	// A command without an answer.
	flood := bytes.Repeat(zmtp.AppendCommand(nil, zmtp.CommandPong, nil), 10_000)
	_, err := peer.Conn.Write(flood)
	must(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			if _, err := peer.Conn.Write(flood); err != nil {
				return
			}
		}
	}()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the wait ends with %v", err)
	}
	must(t, peer.Conn.Close())
	<-done
}

// TestLoanStaleBurst: a REQ that drops the messages that came before its request is not
// held up either.
func TestLoanStaleBurst(t *testing.T) {
	t.Parallel()
	req := open(t, NewReq, Options{RecvHWM: 10})
	req.core.Tuning.LoanTerm = time.Hour
	must(t, req.Bind(testContext(t), "tcp://127.0.0.1:*"))
	peer := dialRaw(t, req.LastEndpoint()).Greet("REP", nil)
	for range 20 {
		for range warmUp {
			must(t, req.Send(testContext(t), []byte("question")))
			done := make(chan struct{})
			go func() {
				defer close(done)
				peer.Message()
				peer.Send(wire("", "answer"))
			}()
			_, err := req.Recv(testContext(t))
			must(t, err)
			<-done
		}
		peer.Send(bytes.Repeat(wire("", "answer"), 500))
	}
}
