package chp

import "testing"

// TestStanding: which of two servers has more, and whether an active one has lost its
// data, and whether the other one copies it.
func TestStanding(t *testing.T) {
	t.Parallel()
	wire := func(s standing) []byte { return appendStanding(nil, s) }
	nothing, some := wire(standing{run: 1}), wire(standing{reign{2, 10}, 3, 0})
	for _, c := range []struct {
		what          string
		active, other []byte
		lost, copied  bool
		compare       int
	}{
		{"the other one has data", nothing, some, true, false, -1},
		{"both have data", some, wire(standing{reign{2, 11}, 4, 0}), false, false, -1},
		{"of a newer reign", some, wire(standing{reign{3, 9}, 4, 0}), false, false, -1},
		{"both have nothing", nothing, wire(standing{run: 9}), false, false, 0},
		{"the other one has nothing", some, nothing, false, false, 1},
		{"what the other one has is from it", nothing, wire(standing{reign{2, 10}, 3, 1}), true, true, -1},
		{"the same of both", some, wire(standing{reign{2, 10}, 9, 3}), false, true, 0},
		{"no payload", nil, some, false, false, -1},
		{"no payloads", nil, nil, false, false, 0},
	} {
		lost, copied, n := hasLost(c.active, c.other), hasCopied(c.active, c.other), compareStandings(c.active, c.other)
		if lost != c.lost || copied != c.copied || n != c.compare {
			t.Errorf("%s: lost %v, copied %v, %d", c.what, lost, copied, n)
		}
	}
}
