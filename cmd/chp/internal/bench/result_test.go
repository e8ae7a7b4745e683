package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"clustermap/internal/bench/pipeline"
	"clustermap/internal/bench/workload"
)

func config() *Config {
	return &Config{Updates: 1000, Keys: 10, ValueSize: 32, Publishers: 1, Replicas: 2, Baseline: true}
}

var content = workload.Content{Keys: 10, Sum: 1, Mix: 2}

// report is the report of a replica in a sound run.
func report() workload.Report {
	var h workload.Histogram
	h.Add(50_000, 1000)
	return workload.Report{Delivered: 1000, Content: content, Latency: h.Sparse()}
}

// took is the outcome of a run of so many seconds.
func took(seconds float64, reports ...workload.Report) *pipeline.Outcome {
	for i := range reports {
		reports[i].Last = 1 + int64(seconds*1e9)
	}
	return &pipeline.Outcome{First: 1, Reports: reports}
}

func TestSoundMeasurement(t *testing.T) {
	t.Parallel()
	m := newMeasurement(config(), took(0.5, report(), report()), content)
	if m.fault != nil || *m.UpdatesPerSecond != 2000 || m.Delivered != 2000 || !m.ContentEqual {
		t.Errorf("%+v, %v", m, m.fault)
	}
	if p50 := m.LatencyUS.P50; p50 < 48 || p50 > 52 {
		t.Errorf("p50 is %v", p50)
	}
}

func TestUnsoundMeasurementHasNoRate(t *testing.T) {
	t.Parallel()
	for want, spoil := range map[string]func(o *pipeline.Outcome){
		"3 updates were lost":         func(o *pipeline.Outcome) { o.Reports[1].Lost = 3; o.Reports[1].Delivered = 997 },
		"1 updates came twice":        func(o *pipeline.Outcome) { o.Reports[0].Doubled = 1 },
		"2 updates came out of order": func(o *pipeline.Outcome) { o.Reports[0].OutOfOrder = 2 },
		"1 values were not as sent":   func(o *pipeline.Outcome) { o.Reports[0].Foreign = 1 },
		"content":                     func(o *pipeline.Outcome) { o.Reports[1].Content.Mix++ },
		"do not add up":               func(o *pipeline.Outcome) { o.Reports[1].Delivered-- },
	} {
		o := took(0.5, report(), report())
		spoil(o)
		r := newResult(config())
		m := newMeasurement(config(), o, content)
		r.add(&Round{CHP: newMeasurement(config(), took(1, report(), report()), content)})
		r.add(&Round{CHP: m})
		r.conclude()
		if err := r.faults(); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "round 2, chp") {
			t.Errorf("%s: faults are %v", want, err)
		}
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		// The sound round may state its rate; the result as a whole has none.
		if m.UpdatesPerSecond != nil || r.UpdatesPerSecond != nil || r.Ratio != nil || strings.Count(string(text), "updates_per_second") != 1 {
			t.Errorf("%s: a rate in %s", want, text)
		}
	}
	// A replica that did not report at all.
	if m := newMeasurement(config(), took(1, report()), content); m.fault == nil {
		t.Error("a missing replica goes unnoticed")
	}
	if m := newMeasurement(config(), &pipeline.Outcome{}, content); m.fault == nil || m.ContentEqual {
		t.Error("a run without reports passes")
	}
}

// TestMedianOfLatency: each percentile is the median of the rounds, whatever their rates.
func TestMedianOfLatency(t *testing.T) {
	t.Parallel()
	for _, rounds := range [][]Latency{
		{{P50: 30, P99: 40, Max: 60}, {P50: 10, P99: 50, Max: 70}, {P50: 20, P99: 90, Max: 100}},
		{{P50: 10, P99: 20, Max: 70}, {P50: 30, P99: 80, Max: 70}},
	} {
		r := newResult(config())
		for i := range rounds {
			m := newMeasurement(config(), took(float64(i+1), report(), report()), content)
			m.LatencyUS = &rounds[i]
			r.add(&Round{CHP: m})
		}
		r.conclude()
		if want := (Latency{P50: 20, P99: 50, Max: 70}); *r.LatencyUS != want {
			t.Errorf("%+v, want %+v", *r.LatencyUS, want)
		}
	}
	r := newResult(config())
	m := newMeasurement(config(), took(1, report(), report()), content)
	m.LatencyUS = nil
	r.add(&Round{CHP: m})
	if r.conclude(); r.LatencyUS != nil || r.UpdatesPerSecond == nil {
		t.Errorf("%+v", r.Measurement)
	}
}

func TestMedians(t *testing.T) {
	t.Parallel()
	r := newResult(config())
	baseline := *config()
	for _, seconds := range [][2]float64{{1, 0.5}, {4, 1}, {2, 0.4}} { // ratios 0.5, 0.25, 0.2
		round := &Round{
			CHP:      newMeasurement(config(), took(seconds[0], report(), report()), content),
			Baseline: newMeasurement(&baseline, took(seconds[1], report(), report()), content),
		}
		r.add(round)
	}
	r.conclude()
	if *r.UpdatesPerSecond != 500 || *r.Seconds != 2 || *r.BaselineUpdatesPerSecond != 2000 || *r.Ratio != 0.25 || r.Delivered != 2000 {
		t.Errorf("rate %v in %v s, baseline %v, ratio %v", *r.UpdatesPerSecond, *r.Seconds, *r.BaselineUpdatesPerSecond, *r.Ratio)
	}
	var out bytes.Buffer
	if err := r.Print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"median", "0.25", "2 replicas", "1 publisher "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

// A run whose servers differ gives no rate.
func TestPairThatDiffersHasNoRate(t *testing.T) {
	t.Parallel()
	spoiled := took(2, report(), report())
	spoiled.Fault = errors.New("the servers differ")
	r := newResult(config())
	r.add(&Round{
		CHP:  newMeasurement(config(), took(1, report(), report()), content),
		Pair: newMeasurement(config(), spoiled, content),
	})
	r.conclude()
	if err := r.faults(); err == nil || !strings.Contains(err.Error(), "round 1, pair: the servers differ") {
		t.Errorf("%v", err)
	}
	if r.UpdatesPerSecond != nil || r.PairRatio != nil || r.Rounds[0].PairRatio != nil {
		t.Errorf("%+v", r)
	}
}

func TestRatiosToThePlainServer(t *testing.T) {
	t.Parallel()
	at := func(seconds float64) *Measurement {
		return newMeasurement(config(), took(seconds, report(), report()), content)
	}
	r := newResult(config())
	r.add(&Round{CHP: at(1), Data: at(2), Pair: at(4), Cluster: at(5)})
	r.add(&Round{CHP: at(1), Data: at(1), Pair: at(5), Cluster: at(2)})
	r.add(&Round{CHP: at(2), Data: at(8), Pair: at(10), Cluster: at(20)})
	r.conclude()
	if *r.DataRatio != 0.5 || *r.PairRatio != 0.2 || r.Ratio != nil || *r.DataUpdatesPerSecond != 500 || *r.PairUpdatesPerSecond != 200 {
		t.Errorf("data %v at %v, pair %v at %v", *r.DataRatio, *r.DataUpdatesPerSecond, *r.PairRatio, *r.PairUpdatesPerSecond)
	}
	if *r.ClusterRatio != 0.2 || *r.ClusterUpdatesPerSecond != 200 {
		t.Errorf("cluster %v at %v", *r.ClusterRatio, *r.ClusterUpdatesPerSecond)
	}
}
