package perf

import (
	"context"
	"errors"
	"io"
	"time"

	"clustermap/sockets"
)

// InprocThr sends from one goroutine to another, and prints the throughput.
var InprocThr = Tool{"inproc_thr", "<message-size> <message-count>", 2, 2, inprocThr}

// InprocLat asks one goroutine from another, and prints the latency: half of a
// round trip.
var InprocLat = Tool{"inproc_lat", "<message-size> <roundtrip-count>", 2, 2, inprocLat}

func inprocThr(ctx context.Context, a arguments, out io.Writer) error {
	return inproc(ctx, sockets.NewPull, sockets.NewPush,
		func(s *sockets.Pull) (time.Duration, error) {
			printCount(out, a, "message")
			return receive(ctx, s, a)
		},
		func(s *sockets.Push) error { return send(ctx, s, a) },
		func(elapsed time.Duration) { printThroughput(out, a, elapsed) })
}

func inprocLat(ctx context.Context, a arguments, out io.Writer) error {
	return inproc(ctx, sockets.NewReq, sockets.NewRep,
		func(s *sockets.Req) (time.Duration, error) {
			printCount(out, a, "roundtrip")
			return ask(ctx, s, a)
		},
		func(s *sockets.Rep) error { return answer(ctx, s, a) },
		func(elapsed time.Duration) { printLatency(out, a, elapsed) })
}

// inproc has two ends in this process, binds the one whose time counts, and prints the time if
// both succeed.
func inproc[A, B socket](ctx context.Context, openBound open[A], openOther open[B],
	work func(A) (time.Duration, error), workOther func(B) error, print func(time.Duration)) (err error) {
	const endpoint = "inproc://perf_test"
	o := sockets.Options{Inproc: new(sockets.Inproc)}
	s, err := openBound(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.Bind(ctx, endpoint); err != nil {
		return err
	}
	other, err := openOther(o)
	if err != nil {
		return err
	}
	if err := other.Connect(endpoint); err != nil {
		return errors.Join(err, other.Close())
	}
	done := make(chan error, 1)
	go func() { done <- errors.Join(workOther(other), other.Close()) }()
	elapsed, err := work(s)
	if err != nil {
		// The other one may wait for room.
		return errors.Join(err, other.Close(), <-done)
	}
	if err := <-done; err != nil {
		return err
	}
	print(elapsed)
	return nil
}
