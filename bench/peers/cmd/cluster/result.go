package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"clustermap/bench/peers/internal/results"
	"clustermap/internal/bench/figures"
)

// result is the result of a run.
type result results.Cluster

type entry = results.ClusterCase

// units are those of the modes' figures.
var units = map[string]string{
	modeRate: "updates/s", modePut: "µs", modePuts: "puts/s", modeFailover: "ms", modeReads: "reads/s",
}

func add(e *entry, f figure) {
	e.All = append(e.All, f.value)
	e.Failed += f.failed
	if e.Mode == modePut {
		e.P99 = append(e.P99, f.p99)
	}
}

// fail drops the figures of all rounds: one unsound round casts doubt on the others.
func fail(e *entry, text string) {
	e.Error, e.All, e.P99, e.Failed = text, nil, nil, 0
}

// conclude summarizes the rounds.
func (r *result) conclude() {
	var ours *entry
	for _, e := range r.Cases {
		e.Figure = e.All.Summary()
		switch {
		case e.System == chpSystem.name:
			ours = e
		case ours != nil && ours.Mode == e.Mode:
			e.Ratios = figures.Ratios(ours.All, e.All)
			e.Ratio = e.Ratios.Summary()
		}
	}
}

// print writes the result for people, in 80 columns.
func (r *result) print(out io.Writer) error {
	fmt.Fprintf(out, "%d nodes on one machine, %d-byte values, rounds: %d.\nours/it is of the same round\n", r.Nodes, r.ValueBytes, r.Rounds)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for i, e := range r.Cases {
		if i == 0 || r.Cases[i-1].Mode != e.Mode {
			if err := w.Flush(); err != nil {
				return err
			}
			fmt.Fprintf(out, "\n%s: %s\n", e.Mode, r.about(e.Mode))
			p99 := ""
			if e.Mode == modePut {
				p99 = "99 %\t"
			}
			fmt.Fprintf(w, "system\t%s\tmin\tmax\t%sours/it\tmin\tmax\t\n", e.Unit, p99)
		}
		if e.Error != "" {
			continue
		}
		p99 := ""
		if e.Mode == modePut {
			p99 = fmt.Sprintf("%.0f\t", e.P99.Median())
		}
		ratio := "\t\t"
		if s := e.Ratio; s != nil {
			ratio = fmt.Sprintf("%.2f\t%.2f\t%.2f", s.Median, s.Min, s.Max)
		}
		fmt.Fprintf(w, "%s\t%.0f\t%.0f\t%.0f\t%s%s\t\n", e.System, e.Figure.Median, e.Figure.Min, e.Figure.Max, p99, ratio)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, e := range r.Cases {
		text := e.Error
		if e.Failed > 0 {
			text = fmt.Sprintf("%d calls failed, which do not count", e.Failed)
		}
		if text != "" {
			fmt.Fprintf(out, "\n%s, %s: %s\n", e.Mode, e.System, text)
		}
	}
	return nil
}

// about says what a mode measures.
func (r *result) about(mode string) string {
	switch mode {
	case modeRate:
		return fmt.Sprintf("publisher, leader, watching replica; %d keys. More is better", r.Keys)
	case modePut:
		return "one put at a time; half take no longer, and 99 %. Less is better"
	case modePuts:
		return fmt.Sprintf("%d puts at a time. More is better", r.Callers)
	case modeFailover:
		return "kill -9 of the leader to the next acknowledged put. Less is better"
	}
	return fmt.Sprintf("linearizable reads, %d at a time at each node. More is better", r.Callers)
}
