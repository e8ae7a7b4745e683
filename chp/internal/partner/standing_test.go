package partner

import (
	"testing"

	"clustermap/chp/internal/state"
)

// TestStanding: which of two servers has more, and whether the other one copies from the
// active one.
func TestStanding(t *testing.T) {
	t.Parallel()
	wire := func(s standing) []byte { return appendStanding(nil, s) }
	nothing, some := wire(standing{run: 1}), wire(standing{state.Reign{ID: 2, Last: 10}, 3, 0})
	for _, c := range []struct {
		what          string
		active, other []byte
		copied        bool
		compare       int
	}{
		{"the other one has data", nothing, some, false, -1},
		{"both have data", some, wire(standing{state.Reign{ID: 2, Last: 11}, 4, 0}), false, -1},
		{"of a newer reign", some, wire(standing{state.Reign{ID: 3 << state.ReignBits, Last: 9}, 4, 0}), false, -1},
		{"both have nothing", nothing, wire(standing{run: 9}), false, 0},
		{"the other one has nothing", some, nothing, false, 1},
		{"what the other one has is from it", nothing, wire(standing{state.Reign{ID: 2, Last: 10}, 3, 1}), true, -1},
		{"the same of both", some, wire(standing{state.Reign{ID: 2, Last: 10}, 9, 3}), true, 0},
		{"no payload", nil, some, false, 0},
		{"no payloads", nil, nil, false, 0},
		{"a server of no run", wire(standing{}), some, false, 0},
	} {
		copied, n := hasCopied(c.active, c.other), compareStandings(c.active, c.other)
		if copied != c.copied || n != c.compare {
			t.Errorf("%s: copied %v, %d", c.what, copied, n)
		}
	}
}

// TestImpossibleStandings: a state message with such a reign is refused too.
func TestImpossibleStandings(t *testing.T) {
	t.Parallel()
	for _, r := range []state.Reign{{ID: 1<<64 - 1, Last: 1}, {ID: 1, Last: -1}, {ID: 1, Last: 1<<63 - 1}} {
		if validStanding(appendStanding(nil, standing{accepted: r, run: 1})) {
			t.Errorf("a state message has %x", r)
		}
	}
}
