//go:build unix

package bench

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"clustermap/internal/bench/figures"
)

var (
	keysMany    = flag.Int("keys.many", 100_000, "keys of the larger map of BenchmarkKeys")
	keysUpdates = flag.Int("keys.updates", 200_000, "updates of each run of BenchmarkKeys at full speed")
	keysRate    = flag.Float64("keys.rate", 1000, "updates a second of the runs of BenchmarkKeys that measure latency")
	keysSlow    = flag.Int("keys.slow", 1000, "updates of each of those runs")
)

// BenchmarkKeys runs chp bench with a small map of 10,000 keys and with a larger one, in
// turn, and reports medians: the rates and their ratio, and at a fixed rate the time from
// Set to the arrival at a replica that 99.9 % of the updates do not exceed. Before it
// measures, each run sends three updates for each key. For figures:
//
//	go test -run '^$' -bench '^BenchmarkKeys$' -benchtime 5x ./bench -keys.many 1000000 -keys.updates 5000000 -keys.slow 10000
func BenchmarkKeys(b *testing.B) {
	command := buildCommand(b)
	sizes := [2]int{10_000, *keysMany}
	var rates, tails [2][]float64
	var rateRatios, tailRatios []float64
	run := func(keys, updates int, more ...string) (rate, p999 float64) {
		args := append([]string{
			"bench", "--json", "--keys", strconv.Itoa(keys), "--warmup", strconv.Itoa(3 * keys), "--updates", strconv.Itoa(updates),
		}, more...)
		cmd := exec.Command(command, args...)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		var r struct {
			Rate    float64            `json:"updates_per_second"`
			Latency map[string]float64 `json:"latency_us"`
		}
		if err == nil {
			err = json.Unmarshal(out, &r)
		}
		if err != nil || r.Rate <= 0 || r.Latency["p999"] <= 0 {
			b.Fatalf("%v: %s", err, out)
		}
		return r.Rate, r.Latency["p999"]
	}
	for b.Loop() {
		var rate, tail [2]float64
		for i, keys := range sizes {
			rate[i], _ = run(keys, *keysUpdates)
			_, tail[i] = run(keys, *keysSlow, "--rate", fmt.Sprint(*keysRate))
			rates[i], tails[i] = append(rates[i], rate[i]), append(tails[i], tail[i])
		}
		rateRatios, tailRatios = append(rateRatios, rate[1]/rate[0]), append(tailRatios, tail[1]/tail[0])
	}
	b.ReportMetric(0, "ns/op")
	for i, name := range []string{"few-", "many-"} {
		b.ReportMetric(figures.Median(rates[i]), name+"msgs/s")
		b.ReportMetric(figures.Median(tails[i])*1000, name+"p99.9-ns")
	}
	b.ReportMetric(float64(*keysMany), "many-keys")
	b.ReportMetric(figures.Median(rateRatios), "rate-many/few")
	b.ReportMetric(figures.Median(tailRatios), "p99.9-many/few")
	b.Logf("rates %.0f, ratios %.2f; 99.9 %% within %.0f µs, ratios %.2f", rates, rateRatios, tails, tailRatios)
}
