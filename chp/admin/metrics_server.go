package admin

import (
	"context"
	"sync/atomic"

	"clustermap/chp"

	"github.com/prometheus/client_golang/prometheus"
)

// serverCollector collects the metrics of a server, once there is one.
type serverCollector struct {
	attached *atomic.Pointer[chp.Server]
	probes   probes
}

// NewServerCollector returns a collector of a server's metrics, for a registry of one's own. A
// [Handler] has one already.
func NewServerCollector(s *chp.Server) prometheus.Collector {
	c := &serverCollector{attached: new(atomic.Pointer[chp.Server]), probes: make(probes, maxProbes)}
	c.attached.Store(s)
	return c
}

// NewSyncSeconds returns the histogram chp_wal_fsync_duration_seconds. Whoever opens the log of a
// server registers it, and observes how long each call of Sync took.
func NewSyncSeconds() prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "chp_wal_fsync_duration_seconds", Buckets: syncBuckets,
		Help: "How long flushing the log to disk took.",
	})
}

// looked is what a collector sees of a server.
type looked struct {
	stats  chp.ServerStats
	status chp.Status
}

func (l *looked) queues() (bytes, largest, updates int) {
	for i := range l.stats.Subscribers {
		p := &l.stats.Subscribers[i]
		bytes += p.QueuedBytes
		largest = max(largest, p.QueuedBytes)
		updates = max(updates, p.QueuedMessages)
	}
	return bytes, largest, updates
}

// nodes returns the number of nodes of a cluster, and of those that do not answer this one, if it leads.
func (l *looked) nodes() (all, away int) {
	c := l.status.Cluster
	if c == nil {
		return 0, 0
	}
	for _, m := range c.Members {
		if c.Leader == c.Node && !m.Active {
			away++
		}
	}
	return len(c.Members), away
}

// A metric is a series without labels.
type metric[T any] struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*T) float64
}

func gauge[T any](name, help string, value func(*T) float64) metric[T] {
	return metric[T]{prometheus.NewDesc(name, help, nil, nil), prometheus.GaugeValue, value}
}

func counter[T any](name, help string, value func(*T) float64) metric[T] {
	return metric[T]{prometheus.NewDesc(name, help, nil, nil), prometheus.CounterValue, value}
}

