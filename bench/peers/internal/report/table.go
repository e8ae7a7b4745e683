package report

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"clustermap/internal/bench/figures"
)

// tableWidth is how wide a table may be, in characters.
const tableWidth = 80

// section is a part of the report: rows of which the first two cells are names and the
// others figures.
type section struct {
	title string
	head  []string
	rows  [][]string
}

// Print writes the figures as tables of at most 80 columns.
func (d *Data) Print(out io.Writer) error {
	var b strings.Builder
	d.printOrigins(&b)
	for _, s := range d.sections() {
		if len(s.rows) > 0 {
			s.print(&b)
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// printOrigins writes where and when everything was measured: a line for each machine, and
// one for each measurement on it.
func (d *Data) printOrigins(b *strings.Builder) {
	machine := func(o Origin) string {
		text := fmt.Sprintf("%s, %d cores, %s", o.System, o.Cores, o.Go)
		if o.Processor != "" {
			text += ", " + o.Processor
		}
		return text
	}
	names := slices.SortedFunc(maps.Keys(d.Origins), func(x, y string) int {
		return cmp.Or(strings.Compare(machine(d.Origins[x]), machine(d.Origins[y])), strings.Compare(d.Origins[x].Date, d.Origins[y].Date))
	})
	last := ""
	for _, name := range names {
		o := d.Origins[name]
		if m := machine(o); m != last {
			last = m
			fmt.Fprintln(b, m)
		}
		warning := ""
		if o.Quick {
			warning = "  quick: the figures mean nothing"
		}
		if o.Incomplete {
			warning += "  incomplete"
		}
		fmt.Fprintf(b, "  %s  %s%s\n", o.Date, name, warning)
	}
	if len(names) > 0 {
		b.WriteByte('\n')
	}
}

func (s *section) print(b *strings.Builder) {
	fmt.Fprintln(b, s.title)
	rows := append([][]string{s.head}, s.rows...)
	widths := make([]int, len(s.head))
	total := -2
	for i := range widths {
		for _, r := range rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(r[i]))
		}
		if widths[i] > 0 {
			total += widths[i] + 2
		}
	}
	// Only the names can be shortened.
	widths[0] = max(widths[0]-max(total-tableWidth, 0), 8)
	for _, r := range rows {
		var line strings.Builder
		for i, cell := range r {
			if widths[i] == 0 {
				continue // nothing has that name
			}
			if i == 0 {
				if name := []rune(cell); len(name) > widths[0] {
					cell = string(name[:widths[0]-1]) + "…"
				}
			} else {
				line.WriteString("  ")
			}
			pad := strings.Repeat(" ", max(widths[i]-utf8.RuneCountInString(cell), 0))
			if i < 2 {
				line.WriteString(cell + pad)
			} else {
				line.WriteString(pad + cell)
			}
		}
		fmt.Fprintln(b, strings.TrimRight(line.String(), " "))
	}
	b.WriteByte('\n')
}

// ratio returns a ratio and its range.
func ratio(ratios []float64) (median, span string) {
	r := figures.Of(ratios)
	return si(r.Median), si(r.Min) + "–" + si(r.Max)
}

// median returns the median of figures with a unit.
func median(of []float64, unit string) string { return si(figures.Median(of)) + unit }

func (d *Data) sections() []section {
	return append(d.socketRows(), d.mapRows(), d.pipelineRows(), d.systemRows(), d.systemLatencyRows(), d.brokerRows(), d.fanOutRows(), d.subtreeRows(), d.keysRows(), d.joinRows(), d.latencyRows(), d.rateRows(), d.failoverRows())
}

// socketRows are a section for each library and the calls that were made.
func (d *Data) socketRows() (all []section) {
	at := map[string]int{}
	for i := range d.Sockets {
		c := &d.Sockets[i]
		if c.Error != "" && c.Unit == "" {
			continue // the other library lacks the feature
		}
		ours, theirs := c.Calls()
		title := fmt.Sprintf("Sockets: %s beside %s's %s", ours, c.Peer, theirs)
		n, ok := at[title]
		if !ok {
			n = len(all)
			at[title] = n
			all = append(all, section{title: title, head: []string{"case (of times, less is better)", "", "ours", "theirs", "ours/theirs", "range"}})
		}
		row := []string{strings.TrimSuffix(c.Case, "/recv"), "", "failed", "", "", ""}
		if c.Error == "" {
			figure := func(of []float64) string {
				switch v := figures.Median(of); {
				case c.Unit != "us":
					return si(v) + "/s"
				case v >= 1000:
					return si(v/1000) + " ms"
				default:
					return si(v) + " µs"
				}
			}
			row[2], row[3] = figure(c.AllOurs), figure(c.AllTheirs)
			row[4], row[5] = ratio(c.Ratios)
		}
		all[n].rows = append(all[n].rows, row)
	}
	return all
}

func (d *Data) mapRows() section {
	s := section{
		title: "Maps, ns for each operation (range: for the whole map); ratio: theirs/ours",
		head:  []string{"operation", "beside", "ours", "theirs", "ratio", "range"},
	}
	for _, op := range []string{"get", "set", "range"} {
		for _, g := range d.mapResults(op) {
			name := fmt.Sprintf("%s, %s keys, goroutines: %s", op, si(g.number("keys")), g.keys["goroutines"])
			middle, span := ratio(g.values["ratio"])
			s.rows = append(s.rows, []string{name, g.keys["peer"], median(g.values["ours-ns"], ""), median(g.values["peer-ns"], ""), middle, span})
		}
	}
	for _, g := range d.mapResults("range") {
		us, they := g.one("ours-B/key"), g.one("peer-B/key")
		name := fmt.Sprintf("bytes for each key, %s keys", si(g.number("keys")))
		s.rows = append(s.rows, []string{name, g.keys["peer"], si(us.Median), si(they.Median), si(they.Median / us.Median), ""})
	}
	return s
}

func (d *Data) pipelineRows() section {
	s := section{
		title: "Updates through a server (chp bench); ratio: to one server",
		head:  []string{"pipeline", "", "rate", "range", "ratio", "range"},
	}
	names, rates := d.pipelineRates()
	for i, name := range names {
		r := figures.Of(rates[i])
		if r == (figures.Summary{}) {
			continue
		}
		middle, span := ratio(figures.Ratios(rates[i], rates[0]))
		s.rows = append(s.rows, []string{name, "", si(r.Median) + "/s", si(r.Min) + "–" + si(r.Max), middle, span})
	}
	return s
}

func (d *Data) systemRows() section {
	s := section{
		title: "Updates through systems (kv); ratio: ours/theirs",
		head:  []string{"system", "", "rate", "range", "ratio", "range"},
	}
	for _, k := range d.kv("rate") {
		r := figures.Of(k.Rates)
		middle, span := "", ""
		if len(k.Ratios) > 0 {
			middle, span = ratio(k.Ratios)
		}
		s.rows = append(s.rows, []string{k.System, "", si(r.Median) + "/s", si(r.Min) + "–" + si(r.Max), middle, span})
	}
	return s
}

func (d *Data) systemLatencyRows() section {
	s := section{
		title: "From an update to its arrival at a replica (kv), µs, medians of the rounds",
		head:  []string{"system", "", "offered", "p50", "p99", "p99.9"},
	}
	for _, k := range d.kv("latency") {
		s.rows = append(s.rows, []string{k.System, "", si(k.Offered) + "/s", median(k.P50, ""), median(k.P99, ""), median(k.P999, "")})
	}
	return s
}

func (d *Data) brokerRows() section {
	s := section{
		title: "Majordomo brokers, requests; µs: processor time of each; ratio: ours/theirs",
		head:  []string{"body, workers", "broker", "rate", "range", "µs", "ratio", "range"},
	}
	var ours []float64
	for _, c := range d.Brokers {
		r := figures.Of(c.Rates)
		row := []string{fmt.Sprintf("%s, %d", sizeName(float64(c.Size)), c.Workers), c.Broker, si(r.Median) + "/s", si(r.Min) + "–" + si(r.Max), median(c.Processor, ""), "", ""}
		if c.Broker == "clustermap" {
			ours = c.Rates
		} else {
			row[5], row[6] = ratio(figures.Ratios(ours, c.Rates))
		}
		s.rows = append(s.rows, row)
	}
	return s
}

func (d *Data) fanOutRows() section {
	s := section{
		title: "Deliveries through a server to replicas, and by a bare loop; ratio: ours/bare",
		head:  []string{"replicas", "", "ours", "bare", "ratio", "range"},
	}
	for _, g := range d.goResults("FanOut", nil) {
		middle, span := ratio(g.values["ratio"])
		s.rows = append(s.rows, []string{g.keys["replicas"], "", median(g.values["deliveries/s"], "/s"), median(g.values["bare/s"], "/s"), middle, span})
	}
	return s
}

func (d *Data) subtreeRows() section {
	s := section{
		title: "Processor time of an update, ns, in a server with replicas of subtrees",
		head:  []string{"subscriptions", "updates of", "ours", "range", "bare"},
	}
	for _, g := range d.goResults("Subtrees", nil) {
		r := g.one("ns/update")
		of := map[string]string{"first": "one subtree", "next": "each in turn"}[g.keys["updates"]]
		s.rows = append(s.rows, []string{g.keys["subscriptions"], of, si(r.Median), si(r.Min) + "–" + si(r.Max), si(g.one("bare-ns/update").Median)})
	}
	return s
}

func (d *Data) keysRows() section {
	s := section{
		title: "A server with 10 k keys beside one with more (BenchmarkKeys), medians",
		head:  []string{"what", "keys", "10 k", "more", "more/10 k"},
	}
	for _, g := range d.goResults("Keys", nil) {
		many := si(g.one("many-keys").Median)
		s.rows = append(s.rows,
			[]string{"updates", many, si(g.one("few-msgs/s").Median) + "/s", si(g.one("many-msgs/s").Median) + "/s", si(g.one("rate-many/few").Median)},
			[]string{"p99.9 of the time to a replica", many, si(g.one("few-p99.9-ns").Median/1000) + " µs", si(g.one("many-p99.9-ns").Median/1000) + " µs", si(g.one("p99.9-many/few").Median)},
		)
	}
	return s
}

func (d *Data) joinRows() section {
	s := section{
		title: "A server's memory, and a replica that joins (BenchmarkJoin)",
		head:  []string{"what", "", "median", "range"},
	}
	for _, g := range d.goResults("Join", nil) {
		for _, row := range []struct{ name, unit string }{
			{"resident bytes for each key", "RSS-B/key"},
			{"resident bytes after overwriting/before", "overwritten/loaded"},
			{"seconds to join without updates", "idle-s"},
			{"seconds to join with updates at full speed", "busy-s"},
			{"updates meanwhile/without the replica", "updates-busy/normal"},
		} {
			r := g.one(row.unit)
			s.rows = append(s.rows, []string{row.name, "", si(r.Median), si(r.Min) + "–" + si(r.Max)})
		}
	}
	return s
}

func (d *Data) latencyRows() section {
	s := section{
		title: "Whole round trips within a process, µs, medians of the rounds",
		head:  []string{"what", "", "p50", "p90", "p99", "p99.9", "max"},
	}
	names, results := d.latencies()
	for i, name := range names {
		row := []string{name, ""}
		for _, unit := range percentileUnits {
			row = append(row, si(results[i].one(unit).Median/1000))
		}
		s.rows = append(s.rows, row)
	}
	return s
}

// rateRows are the benchmarks of the layers that report a rate.
func (d *Data) rateRows() section {
	s := section{
		title: "Benchmarks of the layers, messages a second",
		head:  []string{"benchmark", "", "median", "range"},
	}
	for i := range d.Go {
		g := &d.Go[i]
		r := g.one("msgs/s")
		if r == (figures.Summary{}) {
			continue
		}
		var parts []string
		for _, key := range []string{"op", "pair", "transport", "size", "frames", "call", "calls", "security", "subscribers", "window", "publishers", "replicas"} {
			switch value := g.keys[key]; {
			case value == "":
			case key == "size":
				parts = append(parts, sizeName(g.number(key)))
			case strings.Trim(value, "0123456789") == "":
				parts = append(parts, key+": "+value)
			default:
				parts = append(parts, value)
			}
		}
		s.rows = append(s.rows, []string{g.name + " " + strings.Join(parts, ", "), "", si(r.Median), si(r.Min) + "–" + si(r.Max)})
	}
	slices.SortStableFunc(s.rows, func(a, b []string) int {
		x, _, _ := strings.Cut(a[0], " ")
		y, _, _ := strings.Cut(b[0], " ")
		return strings.Compare(x, y)
	})
	return s
}

func (d *Data) failoverRows() section {
	s := section{
		title: "From kill -9 of the active server to the next update that comes back, ms",
		head:  []string{"settings", "", "min", "p50", "p90", "max"},
	}
	for _, g := range d.goResults("Failover", nil) {
		row := []string{g.keys["settings"], ""}
		for _, unit := range []string{"min-ms", "p50-ms", "p90-ms", "max-ms"} {
			row = append(row, si(g.one(unit).Median))
		}
		s.rows = append(s.rows, row)
	}
	return s
}
