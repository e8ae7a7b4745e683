package bench

import (
	"errors"
	"fmt"
	"math"
	"runtime"

	"clustermap/internal/bench/figures"
	"clustermap/internal/bench/pipeline"
	"clustermap/internal/bench/workload"
)

// Result is the result of a benchmark, in the form that --json prints.
//
// Each figure is the median of the rounds, by itself: the median rate and the median of
// a latency may come from different rounds. Delivered is that of one round. Lost, Doubled
// and OutOfOrder are sums over all rounds. ContentEqual is true only if it is true in
// every round.
//
// Ratio is the server's rate divided by that of the bare pipeline. DataRatio, PairRatio and
// ClusterRatio are those of a server with a log, a pair and a cluster, divided by the server's.
type Result struct {
	Updates    int `json:"updates"` // per round
	Warmup     int `json:"warmup"`
	Keys       int `json:"keys"`
	ValueSize  int `json:"value_size"`
	Publishers int `json:"publishers"`
	Replicas   int `json:"replicas"`

	*Measurement

	BaselineUpdatesPerSecond *float64 `json:"baseline_updates_per_second,omitempty"`
	Ratio                    *float64 `json:"ratio,omitempty"`

	Sync                 string   `json:"sync,omitempty"` // flush policy of the log of Data
	DataUpdatesPerSecond *float64 `json:"data_updates_per_second,omitempty"`
	DataRatio            *float64 `json:"data_ratio,omitempty"`

	PairUpdatesPerSecond *float64 `json:"pair_updates_per_second,omitempty"`
	PairRatio            *float64 `json:"pair_ratio,omitempty"`

	Cluster                 int      `json:"cluster,omitempty"`      // nodes
	ClusterSync             string   `json:"cluster_sync,omitempty"` // flush policy of their logs
	ClusterUpdatesPerSecond *float64 `json:"cluster_updates_per_second,omitempty"`
	ClusterRatio            *float64 `json:"cluster_ratio,omitempty"`

	Rounds []*Round `json:"rounds"`

	Go   string `json:"go"`
	CPUs int    `json:"cpus"`
}

// Round is one run of each pipeline.
type Round struct {
	CHP      *Measurement `json:"chp"`
	Baseline *Measurement `json:"baseline,omitempty"`
	Ratio    *float64     `json:"ratio,omitempty"`

	Data      *Measurement `json:"data,omitempty"`
	DataRatio *float64     `json:"data_ratio,omitempty"`

	Pair      *Measurement `json:"pair,omitempty"`
	PairRatio *float64     `json:"pair_ratio,omitempty"`

	Cluster      *Measurement `json:"cluster,omitempty"`
	ClusterRatio *float64     `json:"cluster_ratio,omitempty"`
}

// The pipelines that run in a round, in this order. All but the first are compared with it.
const (
	plain    = "chp"
	baseline = "baseline"
	data     = "data"
	pair     = "pair"
	cluster  = "cluster"
)

var pipelines = []string{plain, baseline, data, pair, cluster}

// of returns where a round has the measurement of a pipeline, and its ratio, if it has one.
func (r *Round) of(name string) (m **Measurement, ratio **float64) {
	switch name {
	case plain:
		return &r.CHP, nil
	case baseline:
		return &r.Baseline, &r.Ratio
	case data:
		return &r.Data, &r.DataRatio
	case pair:
		return &r.Pair, &r.PairRatio
	}
	return &r.Cluster, &r.ClusterRatio
}

// of returns where the result has the rate and the ratio of a pipeline that is compared.
func (r *Result) of(name string) (rate, ratio **float64) {
	switch name {
	case baseline:
		return &r.BaselineUpdatesPerSecond, &r.Ratio
	case data:
		return &r.DataUpdatesPerSecond, &r.DataRatio
	case pair:
		return &r.PairUpdatesPerSecond, &r.PairRatio
	}
	return &r.ClusterUpdatesPerSecond, &r.ClusterRatio
}

// Measurement is one run of one pipeline. It has rates only if the run is sound.
type Measurement struct {
	Seconds          *float64 `json:"seconds,omitempty"`            // from the first send to the last replica's last arrival
	UpdatesPerSecond *float64 `json:"updates_per_second,omitempty"` // Updates / Seconds
	Delivered        uint64   `json:"delivered"`                    // updates that arrived, at all replicas together
	Lost             uint64   `json:"lost"`
	Doubled          uint64   `json:"doubled"`
	OutOfOrder       uint64   `json:"out_of_order"`
	ContentEqual     bool     `json:"content_equal"` // every replica has the content that was sent
	LatencyUS        *Latency `json:"latency_us,omitempty"`

	fault error // why the run is not sound
}

