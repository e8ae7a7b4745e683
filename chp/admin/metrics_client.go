package admin

import (
	"clustermap/chp"

	"github.com/prometheus/client_golang/prometheus"
)

// clientCollector collects the metrics of a client.
type clientCollector struct{ client *chp.Client }

// NewClientCollector returns a collector of a client's metrics, for the registry of the program
// that has it. Clients in one registry need labels of their own: see
// [prometheus.WrapRegistererWith].
func NewClientCollector(c *chp.Client) prometheus.Collector { return clientCollector{c} }

var (
	clientMetrics = []metric[chp.ClientStats]{
		gauge("chp_client_active", "1 if the client has a whole map and follows a server, else 0.", func(st *chp.ClientStats) float64 { return truth(st.State == chp.StateActive) }),
		gauge("chp_client_keys", "Keys in the client's map.", func(st *chp.ClientStats) float64 { return float64(st.Keys) }),
		gauge("chp_client_sequence", "Sequence up to which the client's map is complete.", func(st *chp.ClientStats) float64 { return float64(st.Sequence) }),
		counter("chp_client_snapshots_total", "Snapshots that the client has taken.", func(st *chp.ClientStats) float64 { return float64(st.Syncs) }),
		counter("chp_client_resumed_total", "Times that the client came back and got only what it had missed.", func(st *chp.ClientStats) float64 { return float64(st.Resumed) }),
		counter("chp_client_gaps_total", "Gaps found in the sequences.", func(st *chp.ClientStats) float64 { return float64(st.Gaps) }),
		counter("chp_client_updates_total", "Updates applied to the client's map.", func(st *chp.ClientStats) float64 { return float64(st.Updates) }),
		counter("chp_client_lagged_total", "Watches that ended because they were not read.", func(st *chp.ClientStats) float64 { return float64(st.Lagged) }),
		gauge("chp_client_watches", "Open watches.", func(st *chp.ClientStats) float64 { return float64(st.Watches) }),
	}
	clientRefusedDesc = prometheus.NewDesc("chp_client_refused_total", "Invalid messages of the server.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c clientCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range clientMetrics {
		ch <- m.desc
	}
	ch <- clientRefusedDesc
}

// Collect implements prometheus.Collector.
func (c clientCollector) Collect(ch chan<- prometheus.Metric) {
	st := c.client.Stats()
	for _, m := range clientMetrics {
		ch <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(&st))
	}
	refused := uint64(0)
	for _, n := range st.Refused {
		refused += n
	}
	ch <- prometheus.MustNewConstMetric(clientRefusedDesc, prometheus.CounterValue, float64(refused))
}
