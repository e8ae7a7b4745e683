package bench

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Print writes a sound result for people to read.
func (r *Result) Print(w io.Writer) error {
	fmt.Fprintf(w, "%d updates of %d keys with %d-octet values, %s → server → %s\n",
		r.Updates, r.Keys, r.ValueSize, count(r.Publishers, "publisher"), count(r.Replicas, "replica"))
	fmt.Fprintf(w, "checked: every update arrived once and in order at every replica; content equal\n\n")

	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	columns := []string{"round", "updates/s", "p50 µs", "p99 µs"}
	if r.Ratio != nil {
		columns = append(columns, "baseline/s", "ratio")
	}
	row := func(cells ...string) { fmt.Fprintln(table, strings.Join(cells, "\t")+"\t") }
	row(columns...)
	for i, round := range r.Rounds {
		cells := round.CHP.cells(fmt.Sprint(i + 1))
		if r.Ratio != nil {
			cells = append(cells, fmt.Sprintf("%.0f", *round.Baseline.UpdatesPerSecond), fmt.Sprintf("%.2f", *round.Ratio))
		}
		row(cells...)
	}
	if len(r.Rounds) > 1 {
		cells := r.cells("median")
		if r.Ratio != nil {
			cells = append(cells, fmt.Sprintf("%.0f", *r.BaselineUpdatesPerSecond), fmt.Sprintf("%.2f", *r.Ratio))
		}
		row(cells...)
	}
	return table.Flush()
}

func (m *Measurement) cells(name string) []string {
	cells := []string{name, fmt.Sprintf("%.0f", *m.UpdatesPerSecond), "", ""}
	if l := m.LatencyUS; l != nil {
		cells[2], cells[3] = fmt.Sprintf("%.0f", l.P50), fmt.Sprintf("%.0f", l.P99)
	}
	return cells
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
