package interop

import (
	"fmt"
	"testing"

	"clustermap/internal/interop"
	"clustermap/sockets"
)

func bothWays(t *testing.T, test func(t *testing.T, who side)) {
	for _, who := range []side{weBind, theyBind} {
		t.Run(fmt.Sprint(who), func(t *testing.T) {
			t.Parallel()
			test(t, who)
		})
	}
}

func TestInteropPush(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, who side) {
		ctx := timeLimit(t)
		push := open(t, sockets.NewPush, sockets.Options{})
		pull := linkTo(t, push, who, "PULL")
		for seed, s := range shapes(false) {
			message := interop.Frames(seed, 0, s)
			check(t, push.Send(ctx, message...))
			wantDescribed(t, pythonReceives(pull, 1)[0], message)
		}
		bodies := interop.Frames(99, 0, shape{1, 0, 255, 256, 70_000})
		n, err := push.SendBatch(ctx, bodies)
		check(t, err)
		for i, got := range pythonReceives(pull, n) {
			wantDescribed(t, got, bodies[i:i+1])
		}
	})
}

func TestInteropPull(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, who side) {
		ctx := timeLimit(t)
		pull := open(t, sockets.NewPull, sockets.Options{})
		push := linkTo(t, pull, who, "PUSH")
		for seed, s := range shapes(false) {
			sent := pythonSends(push, nil, seed, s, s.count())
			for i := range s.count() {
				m, err := pull.Recv(ctx)
				check(t, err)
				wantFrames(t, m, interop.Frames(seed, i, s))
			}
			sent.Done(nil)
		}
	})
}
