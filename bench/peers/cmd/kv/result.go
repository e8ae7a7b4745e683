package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"clustermap/bench/peers/internal/results"
	"clustermap/bench/peers/internal/systems"
	"clustermap/internal/bench/figures"
)

// result is the result of a run.
type result results.KV

type entry = results.KVCase

func add(e *entry, f systems.Figure) {
	if e.Conflates {
		e.Seen = append(e.Seen, f.Seen)
	}
	if e.Mode == modeRate {
		e.Rates = append(e.Rates, f.Rate)
		return
	}
	us := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	e.Sent = append(e.Sent, f.Sent)
	e.P50, e.P99, e.P999 = append(e.P50, us(f.P50)), append(e.P99, us(f.P99)), append(e.P999, us(f.P999))
}

// fail drops the figures of all rounds: one unsound round casts doubt on the others.
func fail(e *entry, text string) {
	e.Error = text
	e.Seen, e.Rates, e.Sent, e.P50, e.P99, e.P999 = nil, nil, nil, nil, nil, nil
}

// conclude summarizes the rounds.
func (r *result) conclude() {
	for _, e := range r.Cases {
		e.Rate, e.Median = e.Rates.Summary(), e.P50.Summary()
		ours := r.Cases[0]
		if ours.System != chpSystem.Name || e == ours {
			continue
		}
		mine, theirs := ours.Rates, e.Rates
		if e.Mode == modeLatency {
			mine, theirs = ours.P50, e.P50
		}
		e.Ratios = figures.Ratios(mine, theirs)
		e.Ratio = e.Ratios.Summary()
	}
}

// print writes the result for people, in 80 columns.
func (r *result) print(out io.Writer) error {
	first := r.Cases[0]
	fmt.Fprintf(out, "%d keys, %d-byte values, replicas: %d, rounds: %d\n", first.Keys, first.ValueBytes, first.Replicas, r.Rounds)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	if first.Mode == modeRate {
		fmt.Fprint(out, "updates/s, from the first sent to the last seen by the slowest replica.\nours/it is of the same round: above 1, ours is faster\n\n")
		fmt.Fprintf(w, "system\tupdates\tmedian\tmin\tmax\tours/it\tmin\tmax\t\n")
	} else {
		fmt.Fprintf(out, "set to seen by another process in µs, %.0f updates/s offered; medians.\nours/it is of p50: below 1, ours is faster\n\n", first.Offered)
		fmt.Fprintf(w, "system\tupdates\tsent/s\tp50\tmin\tmax\tp99\tp99.9\tours/it\t\n")
	}
	for _, e := range r.Cases {
		if e.Error != "" {
			continue
		}
		name := e.System
		if e.Conflates {
			name += "*"
		}
		if e.Mode == modeRate {
			fmt.Fprintf(w, "%s\t%d\t%.0f\t%.0f\t%.0f\t%s\t\n", name, e.Updates, e.Rate.Median, e.Rate.Min, e.Rate.Max, cells(e.Ratio, true))
			continue
		}
		fmt.Fprintf(w, "%s\t%d\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%s\t\n", name, e.Updates, e.Sent.Median(),
			e.Median.Median, e.Median.Min, e.Median.Max, e.P99.Median(), e.P999.Median(), cells(e.Ratio, false))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, e := range r.Cases {
		switch {
		case e.Error != "":
			fmt.Fprintf(out, "\n%s: %s\n", e.System, e.Error)
		case e.Conflates:
			fmt.Fprintf(out, "\n* %s conflates: a replica saw %.0f %% of the updates, and only these\ncount; it ended with the last value of each key.\n",
				e.System, 100*e.Seen.Median())
		}
	}
	return nil
}

// cells returns the cells of a ratio: the median, and also the range.
func cells(s *figures.Summary, ranged bool) string {
	switch {
	case s == nil && ranged:
		return "\t\t"
	case s == nil:
		return ""
	case ranged:
		return fmt.Sprintf("%.2f\t%.2f\t%.2f", s.Median, s.Min, s.Max)
	}
	return fmt.Sprintf("%.2f", s.Median)
}
