package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"gonum.org/v1/plot"

	"clustermap/bench/peers/internal/results"
	"clustermap/internal/bench/figures"
)

const (
	ourMap    = "chp.Map"
	allRounds = "median, least and most of all rounds"
)

// charts returns the plots for which there are figures.
func (d *Data) charts() (all []chart) {
	for _, c := range slices.Concat(
		d.bySize(),
		[]chart{d.bySubscribers()},
		d.byKeys(),
		[]chart{d.memory(), d.pipelines(), d.systems(), d.systemLatency(), d.latency(), d.failover()},
	) {
		if len(c.Lines)+len(c.Bars) > 0 {
			all = append(all, c)
		}
	}
	return all
}

// collector gathers figures by series and place, in the order in which they come.
type collector struct {
	names   []string
	figures map[string]map[float64][]float64
}

func (c *collector) add(name string, x float64, figures ...float64) {
	if len(figures) == 0 {
		return
	}
	if c.figures == nil {
		c.figures = map[string]map[float64][]float64{}
	}
	if c.figures[name] == nil {
		c.figures[name] = map[float64][]float64{}
		c.names = append(c.names, name)
	}
	c.figures[name][x] = append(c.figures[name][x], figures...)
}

// lines returns the series, those named first before the others.
func (c *collector) lines(first ...string) (all []line) {
	order := append(first, c.names...)
	for i, name := range order {
		if c.figures[name] == nil || slices.Contains(order[:i], name) {
			continue
		}
		l := line{Name: name}
		for _, x := range slices.Sorted(maps.Keys(c.figures[name])) {
			l.Points = append(l.Points, point{x, figures.Of(c.figures[name][x])})
		}
		all = append(all, l)
	}
	return all
}

// ticks returns the places of all figures.
func (c *collector) ticks(label func(x float64) string) (all []plot.Tick) {
	places := map[float64]bool{}
	for _, at := range c.figures {
		for x := range at {
			places[x] = true
		}
	}
	for _, x := range slices.Sorted(maps.Keys(places)) {
		all = append(all, plot.Tick{Value: x, Label: label(x)})
	}
	return all
}

// sockets collects the cases that match and have one library at both ends in each column,
// by a place on the X axis. Each series names the calls.
func (d *Data) sockets(match func(*results.Sockets) bool, x func(*results.Sockets) float64) (all collector) {
	for i := range d.Sockets {
		c := &d.Sockets[i]
		if c.First != c.Second || c.Error != "" || !match(c) {
			continue
		}
		ours, theirs := c.Calls()
		all.add("clustermap: "+ours, x(c), c.AllOurs...)
		all.add(c.Peer+": "+theirs, x(c), c.AllTheirs...)
	}
	return all
}

// socketOrder is the order of series, so that each has its colour in all plots.
var socketOrder = []string{
	"clustermap: Send, Recv", "clustermap: Send, RecvBatch", "libzmq: zmq_send, zmq_recv", "clustermap: SendBatch, RecvBatch",
	"clustermap: Send, RecvInto",
}

// bySize is a plot of throughput and one of latency for each transport, with CURVE and
// without.
func (d *Data) bySize() (charts []chart) {
	for _, of := range []struct{ pattern, file, title, y string }{
		{"push-pull", "throughput", "PUSH to PULL over %s, by the size of a message", "throughput (messages/s)"},
		{"req-rep", "latency", "Half a round trip of REQ and REP over %s, by size", "time (µs); less is better"},
	} {
		for _, transport := range []string{"tcp", "ipc", "inproc"} {
			for _, curve := range []bool{false, true} {
				name, title := transport, transport
				if curve {
					name, title = transport+"-curve", transport+" with CURVE"
				}
				all := d.sockets(func(c *results.Sockets) bool {
					return c.Pattern == of.pattern && c.Transport == transport && c.Curve == curve
				}, func(c *results.Sockets) float64 { return float64(c.Size) })
				charts = append(charts, chart{
					File:  fmt.Sprintf("sockets-%s-%s.svg", of.file, name),
					Title: fmt.Sprintf(of.title, title) + "\n" + allRounds,
					X:     "size of a message (bytes)", Y: of.y, LogX: true, LogY: true,
					Lines: all.lines(socketOrder...), Ticks: all.ticks(sizeName),
				})
			}
		}
	}
	return charts
}

