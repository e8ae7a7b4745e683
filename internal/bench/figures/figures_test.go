package figures

import (
	"slices"
	"testing"
)

func TestSummary(t *testing.T) {
	t.Parallel()
	for _, f := range []struct {
		of   []float64
		want Summary
	}{
		{nil, Summary{}}, {[]float64{3}, Summary{3, 3, 3}}, {[]float64{9, 1, 4}, Summary{4, 1, 9}}, {[]float64{1, 2, 8, 4}, Summary{3, 1, 8}},
	} {
		of := slices.Clone(f.of)
		if got := Of(of); got != f.want || Median(of) != f.want.Median || !slices.Equal(of, f.of) {
			t.Errorf("%v: %v, want %v", f.of, got, f.want)
		}
	}
	if got := Ratios([]float64{6, 8, 1}, []float64{3, 2}); !slices.Equal(got, []float64{2, 4}) {
		t.Errorf("ratios %v", got)
	}
}
