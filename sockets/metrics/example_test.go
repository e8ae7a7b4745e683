package metrics_test

import (
	"fmt"
	"log"

	"clustermap/sockets"
	"clustermap/sockets/metrics"

	"github.com/prometheus/client_golang/prometheus"
)

// A program registers a collector for each of its sockets.
func Example() {
	socket, err := sockets.NewPull(sockets.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer socket.Close()
	prometheus.MustRegister(metrics.NewCollector("orders", socket))

	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "zmq_peers" {
			m := f.GetMetric()[0]
			fmt.Println(f.GetName(), m.GetLabel()[0].GetValue(), m.GetGauge().GetValue())
		}
	}
	// Output: zmq_peers orders 0
}
