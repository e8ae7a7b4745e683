package perf

import (
	"context"
	"io"

	"clustermap/sockets"
)

// LocalThr receives over a bound PULL, and prints the throughput.
var LocalThr = Tool{"local_thr", "<bind-to> <message-size> <message-count> [<enable_curve>]", 3, 4, localThr}

// RemoteThr sends over a connected PUSH.
var RemoteThr = Tool{"remote_thr", "<connect-to> <message-size> <message-count> [<enable_curve>]", 3, 4, remoteThr}

func localThr(ctx context.Context, a arguments, out io.Writer) error {
	return bound(ctx, a, sockets.Options{}, sockets.NewPull, func(s *sockets.Pull) error {
		elapsed, err := receive(ctx, s, a)
		if err == nil {
			printCount(out, a, "message")
			printThroughput(out, a, elapsed)
		}
		return err
	})
}

func remoteThr(ctx context.Context, a arguments, _ io.Writer) error {
	return connected(a, lingers, sockets.NewPush, func(s *sockets.Push) error { return send(ctx, s, a) })
}
