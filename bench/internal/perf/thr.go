package perf

import (
	"context"
	"errors"
	"io"

	"clustermap/sockets"
)

// LocalThr receives over a bound PULL, and prints the throughput.
var LocalThr = Tool{"local_thr", "<bind-to> <message-size> <message-count> [<enable_curve>]", 3, 4, localThr}

// RemoteThr sends over a connected PUSH.
var RemoteThr = Tool{"remote_thr", "<connect-to> <message-size> <message-count> [<enable_curve>]", 3, 4, remoteThr}

func localThr(ctx context.Context, a arguments, out io.Writer) (err error) {
	o, err := serverOptions(a)
	if err != nil {
		return err
	}
	s, err := sockets.NewPull(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.Bind(ctx, a.endpoint); err != nil {
		return err
	}
	tellBound(ctx, s.LastEndpoint())
	elapsed, err := receive(ctx, s, a)
	if err != nil {
		return err
	}
	printCount(out, a, "message")
	printThroughput(out, a, elapsed)
	return nil
}

func remoteThr(ctx context.Context, a arguments, _ io.Writer) (err error) {
	o, err := clientOptions(a)
	if err != nil {
		return err
	}
	o.Linger = sockets.LingerForever // as libzmq's tools do
	s, err := sockets.NewPush(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.Connect(a.endpoint); err != nil {
		return err
	}
	return send(ctx, s, a)
}
