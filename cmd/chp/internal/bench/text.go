package bench

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"clustermap/internal/command"
)

// Print writes a sound result for people to read.
func (r *Result) Print(w io.Writer) error {
	fmt.Fprintf(w, "%d updates of %d keys with %d-byte values, %s → server → %s\n",
		r.Updates, r.Keys, r.ValueSize, command.Count(r.Publishers, "publisher"), command.Count(r.Replicas, "replica"))
	fmt.Fprintf(w, "checked: every update arrived once and in order at every replica; content equal\n")
	if r.DataRatio != nil {
		fmt.Fprintf(w, "data: the same with a server that keeps a log on disk, --sync %s; its ratio is to updates/s\n", r.Sync)
	}
	if r.PairRatio != nil {
		fmt.Fprintf(w, "pair: the same with two servers, where each update is published when both have it; its ratio is to updates/s\n")
	}
	if r.ClusterRatio != nil {
		fmt.Fprintf(w, "cluster: the same with %d nodes, --sync %s, where each update is published when a majority has it; its ratio is to updates/s\n", r.Cluster, r.ClusterSync)
	}
	fmt.Fprintln(w)

	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	columns := []string{"round", "updates/s", "p50 µs", "p99 µs"}
	for _, name := range pipelines[1:] {
		if _, ratio := r.of(name); *ratio != nil {
			columns = append(columns, name+"/s", "ratio")
		}
	}
	// beside appends the rates and ratios of what ran beside the server.
	beside := func(cells []string, of func(name string) (rate, ratio *float64)) []string {
		for _, name := range pipelines[1:] {
			if rate, ratio := of(name); ratio != nil {
				cells = append(cells, fmt.Sprintf("%.0f", *rate), fmt.Sprintf("%.2f", *ratio))
			}
		}
		return cells
	}
	row := func(cells ...string) { fmt.Fprintln(table, strings.Join(cells, "\t")+"\t") }
	row(columns...)
	for i, round := range r.Rounds {
		row(beside(round.CHP.cells(fmt.Sprint(i+1)), func(name string) (rate, ratio *float64) {
			m, to := round.of(name)
			return (*m).rate(), *to
		})...)
	}
	if len(r.Rounds) > 1 {
		row(beside(r.cells("median"), func(name string) (rate, ratio *float64) {
			of, to := r.of(name)
			return *of, *to
		})...)
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