// Latency is the time from sending an update to its arrival at a replica, in
// microseconds. At full speed it is mostly time in queues; with --rate it shows the
// latency of a server that keeps up.
type Latency struct {
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

func newResult(c *Config) *Result {
	r := &Result{
		Updates:    c.Updates,
		Warmup:     c.Warmup,
		Keys:       c.Keys,
		ValueSize:  c.ValueSize,
		Publishers: c.Publishers,
		Replicas:   c.Replicas,
		Go:         runtime.Version(),
		CPUs:       runtime.NumCPU(),
	}
	if c.Data != "" {
		r.Sync = c.sync(data).String()
	}
	if c.Cluster > 0 {
		r.Cluster, r.ClusterSync = c.Cluster, c.sync(cluster).String()
	}
	return r
}

// newMeasurement checks the reports of the replicas, and computes rates only if they
// are correct.
func newMeasurement(c *Config, o *pipeline.Outcome, expected workload.Content) *Measurement {
	m := &Measurement{ContentEqual: len(o.Reports) > 0}
	faults := []error{o.Fault}
	var latency workload.Histogram
	for i := range o.Reports {
		r := &o.Reports[i]
		m.Delivered += r.Delivered
		m.Lost += r.Lost
		m.Doubled += r.Doubled
		m.OutOfOrder += r.OutOfOrder
		m.ContentEqual = m.ContentEqual && r.Content == expected
		latency.Merge(r.Latency)
		if err := r.Fault(c.spec(""), expected); err != nil {
			faults = append(faults, fmt.Errorf("replica %d: %w", i+1, err))
		}
	}
	if len(o.Reports) != c.Replicas {
		faults = append(faults, fmt.Errorf("%d of %d replicas reported", len(o.Reports), c.Replicas))
	}
	seconds := o.Seconds()
	m.fault = errors.Join(faults...)
	if m.fault == nil && seconds <= 0 {
		m.fault = errors.New("the run took no time")
	}
	if m.fault != nil {
		return m
	}
	rate := math.Round(float64(c.Updates) / seconds)
	m.Seconds, m.UpdatesPerSecond = &seconds, &rate
	if latency.Max() > 0 {
		us := func(nanoseconds float64) float64 { return math.Round(nanoseconds/100) / 10 }
		at := func(p float64) float64 { return us(latency.Percentile(p)) }
		m.LatencyUS = &Latency{at(0.5), at(0.9), at(0.99), at(0.999), us(float64(latency.Max()))}
	}
	return m
}

func (r *Result) add(round *Round) {
	for _, name := range pipelines[1:] {
		m, to := round.of(name)
		if *to = ratio(*m, round.CHP); name == baseline {
			*to = ratio(round.CHP, *m)
		}
	}
	r.Rounds = append(r.Rounds, round)
}

// ratio returns the ratio of two rates, or nil if one of them is missing.
func ratio(a, b *Measurement) *float64 {
	if a.rate() == nil || b.rate() == nil {
		return nil
	}
	ratio := math.Round(1e4**a.rate() / *b.rate()) / 1e4
	return &ratio
}

// rate returns the rate, or nil if there was no such run or it is not sound.
func (m *Measurement) rate() *float64 {
	if m == nil {
		return nil
	}
	return m.UpdatesPerSecond
}

// conclude computes the fields that depend on all rounds.
func (r *Result) conclude() {
	total := Measurement{ContentEqual: true}
	for _, round := range r.Rounds {
		m := round.CHP
		total.Delivered += m.Delivered
		total.Lost += m.Lost
		total.Doubled += m.Doubled
		total.OutOfOrder += m.OutOfOrder
		total.ContentEqual = total.ContentEqual && m.ContentEqual
	}
	r.Measurement = &total
	if r.faults() != nil {
		return
	}
	total.Delivered = r.Rounds[0].CHP.Delivered // as in every sound round
	total.Seconds = r.median(func(round *Round) *float64 { return round.CHP.Seconds })
	total.UpdatesPerSecond = r.median(func(round *Round) *float64 { return round.CHP.rate() })
	total.LatencyUS = r.medianLatency()
	for _, name := range pipelines[1:] {
		rate, ratio := r.of(name)
		*rate = r.median(func(round *Round) *float64 { m, _ := round.of(name); return (*m).rate() })
		*ratio = r.median(func(round *Round) *float64 { _, to := round.of(name); return *to })
	}
}

// medianLatency returns the median of each percentile over the rounds, or nil if no round
// has them.
func (r *Result) medianLatency() *Latency {
	var l Latency
	for _, of := range []func(*Latency) *float64{
		func(l *Latency) *float64 { return &l.P50 },
		func(l *Latency) *float64 { return &l.P90 },
		func(l *Latency) *float64 { return &l.P99 },
		func(l *Latency) *float64 { return &l.P999 },
		func(l *Latency) *float64 { return &l.Max },
	} {
		m := r.median(func(round *Round) *float64 {
			if round.CHP.LatencyUS == nil {
				return nil
			}
			return of(round.CHP.LatencyUS)
		})
		if m == nil {
			return nil
		}
		*of(&l) = *m
	}
	return &l
}

// median returns the median of a figure over the rounds, or nil if no round has it.
func (r *Result) median(of func(*Round) *float64) *float64 {
	var list []float64
	for _, round := range r.Rounds {
		if f := of(round); f != nil {
			list = append(list, *f)
		}
	}
	if len(list) == 0 {
		return nil
	}
	m := figures.Median(list)
	return &m
}

// faults returns why the result is not sound, or nil.
func (r *Result) faults() error {
	var list []error
	for i, round := range r.Rounds {
		for _, name := range pipelines {
			if m, _ := round.of(name); *m != nil && (*m).fault != nil {
				list = append(list, fmt.Errorf("round %d, %s: %w", i+1, name, (*m).fault))
			}
		}
	}
	return errors.Join(list...)
}
