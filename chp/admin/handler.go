package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/pprof"
	"sync/atomic"

	"clustermap/chp"
	"clustermap/internal/hosts"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Options are the settings of a Handler.
type Options struct {
	// Registry gets the collectors of the server, and /metrics serves it. If it is nil, the
	// Handler makes one, with collectors of the Go runtime and of the process, too.
	Registry *prometheus.Registry
	// Hosts are names, without ports, under which the server may be asked, in addition to
	// localhost and every IP address. The entry "*" allows all.
	Hosts []string
	// Pprof serves the profiles of package net/http/pprof in /debug/pprof/. They show what
	// is in the program's memory, and make it slower.
	Pprof bool
}

// A Handler answers HTTP requests about one server. It is safe for concurrent use.
type Handler struct {
	hosts    []string
	registry *prometheus.Registry
	mux      *http.ServeMux
	server   atomic.Pointer[chp.Server]
	probes   probes
}

// NewHandler returns a Handler that is not ready: its server is still to come, see
// [Handler.Attach]. The error is of the registry: another Handler has it already.
func NewHandler(o Options) (*Handler, error) {
	h := &Handler{hosts: o.Hosts, registry: o.Registry, mux: http.NewServeMux(), probes: make(probes, maxProbes)}
	if h.registry == nil {
		h.registry = prometheus.NewRegistry()
		for _, c := range []prometheus.Collector{collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})} {
			if err := h.registry.Register(c); err != nil {
				return nil, err
			}
		}
	}
	if err := h.registry.Register(&serverCollector{attached: &h.server, probes: h.probes}); err != nil {
		return nil, err
	}
	h.mux.Handle("GET /metrics", inTurn(promhttp.HandlerFor(h.registry, promhttp.HandlerOpts{
		EnableOpenMetrics: true, ErrorHandling: promhttp.ContinueOnError,
	})))
	h.mux.HandleFunc("GET /livez", h.checks(liveChecks))
	h.mux.HandleFunc("GET /readyz", h.checks(readyChecks))
	h.mux.HandleFunc("GET /status", h.status)
	h.mux.HandleFunc("GET /clients", h.clients)
	if o.Pprof {
		h.mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		h.mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		h.mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		h.mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		h.mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return h, nil
}

// Attach says which server the Handler is about. Before, while a program loads a map for
// example, /livez is 200 and /readyz 503.
func (h *Handler) Attach(s *chp.Server) { h.server.Store(s) }

// Registry returns the registry that /metrics serves.
func (h *Handler) Registry() *prometheus.Registry { return h.registry }

// Format prints the type for every verb: the other fields are of the server.
func (h *Handler) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "admin.Handler") }

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	if !hosts.Named(r.Host, h.hosts) {
		http.Error(w, "the Host of the request is no name of this server", http.StatusMisdirectedRequest)
		return
	}
	h.mux.ServeHTTP(w, r)
}

// inTurn lets maxProbes requests at a time through to a handler. The others wait as in within.
func inTurn(next http.Handler) http.Handler {
	turns := make(probes, maxProbes)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), checkTimeout)
		defer cancel()
		select {
		case turns <- struct{}{}:
			defer func() { <-turns }()
			next.ServeHTTP(w, r)
		case <-ctx.Done():
			http.Error(w, errBusy.Error(), http.StatusServiceUnavailable)
		}
	})
}

func (h *Handler) status(w http.ResponseWriter, r *http.Request) {
	s := h.server.Load()
	if s == nil {
		http.Error(w, notAttached, http.StatusServiceUnavailable)
		return
	}
	st, err := within(r.Context(), h.probes, s.Status)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(JSON(st)) // the asker is gone
}
