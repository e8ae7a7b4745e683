package chp

import "testing"

// TestStanding: which of two servers has more, and whether an active one has lost its
// data. What the other one got from it does not count, though the news are older.
func TestStanding(t *testing.T) {
	t.Parallel()
	wire := func(s standing) []byte { return appendStanding(nil, s) }
	nothing, some := wire(standing{run: 1}), wire(standing{reign{2, 10}, 3, 0})
	for _, c := range []struct {
		what          string
		active, other []byte
		lost          bool
		compare       int
	}{
		{"the other one has data", nothing, some, true, -1},
		{"both have data", some, wire(standing{reign{2, 11}, 4, 0}), false, -1},
		{"of a newer reign", some, wire(standing{reign{3, 9}, 4, 0}), false, -1},
		{"both have nothing", nothing, wire(standing{run: 9}), false, 0},
		{"the other one has nothing", some, nothing, false, 1},
		{"what the other one has is from it", nothing, wire(standing{reign{2, 10}, 3, 1}), false, -1},
		{"the same of both", some, wire(standing{reign{2, 10}, 9, 3}), false, 0},
		{"no payload", nil, some, false, -1},
	} {
		if lost, n := hasLost(c.active, c.other), compareStandings(c.active, c.other); lost != c.lost || n != c.compare {
			t.Errorf("%s: lost %v, %d", c.what, lost, n)
		}
	}
}
