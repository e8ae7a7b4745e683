// Package figures summarizes what benchmarks measure.
package figures

import (
	"os"
	"slices"
	"strings"
)

// Summary is the median and the range of figures. It is zero if there are none.
type Summary struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// Of returns the summary of figures.
func Of(figures []float64) Summary {
	if len(figures) == 0 {
		return Summary{}
	}
	x := slices.Sorted(slices.Values(figures))
	return Summary{(x[(len(x)-1)/2] + x[len(x)/2]) / 2, x[0], x[len(x)-1]}
}

// Median returns the median of figures.
func Median(figures []float64) float64 { return Of(figures).Median }

// Ratios returns what each figure of one side is to that of the other side in the same round.
func Ratios(ours, theirs []float64) (all []float64) {
	for i := range min(len(ours), len(theirs)) {
		all = append(all, ours[i]/theirs[i])
	}
	return all
}

// Processor returns the name of the processor, or "" where the system does not tell.
func Processor() string {
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
