package sockets

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"
)

// patient couples a REQ and a REP whose connections stay lent until they are handed back.
func patient(t *testing.T) (*Req, *Rep) {
	t.Helper()
	if !canLend {
		t.Skip("connections are not lent here")
	}
	rep, req := open(t, NewRep, Options{}), open(t, NewReq, Options{})
	rep.core.Tuning.LoanTerm, req.core.Tuning.LoanTerm = hang, hang
	must(t, rep.Bind(testContext(t), anyPort))
	must(t, req.Connect(rep.LastEndpoint()))
	return req, rep
}

// TestLoanSurvivesTheContextOfAnotherCall: the end of a context reaches the receive call that it
// was given to, and not a later one, which would hand the connection back.
func TestLoanSurvivesTheContextOfAnotherCall(t *testing.T) {
	t.Parallel()
	req, rep := patient(t)
	ctx, cancel := context.WithCancel(testContext(t))
	ended := rep.inRecv(t, req, ctx)
	for i := range 20 {
		// Two calls with one context, then its end.
		asked, done := context.WithCancel(testContext(t))
		for range 2 {
			must(t, req.Send(asked, []byte("question")))
			_, err := req.Recv(asked)
			must(t, err)
		}
		lent := req.core.In.Status().Loan != nil
		ended := make(chan struct{})
		context.AfterFunc(asked, func() { close(ended) })
		done()
		<-ended // and so any other function that its end may have started
		runtime.Gosched()
		ask(t, req, fmt.Sprint(i))
		if lent && req.core.In.Status().Loan == nil {
			t.Fatalf("round %d: a call was ended by the context of another one", i)
		}
	}
	// Its own ends it.
	inLoan(t, req, rep)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the context ends the wait with %v", err)
	}
}

// TestLentReceiveEndsWithItsContext: a receive call ends with its context, if that was used before or
// not, and whether it ends before the call waits or then. Nothing is lost by it.
func TestLentReceiveEndsWithItsContext(t *testing.T) {
	t.Parallel()
	pull := open(t, NewPull, Options{BusyPoll: -1})
	pull.core.Tuning.LoanTerm = hang
	must(t, pull.Bind(testContext(t), anyPort))
	push := dialled(t, NewPush, Options{}, pull.LastEndpoint())
	pass := func(ctx context.Context, n int) {
		t.Helper()
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range n {
				time.Sleep(100 * time.Microsecond) // so that the call waits as a rule
				must(t, push.Send(testContext(t), []byte("x")))
			}
		}()
		for range n {
			_, err := pull.Recv(ctx)
			must(t, err)
		}
		<-done
	}
	inLoans := 0
	for i := 0; i < 150 || canLend && inLoans == 0; i++ {
		ctx, cancel := context.WithCancel(testContext(t))
		pass(ctx, i%4)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			time.Sleep(time.Duration(i%5) * 20 * time.Microsecond)
			if pull.core.In.Status().Read {
				inLoans++
			}
			cancel()
		}()
		if _, err := pull.Recv(ctx); !errors.Is(err, context.Canceled) {
			t.Fatalf("round %d: %v", i, err)
		}
		<-ended
		pass(testContext(t), 2)
	}
}

// BenchmarkReqRepContext: a round trip over tcp with one context for all, and
// with a context of its own, with a deadline, for each on both sides; in turn,
// so that both see the same machine. It reports the ratio of the times.
func BenchmarkReqRepContext(b *testing.B) {
	var total [2]time.Duration
	run := func(per bool, n int) time.Duration {
		rep := bind(b, NewRep, Options{})
		req := dialled(b, NewReq, Options{}, rep.LastEndpoint())
		defer rep.Close()
		defer req.Close()
		call := func(f func(ctx context.Context) error) error {
			ctx := b.Context()
			if per {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, hang)
				defer cancel()
			}
			return f(ctx)
		}
		const warm = 100
		var wg sync.WaitGroup
		wg.Go(func() {
			for range warm + n {
				must(b, call(func(ctx context.Context) error {
					m, err := rep.Recv(ctx)
					if err != nil {
						return err
					}
					return rep.Send(ctx, m...)
				}))
			}
		})
		question := []byte("question")
		round := func(ctx context.Context) error {
			if err := req.Send(ctx, question); err != nil {
				return err
			}
			_, err := req.Recv(ctx)
			return err
		}
		for range warm {
			must(b, call(round))
		}
		start := time.Now()
		for range n {
			must(b, call(round))
		}
		took := time.Since(start)
		wg.Wait()
		return took
	}
	const turns = 8
	for b.Loop() {
		for range turns {
			for i, per := range []bool{false, true} {
				total[i] += run(per, 2000)
			}
		}
	}
	n := float64(b.N) * turns * 2000
	b.ReportMetric(float64(total[0])/n, "ns/one-context")
	b.ReportMetric(float64(total[1])/n, "ns/context-per-call")
	b.ReportMetric(float64(total[1])/float64(total[0]), "ratio")
}
