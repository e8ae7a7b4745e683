package sockets

import (
	"fmt"
	"slices"
	"testing"
)

// TestTurnsAreInTheOrderOfAccept: peers have their turns in the order in which they were
// accepted, not in that of their handshakes' ends.
func TestTurnsAreInTheOrderOfAccept(t *testing.T) {
	t.Parallel()
	const n = 5
	for name, order := range map[string][n]int{
		"backwards": {4, 3, 2, 1, 0},
		"mixed":     {2, 0, 4, 1, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen := newEvents()
			push := bind(t, NewPush, Options{Linger: LingerNone, Monitor: seen.Tell})
			var peers [n]*raw
			for i := range peers {
				peers[i] = dialRaw(t, push.LastEndpoint())
				seen.Await(t, EventAccepted)
			}
			for _, i := range order {
				peers[i].Greet("PULL", nil).Sync()
			}
			for round := range 2 {
				for i := range peers {
					says(t, push, fmt.Sprint(round, i))
				}
				for i, r := range peers {
					if m := r.Message(); string(m[0]) != fmt.Sprint(round, i) {
						t.Errorf("peer %d got %q in round %d", i, m, round)
					}
				}
			}
		})
	}
}

// TestLateHandshakeInARound: a peer whose handshake ends in the middle of a round has
// its turn if those accepted after it are still to have theirs, and no other peer loses
// one.
func TestLateHandshakeInARound(t *testing.T) {
	t.Parallel()
	for sent, want := range [][]int{{0, 1, 2}, {1, 2, 0}, {0, 1, 2}} {
		seen := newEvents()
		push := bind(t, NewPush, Options{Linger: LingerNone, Monitor: seen.Tell})
		var peers [3]*raw
		for i := range peers {
			peers[i] = dialRaw(t, push.LastEndpoint())
			seen.Await(t, EventAccepted)
		}
		peers[0].Greet("PULL", nil).Sync()
		peers[2].Greet("PULL", nil).Sync()
		for i := range sent {
			says(t, push, "before")
			if m := peers[2*i].Message(); string(m[0]) != "before" {
				t.Errorf("peer %d got %q", 2*i, m)
			}
		}
		peers[1].Greet("PULL", nil).Sync()
		says(t, push, "0", "1", "2")
		got := make([]int, 3)
		for i, r := range peers {
			fmt.Sscan(string(r.Message()[0]), &i)
			got[i] = slices.Index(peers[:], r)
		}
		if !slices.Equal(got, want) {
			t.Errorf("after %d messages the turns are %v, want %v", sent, got, want)
		}
	}
}