func sizeName(bytes float64) string {
	switch n := int(bytes); {
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<10 && n%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", n>>10)
	default:
		return fmt.Sprintf("%d B", n)
	}
}

func (d *Data) bySubscribers() chart {
	all := d.sockets(func(c *results.Sockets) bool {
		return c.Pattern == "pub-sub" && c.Transport == "tcp" && c.Size == 64 && !c.Topic
	},
		func(c *results.Sockets) float64 { return float64(c.Subscribers) })
	return chart{
		File: "sockets-subscribers.svg", Title: "PUB to SUBs over tcp, 64 bytes, by the number of subscribers\n" + allRounds,
		X: "subscribers", Y: "deliveries (messages/s, all subscribers)", LogX: true, LogY: true,
		Lines: all.lines(socketOrder...), Ticks: all.ticks(si),
	}
}

// goResults returns the results of a benchmark in which all keys have these values.
func (d *Data) goResults(name string, keys map[string]string) (all []*goResult) {
results:
	for i := range d.Go {
		g := &d.Go[i]
		if g.name != name {
			continue
		}
		for key, value := range keys {
			if g.keys[key] != value {
				continue results
			}
		}
		all = append(all, g)
	}
	return all
}

func (g *goResult) number(key string) float64 {
	n, _ := strconv.ParseFloat(g.keys[key], 64)
	return n
}

// mapResults are those of BenchmarkMap of bench/peers.
func (d *Data) mapResults(op string) []*goResult {
	return slices.DeleteFunc(d.goResults("Map", map[string]string{"op": op}), func(g *goResult) bool { return g.keys["peer"] == "" })
}

// byKeys is a plot for each operation and number of goroutines.
func (d *Data) byKeys() (charts []chart) {
	for _, op := range []string{"get", "set"} {
		byGoroutines := map[int]*collector{}
		for _, g := range d.mapResults(op) {
			n := int(g.number("goroutines"))
			if byGoroutines[n] == nil {
				byGoroutines[n] = new(collector)
			}
			all := byGoroutines[n]
			all.add(ourMap, g.number("keys"), g.values["ours-ns"]...)
			all.add(g.keys["peer"], g.number("keys"), g.values["peer-ns"]...)
		}
		for _, n := range slices.Sorted(maps.Keys(byGoroutines)) {
			goroutines := "one goroutine"
			if n > 1 {
				goroutines = fmt.Sprintf("%d goroutines", n)
			}
			charts = append(charts, chart{
				File:  fmt.Sprintf("map-%s-%d.svg", op, n),
				Title: fmt.Sprintf("A %s in a map, %s, by the number of keys\n%s", op, goroutines, allRounds),
				X:     "keys", Y: "time (ns for each operation)", LogX: true,
				Lines: byGoroutines[n].lines(ourMap), Ticks: byGoroutines[n].ticks(si),
			})
		}
	}
	return charts
}

func (d *Data) memory() chart {
	c := chart{File: "map-memory.svg", Title: "Heap of a map, keys of 11 bytes and values of 32\n" + allRounds, X: "memory (bytes for each key)"}
	var all collector
	for _, g := range d.mapResults("range") {
		all.add(ourMap, g.number("keys"), g.values["ours-B/key"]...)
		all.add(g.keys["peer"], g.number("keys"), g.values["peer-B/key"]...)
	}
	for _, l := range all.lines(ourMap) {
		for _, p := range l.Points {
			c.Bars = append(c.Bars, bar{fmt.Sprintf("%s, %s keys", l.Name, si(p.X)), l.Name, p.Summary})
		}
	}
	return c
}

// pipelineRates returns the rates of chp bench in each round, by pipeline.
func (d *Data) pipelineRates() (names []string, rates [][]float64) {
	if d.CHP == nil {
		return nil, nil
	}
	names, rates = []string{"one server", "one server with a log on disk", "a pair of servers", "bare TCP and hash tables"}, make([][]float64, 4)
	for _, r := range d.CHP.Rounds {
		for i, v := range []rate{r.CHP, r.Data, r.Pair, r.Baseline} {
			if v.UpdatesPerSecond > 0 {
				rates[i] = append(rates[i], v.UpdatesPerSecond)
			}
		}
	}
	return names, rates
}

