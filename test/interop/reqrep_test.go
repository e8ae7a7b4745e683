package interop

import (
	"fmt"
	"testing"

	"clustermap/internal/interop"
	"clustermap/sockets"
)

func TestInteropReq(t *testing.T) {
	t.Parallel()
	for _, correlate := range []bool{false, true} {
		t.Run(fmt.Sprint("correlate ", correlate), func(t *testing.T) {
			t.Parallel()
			bothWays(t, func(t *testing.T, who side) {
				ctx := timeLimit(t)
				req := open(t, sockets.NewReq, sockets.Options{ReqCorrelate: correlate, ReqRelaxed: correlate})
				rep := linkTo(t, req, who, "REP")
				for seed, s := range shapes(false) {
					message := interop.Frames(seed, 0, s)
					check(t, req.Send(ctx, message...))
					rep.Call(interop.Op{"op": "echo", "n": 1}, nil)
					m, err := req.Recv(ctx)
					check(t, err)
					wantFrames(t, m, message)
				}
			})
		})
	}
}

func TestInteropRep(t *testing.T) {
	t.Parallel()
	for _, option := range []string{"REQ_CORRELATE=0", "REQ_CORRELATE=1"} {
		t.Run(option, func(t *testing.T) {
			t.Parallel()
			bothWays(t, func(t *testing.T, who side) {
				ctx := timeLimit(t)
				rep := open(t, sockets.NewRep, sockets.Options{})
				req := linkTo(t, rep, who, "REQ", "--option", option)
				for seed, s := range shapes(false) {
					message := interop.Frames(seed, 0, s)
					sent := pythonSends(req, nil, seed, s, 1)
					m, err := rep.Recv(ctx)
					check(t, err)
					wantFrames(t, m, message)
					check(t, rep.Send(ctx, m...))
					sent.Done(nil)
					wantDescribed(t, pythonReceives(req, 1)[0], message)
				}
			})
		})
	}
}

// TestInteropReqRepChain puts libzmq's ROUTER and DEALER between the two, by
// hand: the envelope grows on the way there and shrinks on the way back.
func TestInteropReqRepChain(t *testing.T) {
	t.Parallel()
	ctx := timeLimit(t)
	req := open(t, sockets.NewReq, sockets.Options{Identity: []byte("me")})
	rep := open(t, sockets.NewRep, sockets.Options{})
	front := linkTo(t, req, theyBind, "ROUTER")
	back := linkTo(t, rep, weBind, "DEALER")
	check(t, req.Send(ctx, []byte("request")))
	got := pythonReceives(front, 1)[0]
	wantDescribed(t, got, [][]byte{[]byte("me"), nil, []byte("request")})
	pythonSays(back, "me", "", "request")
	m, err := rep.Recv(ctx)
	check(t, err)
	wantFrames(t, m, [][]byte{[]byte("request")})
	check(t, rep.Send(ctx, []byte("reply")))
	wantDescribed(t, pythonReceives(back, 1)[0], [][]byte{[]byte("me"), nil, []byte("reply")})
	pythonSays(front, "me", "", "reply")
	m, err = req.Recv(ctx)
	check(t, err)
	wantFrames(t, m, [][]byte{[]byte("reply")})
}

func TestInteropPair(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, who side) {
		ctx := timeLimit(t)
		pair := open(t, sockets.NewPair, sockets.Options{})
		other := linkTo(t, pair, who, "PAIR")
		for seed, s := range shapes(false) {
			message := interop.Frames(seed, 0, s)
			check(t, pair.Send(ctx, message...))
			wantDescribed(t, pythonReceives(other, 1)[0], message)
			sent := pythonSends(other, nil, seed, s, 1)
			m, err := pair.Recv(ctx)
			check(t, err)
			wantFrames(t, m, message)
			sent.Done(nil)
		}
	})
}
