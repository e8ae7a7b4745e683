package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"clustermap/chp"
	"clustermap/chp/admin"
	"clustermap/chp/httpkv"
	"clustermap/internal/httpside"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The limits of --http. The clients of its pages are few: whoever collects metrics, and whoever starts
// and stops servers; of the map over HTTP there may be more.
const (
	httpConnections = 64
	doorConnections = 1024
	httpHeader      = 16 << 10 // bytes
	httpPatience    = 10 * time.Second
	httpIdle        = time.Minute
)

// httpFlags are the flags of the HTTP side of a server.
type httpFlags struct {
	address string
	names   []string
	pprof   bool
	door    doorFlags
}

func (f *httpFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.address, "http", "", "`HOST:PORT` for metrics, health, status and the map over HTTP; port 0 takes a free one")
	flags.StringArrayVar(&f.names, "http-name", nil, "`name` by which --http may be asked, besides IP addresses and localhost; repeat it for several, * allows all")
	flags.BoolVar(&f.pprof, "http-pprof", false, "serve Go's profiles in /debug/pprof/ of --http; they show what is in memory")
	f.door.register(flags)
}

// adminServer is the HTTP side of a server. A nil *adminServer is that of a server without one.
type adminServer struct {
	handler *admin.Handler
	door    *httpkv.Handler // or nil
	http    http.Server
	running sync.WaitGroup
}

// listen opens the address of --http, so that a server can be asked while it reads its log.
func (f *httpFlags) listen(ctx context.Context, cmd *cobra.Command, o *chp.ServerOptions) (*adminServer, error) {
	switch {
	case f.address == "" && (f.pprof || len(f.names) > 0 || f.door.given()):
		return nil, fail(exitUsage, "flags that begin with --http- need --http")
	case f.address == "":
		return nil, nil
	}
	if host, _, err := net.SplitHostPort(f.address); err != nil || host == "" {
		return nil, fail(exitUsage, "--http %q: must be HOST:PORT; 0.0.0.0 opens it on all interfaces", f.address)
	}
	secure, err := f.door.tls()
	if err != nil {
		return nil, err
	}
	door, err := f.door.handler(f.address, f.names, o)
	if err != nil {
		return nil, err
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", f.address)
	if err != nil {
		return nil, fail(exitRefused, "--http: %v", err)
	}
	handler, err := admin.NewHandler(admin.Options{Hosts: f.names, Pprof: f.pprof})
	if err != nil {
		panic(err) // the registry is new
	}
	a := &adminServer{handler: handler, door: door}
	connections := httpConnections
	if door != nil {
		connections = doorConnections
	}
	a.http = http.Server{
		Handler: sides(door, f.door.write, handler), Protocols: new(http.Protocols), ReadHeaderTimeout: httpPatience, ReadTimeout: httpPatience, IdleTimeout: httpIdle, MaxHeaderBytes: httpHeader,
		WriteTimeout: httpPatience,               // a profile gets as much more as it was asked to take: net/http/pprof sees to that
		ErrorLog:     log.New(io.Discard, "", 0), // what peers send is not worth a line each
	}
	a.http.Protocols.SetHTTP1(true) // its limits are of connections
	a.http.ConnContext = f.door.connected
	accepting, scheme := httpside.Limit(l, connections), "http"
	if secure != nil {
		accepting, scheme = tls.NewListener(accepting, secure), "https"
	}
	a.running.Go(func() {
		if err := a.http.Serve(accepting); !errors.Is(err, http.ErrServerClosed) {
			fmt.Fprintf(cmd.ErrOrStderr(), "chp: --http: %v\n", err)
		}
	})
	go fmt.Fprintf(cmd.ErrOrStderr(), "chp: http on %s://%s\n", scheme, l.Addr()) // not awaited, as in serve
	return a, nil
}

// attach says which server it is about.
func (a *adminServer) attach(s *chp.Server) {
	if a != nil {
		a.handler.Attach(s)
		if a.door != nil {
			a.door.Attach(s)
		}
	}
}

// syncs returns a function that counts how long flushes of the log take, or nil.
func (a *adminServer) syncs() func(time.Duration) {
	if a == nil {
		return nil
	}
	h := admin.NewSyncSeconds()
	a.handler.Registry().MustRegister(h)
	return func(d time.Duration) { h.Observe(d.Seconds()) }
}

// close ends all requests.
func (a *adminServer) close() {
	if a != nil {
		if a.door != nil {
			a.door.Close()
		}
		_ = a.http.Close() // its connections are given up
		a.running.Wait()
	}
}
