package metrics

import (
	"clustermap/sockets"

	"github.com/prometheus/client_golang/prometheus"
)

// look is what a collector sees of a socket.
type look struct {
	sockets.Totals
	peers                          int
	queued, queuedBytes            int
	pending, pendingBytes, longest int
}

// metric is a number of a socket.
type metric struct {
	name, help string
	kind       prometheus.ValueType
	value      func(*look) float64
}

var all = []metric{
	{"zmq_messages_received_total", "Messages received.", prometheus.CounterValue, func(l *look) float64 { return float64(l.MessagesIn) }},
	{"zmq_received_bytes_total", "Bytes of messages received, as on the wire.", prometheus.CounterValue, func(l *look) float64 { return float64(l.BytesIn) }},
	{"zmq_messages_sent_total", "Messages written to connections.", prometheus.CounterValue, func(l *look) float64 { return float64(l.MessagesOut) }},
	{"zmq_sent_bytes_total", "Bytes of messages written to connections, as on the wire.", prometheus.CounterValue, func(l *look) float64 { return float64(l.BytesOut) }},
	{"zmq_messages_dropped_total", "Messages dropped because the queue of a peer was full, or it had disconnected.", prometheus.CounterValue, func(l *look) float64 { return float64(l.Drops) }},
	{"zmq_messages_discarded_total", "Messages received and discarded, for lack of a subscription or as unexpected.", prometheus.CounterValue, func(l *look) float64 { return float64(l.Discarded) }},
	{"zmq_connections_total", "Connections established, in both directions.", prometheus.CounterValue, func(l *look) float64 { return float64(l.Connections) }},
	{"zmq_reconnections_total", "Connections that the socket has made again.", prometheus.CounterValue, func(l *look) float64 { return float64(l.Reconnections) }},
	{"zmq_peers", "Connections that are established.", prometheus.GaugeValue, func(l *look) float64 { return float64(l.peers) }},
	{"zmq_queued_messages", "Messages that wait to be written, of all peers.", prometheus.GaugeValue, func(l *look) float64 { return float64(l.queued) }},
	{"zmq_queued_bytes", "Bytes that wait to be written, of all peers.", prometheus.GaugeValue, func(l *look) float64 { return float64(l.queuedBytes) }},
	{"zmq_queued_max_bytes", "Bytes that wait to be written to the peer with the longest queue.", prometheus.GaugeValue, func(l *look) float64 { return float64(l.longest) }},
	{"zmq_pending_messages", "Messages received that the application has not taken yet.", prometheus.GaugeValue, func(l *look) float64 { return float64(l.pending) }},
	{"zmq_pending_bytes", "Memory of messages received that the application has not taken yet.", prometheus.GaugeValue, func(l *look) float64 { return float64(l.pendingBytes) }},
}

// collector collects the metrics of one socket.
type collector struct {
	socket sockets.Socket
	descs  []*prometheus.Desc // one for each of all
}

// NewCollector returns a collector of the metrics of a socket, with name as the value of their
// label socket. Names must differ within a registry.
func NewCollector(name string, socket sockets.Socket) prometheus.Collector {
	c := &collector{socket: socket}
	for _, m := range all {
		c.descs = append(c.descs, prometheus.NewDesc(m.name, m.help, nil, prometheus.Labels{"socket": name}))
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	l := look{Totals: c.socket.Totals()}
	for _, p := range c.socket.Peers() {
		if p.Connected {
			l.peers++
		}
		l.queued += p.QueuedMessages
		l.queuedBytes += p.QueuedBytes
		l.longest = max(l.longest, p.QueuedBytes)
		l.pending += p.PendingMessages
		l.pendingBytes += p.PendingBytes
	}
	for i, m := range all {
		ch <- prometheus.MustNewConstMetric(c.descs[i], m.kind, m.value(&l))
	}
}
