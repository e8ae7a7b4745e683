package partner

import "testing"

// The wait of a backup for its primary is logged ever more rarely, and begins anew when
// it has heard it.
func TestVigil(t *testing.T) {
	t.Parallel()
	var v vigil
	logged := func(looks, most int) (at []int) {
		for i := range looks {
			if v.look(true, most) {
				at = append(at, i+1)
			}
		}
		return at
	}
	const most = 10 * vigilFirst
	got := logged(60*vigilFirst, most)
	for i, want := range []int{1, 2, 4, 8, 16, 26, 36, 46, 56} {
		if i >= len(got) || got[i] != want*vigilFirst {
			t.Fatalf("logged at %v", got)
		}
	}
	if v.look(false, most) || len(logged(vigilFirst-1, most)) != 0 || len(logged(1, most)) != 1 {
		t.Error("it does not begin anew")
	}
}
