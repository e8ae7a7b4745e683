package main

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"clustermap/internal/command"
	"clustermap/internal/httpside"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// maxScrapes is how many requests for metrics are answered at a time.
const maxScrapes = 4

// httpFlags are the flags of the HTTP side of a device.
type httpFlags struct {
	address string
	names   []string
}

func (f *httpFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.address, "http", "", "`HOST:PORT` for metrics and health over HTTP; port 0 takes a free one")
	flags.StringArrayVar(&f.names, "http-name", nil, "`name` by which --http may be asked, besides IP addresses and localhost; repeat it for several, * allows all")
}

// open answers requests until Close: for metrics of the program and of its collectors, and whether
// it lives and is ready, which it is from now on. The result is nil without --http.
func (f *httpFlags) open(ctx context.Context, cmd *cobra.Command, of ...prometheus.Collector) (*httpside.Side, error) {
	return f.openUntil(ctx, cmd, func() bool { return true }, of...)
}

// openUntil is open for a device that is ready only once, or while, it is registered with a broker.
func (f *httpFlags) openUntil(ctx context.Context, cmd *cobra.Command, registered func() bool, of ...prometheus.Collector) (*httpside.Side, error) {
	switch {
	case f.address == "" && len(f.names) > 0:
		return nil, command.Fail(command.ExitUsage, "--http-name needs --http")
	case f.address == "":
		return nil, nil
	}
	if host, _, err := net.SplitHostPort(f.address); err != nil || host == "" {
		return nil, command.Fail(command.ExitUsage, "--http %q: must be HOST:PORT; 0.0.0.0 opens it on all interfaces", f.address)
	}
	r := prometheus.NewRegistry()
	r.MustRegister(append(of, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))...)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(r, promhttp.HandlerOpts{EnableOpenMetrics: true, MaxRequestsInFlight: maxScrapes}))
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !registered() {
			http.Error(w, "not registered with the broker", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	side, err := httpside.Listen(ctx, f.address, httpside.Only(f.names, mux), func(err error) {
		fmt.Fprintf(cmd.ErrOrStderr(), "zdev: --http: %v\n", err)
	})
	if err != nil {
		return nil, command.Fail(command.ExitRefused, "--http: %v", err)
	}
	go fmt.Fprintf(cmd.ErrOrStderr(), "zdev: http on http://%s\n", side.Addr()) // not awaited: a pipe without a reader must not hold up the device
	return side, nil
}

// counted is a counter, or a gauge, of what a device says about itself.
func counted(name, help string, value func() uint64) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(value()) })
}

func measured(name, help string, value func() int) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(value()) })
}
