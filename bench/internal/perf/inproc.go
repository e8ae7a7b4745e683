package perf

import (
	"context"
	"errors"
	"io"

	"clustermap/sockets"
)

// InprocThr sends from one goroutine to another, and prints the throughput.
var InprocThr = Tool{"inproc_thr", "<message-size> <message-count>", 2, 2, inprocThr}

// InprocLat asks one goroutine from another, and prints the latency: half of a
// round trip.
var InprocLat = Tool{"inproc_lat", "<message-size> <roundtrip-count>", 2, 2, inprocLat}

func inprocThr(ctx context.Context, a arguments, out io.Writer) (err error) {
	const endpoint = "inproc://thr_test"
	o := sockets.Options{Inproc: new(sockets.Inproc)}
	pull, err := sockets.NewPull(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pull.Close()) }()
	if err := pull.Bind(ctx, endpoint); err != nil {
		return err
	}
	push, err := sockets.NewPush(o)
	if err != nil {
		return err
	}
	if err := push.Connect(endpoint); err != nil {
		return errors.Join(err, push.Close())
	}
	done := make(chan error, 1)
	go func() { done <- errors.Join(send(ctx, push, a), push.Close()) }()
	printCount(out, a, "message")
	elapsed, err := receive(ctx, pull, a)
	if err != nil {
		// The other one may wait for room.
		return errors.Join(err, push.Close(), <-done)
	}
	if err := <-done; err != nil {
		return err
	}
	printThroughput(out, a, elapsed)
	return nil
}

func inprocLat(ctx context.Context, a arguments, out io.Writer) (err error) {
	const endpoint = "inproc://lat_test"
	o := sockets.Options{Inproc: new(sockets.Inproc)}
	req, err := sockets.NewReq(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, req.Close()) }()
	if err := req.Bind(ctx, endpoint); err != nil {
		return err
	}
	rep, err := sockets.NewRep(o)
	if err != nil {
		return err
	}
	if err := rep.Connect(endpoint); err != nil {
		return errors.Join(err, rep.Close())
	}
	done := make(chan error, 1)
	go func() { done <- errors.Join(answer(ctx, rep, a), rep.Close()) }()
	printCount(out, a, "roundtrip")
	elapsed, err := ask(ctx, req, a)
	if err != nil {
		return errors.Join(err, rep.Close(), <-done)
	}
	if err := <-done; err != nil {
		return err
	}
	printLatency(out, a, elapsed)
	return nil
}