func truth(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

var (
	serverMetrics = []metric[looked]{
		counter("chp_updates_total", "Updates accepted and published.", func(l *looked) float64 { return float64(l.stats.Updates) }),
		counter("chp_updates_repeated_total", "Updates that clients sent again although the server had them.", func(l *looked) float64 { return float64(l.stats.Repeated) }),
		counter("chp_expired_total", "Keys deleted when their time to live ended.", func(l *looked) float64 { return float64(l.stats.Expired) }),
		counter("chp_conflicts_total", "Conditional updates and transactions of which a condition did not hold.", func(l *looked) float64 { return float64(l.stats.Conflicts) }),
		gauge("chp_published_sequence", "Sequence of the last published update; a float, so to within some hundreds.", func(l *looked) float64 { return float64(l.stats.Sequence) }),
		gauge("chp_keys", "Keys in the map.", func(l *looked) float64 { return float64(l.stats.Keys) }),
		gauge("chp_leases", "Leases.", func(l *looked) float64 { return float64(l.stats.Leases) }),
		gauge("chp_map_bytes", "Bytes of keys, values and properties in the map.", func(l *looked) float64 { return float64(l.stats.MapBytes) }),
		gauge("chp_history_bytes", "Bytes of earlier versions of keys.", func(l *looked) float64 { return float64(l.stats.History) }),
		gauge("chp_retained_bytes", "Bytes of the last updates, for clients that come back.", func(l *looked) float64 { return float64(l.stats.Retained) }),
		gauge("chp_clients", "Clients: connections to the publisher port.", func(l *looked) float64 { return float64(len(l.stats.Subscribers)) }),
		gauge("chp_client_lag_updates", "Updates that the client furthest behind has not been sent yet.", func(l *looked) float64 { _, _, n := l.queues(); return float64(n) }),
		gauge("chp_subscriber_queue_bytes", "Bytes queued for all clients.", func(l *looked) float64 { n, _, _ := l.queues(); return float64(n) }),
		gauge("chp_subscriber_queue_max_bytes", "Bytes queued for the client with the longest queue.", func(l *looked) float64 { _, n, _ := l.queues(); return float64(n) }),
		counter("chp_snapshots_total", "Snapshots sent.", func(l *looked) float64 { return float64(l.stats.Snapshots) }),
		counter("chp_snapshot_bytes_total", "Bytes of snapshots sent.", func(l *looked) float64 { return float64(l.status.SnapshotBytes) }),
		counter("chp_resumed_total", "Clients that came back and got only what they had missed.", func(l *looked) float64 { return float64(l.stats.Resumed) }),
		counter("chp_bad_asks_total", "Requests for snapshots that were refused.", func(l *looked) float64 { return float64(l.stats.BadAsks) }),
		counter("chp_failovers_total", "Times that this server of a pair was passive and became active.", func(l *looked) float64 { return float64(l.stats.TookOver) }),
		gauge("chp_active", "1 if the server orders updates, else 0: it is the only one, the active one of a pair, or the leader of a cluster.", func(l *looked) float64 { return truth(l.status.State == chp.ServerActive) }),
		gauge("chp_term", "Number of the term of the active server of a pair, or of the leader of a cluster; 0 without these.", func(l *looked) float64 { return float64(l.status.Epoch) }),
		gauge("chp_peer_lag_updates", "Updates that the other server of the pair does not have yet; -1 while it does not follow.", func(l *looked) float64 { return float64(l.status.Lag) }),
		gauge("chp_peer_in_sync", "1 if the other server of the pair has all published updates, else 0.", func(l *looked) float64 { return truth(l.status.InSync) }),
		gauge("chp_cluster_nodes", "Nodes of the cluster, as far as this one knows; 0 without a cluster.", func(l *looked) float64 { n, _ := l.nodes(); return float64(n) }),
		gauge("chp_cluster_nodes_away", "Nodes of the cluster that do not answer the leader; 0 at the others.", func(l *looked) float64 { _, n := l.nodes(); return float64(n) }),
	}
	refusedDesc = prometheus.NewDesc("chp_refused_total", "Messages refused, by reason.", []string{"reason"}, nil)
	tookDesc    = prometheus.NewDesc("chp_snapshot_seconds", "How long clients waited for snapshots: from the request until the last of it was queued.", nil, nil)
	infoDesc    = prometheus.NewDesc("chp_build_info", "1; the version of the server's program is a label.", []string{"version"}, nil)
)

// Describe implements prometheus.Collector.
func (c *serverCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range serverMetrics {
		ch <- m.desc
	}
	ch <- refusedDesc
	ch <- tookDesc
	ch <- infoDesc
}

// Collect implements prometheus.Collector.
func (c *serverCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.attached.Load()
	if s == nil {
		return
	}
	now, err := within(context.Background(), c.probes, func() looked { return looked{s.Stats(), s.Status()} })
	if err != nil {
		ch <- prometheus.NewInvalidMetric(infoDesc, err)
		return
	}
	for _, m := range serverMetrics {
		ch <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(&now))
	}
	for reason, n := range now.status.Refused.All() {
		ch <- prometheus.MustNewConstMetric(refusedDesc, prometheus.CounterValue, float64(n), reason)
	}
	ch <- histogram(tookDesc, &now.stats.Took)
	ch <- prometheus.MustNewConstMetric(infoDesc, prometheus.GaugeValue, 1, now.status.Version)
}

// histogram returns durations as a metric.
func histogram(desc *prometheus.Desc, d *chp.Durations) prometheus.Metric {
	buckets, n := map[float64]uint64{}, uint64(0)
	for i, count := range d.Counts {
		n += count
		if i < len(d.Bounds) {
			buckets[d.Bounds[i].Seconds()] = n
		}
	}
	return prometheus.MustNewConstHistogram(desc, n, d.Sum.Seconds(), buckets)
}
