package perf

import (
	"context"
	"fmt"
	"io"
	"time"

	"clustermap/sockets"
)

// LocalLat answers over a bound REP.
var LocalLat = Tool{"local_lat", "<bind-to> <message-size> <roundtrip-count>", 3, 3, localLat}

// RemoteLat asks over a connected REQ, and prints the latency: half of a round
// trip.
var RemoteLat = Tool{"remote_lat", "<connect-to> <message-size> <roundtrip-count>", 3, 3, remoteLat}

func localLat(ctx context.Context, a arguments, _ io.Writer) error {
	return bound(ctx, a, lingers, sockets.NewRep, func(s *sockets.Rep) error { return answer(ctx, s, a) })
}

func remoteLat(ctx context.Context, a arguments, out io.Writer) error {
	return connected(a, sockets.Options{}, sockets.NewReq, func(s *sockets.Req) error {
		elapsed, err := ask(ctx, s, a)
		if err == nil {
			printCount(out, a, "roundtrip")
			printLatency(out, a, elapsed)
		}
		return err
	})
}

// checkMessage checks that a message is one frame of the size.
func checkMessage(m sockets.Message, size int) error {
	if len(m) != 1 || len(m[0]) != size {
		return errSize
	}
	return nil
}

// caller is a socket that sends and receives.
type caller interface {
	sender
	Recv(ctx context.Context) (sockets.Message, error)
}

// ask makes count round trips, and returns how long they took.
func ask(ctx context.Context, s caller, a arguments) (time.Duration, error) {
	message := make([]byte, a.size)
	start := time.Now()
	for range a.count {
		if err := s.Send(ctx, message); err != nil {
			return 0, err
		}
		m, err := s.Recv(ctx)
		if err == nil {
			err = checkMessage(m, a.size)
		}
		if err != nil {
			return 0, err
		}
	}
	return time.Since(start), nil
}

// answer sends count requests back.
func answer(ctx context.Context, s caller, a arguments) error {
	for range a.count {
		m, err := s.Recv(ctx)
		if err == nil {
			err = checkMessage(m, a.size)
		}
		if err == nil {
			err = s.Send(ctx, m...)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func printLatency(out io.Writer, a arguments, elapsed time.Duration) {
	fmt.Fprintf(out, "average latency: %.3f [us]\n", microseconds(elapsed)/float64(a.count)/2)
}