func (d *Data) pipelines() chart {
	c := chart{
		File: "map-updates.svg", Title: "Updates from a publisher through a server to a replica, values of 32 bytes\n" + allRounds,
		X: "rate (updates/s)",
	}
	names, rates := d.pipelineRates()
	for i, name := range names {
		if len(rates[i]) > 0 {
			c.Bars = append(c.Bars, bar{name, name, figures.Of(rates[i])})
		}
	}
	return c
}

// kv returns the cases of a mode that have figures, ours first.
func (d *Data) kv(mode string) (all []*results.KVCase) {
	for _, c := range d.KV {
		if c.Mode == mode && c.Error == "" && len(c.Rates)+len(c.P50) > 0 {
			all = append(all, c)
		}
	}
	slices.SortStableFunc(all, func(a, b *results.KVCase) int {
		if ours := cmp.Compare(rank(a.System), rank(b.System)); ours != 0 || mode == "latency" {
			return ours
		}
		return -cmp.Compare(figures.Of(a.Rates).Median, figures.Of(b.Rates).Median)
	})
	return all
}

func rank(system string) int {
	if system == "chp" {
		return 0
	}
	return 1
}

func (d *Data) systems() chart {
	c := chart{
		File: "systems-rate.svg", Title: "Updates from a publisher through a server to a replica, by system\n" + allRounds,
		X: "rate (updates/s), logarithmic", LogX: true,
	}
	for _, k := range d.kv("rate") {
		c.Bars = append(c.Bars, bar{k.System, k.System, figures.Of(k.Rates)})
	}
	return c
}

// percentiles are places on an X axis on which each is as far from the next one.
var percentiles = []string{"50", "90", "99", "99.9", "max"}

func percentileTicks(wanted ...int) (all []plot.Tick) {
	for _, i := range wanted {
		all = append(all, plot.Tick{Value: float64(i), Label: percentiles[i]})
	}
	return all
}

func (d *Data) systemLatency() chart {
	var all collector
	offered := 0.0
	for _, k := range d.kv("latency") {
		offered = k.Offered
		all.add(k.System, 0, k.P50...)
		all.add(k.System, 2, k.P99...)
		all.add(k.System, 3, k.P999...)
	}
	return chart{
		File: "systems-latency.svg", Title: fmt.Sprintf("From an update to its arrival at a replica, %s updates/s, by system\n%s", si(offered), allRounds),
		X: "percentile", Y: "time (µs)", LogY: true, Lines: all.lines("chp"), Ticks: percentileTicks(0, 2, 3),
	}
}

// percentileUnits are the units of percentiles in nanoseconds, in their order.
var percentileUnits = []string{"p50-ns", "p90-ns", "p99-ns", "p99.9-ns", "max-ns"}

// latencies returns the results that have percentiles and one message in flight at a
// time, by a name for each.
func (d *Data) latencies() (names []string, results []*goResult) {
	for _, g := range d.goResults("RoundTrip", map[string]string{"pair": "req-rep", "size": "64", "security": ""}) {
		names, results = append(names, "REQ and REP, "+g.keys["transport"]), append(results, g)
	}
	for _, g := range d.goResults("SetSync", nil) {
		names, results = append(names, "SetSync, "+g.keys["transport"]), append(results, g)
	}
	return names, results
}

func (d *Data) latency() chart {
	var all collector
	names, results := d.latencies()
	for i, name := range names {
		for x, unit := range percentileUnits {
			for _, ns := range results[i].values[unit] {
				all.add(name, float64(x), ns/1000)
			}
		}
	}
	return chart{
		File: "latency.svg", Title: "Whole round trips within a process, clustermap\n" + allRounds,
		X: "percentile", Y: "time (µs)", LogY: true, Lines: all.lines(), Ticks: percentileTicks(0, 1, 2, 3, 4),
	}
}

func (d *Data) failover() chart {
	c := chart{
		File: "failover.svg", Title: "From kill -9 of the active server to the next update that comes back\nmedian, least and most of all failovers",
		X: "time (ms), logarithmic", LogX: true,
	}
	for _, g := range d.goResults("Failover", nil) {
		name := "settings: " + g.keys["settings"]
		c.Bars = append(c.Bars, bar{name, name, figures.Summary{Median: g.one("p50-ms").Median, Min: g.one("min-ms").Min, Max: g.one("max-ms").Max}})
	}
	return c
}
