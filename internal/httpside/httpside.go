// Package httpside is the HTTP side of a program that is something else: metrics and checks for
// those who operate it.
package httpside

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"sync"

	"clustermap/internal/hosts"

	"golang.org/x/net/netutil"
)

// Only returns a handler that answers requests whose Host is a name of this server, and no others.
func Only(names []string, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		if !hosts.Named(r.Host, names) {
			http.Error(w, "the Host of the request is no name of this server", http.StatusMisdirectedRequest)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// Side listens and answers until Close.
type Side struct {
	listener net.Listener
	http     http.Server
	running  sync.WaitGroup
}

// Listen opens an address and answers with a handler. It calls failed if that ends before Close.
func Listen(ctx context.Context, address string, h http.Handler, failed func(error)) (*Side, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	s := &Side{listener: l}
	s.http = http.Server{
		Handler: h, ReadHeaderTimeout: patience, ReadTimeout: patience, WriteTimeout: patience, IdleTimeout: idle, MaxHeaderBytes: maxHeader,
		ErrorLog: log.New(io.Discard, "", 0), // what peers send is not worth a line each
	}
	s.running.Go(func() {
		if err := s.http.Serve(Limit(l, maxConnections)); !errors.Is(err, http.ErrServerClosed) {
			failed(err)
		}
	})
	return s, nil
}

// Addr returns the address on which it listens.
func (s *Side) Addr() net.Addr { return s.listener.Addr() }

// Close ends all requests. A nil Side is that of a program without one.
func (s *Side) Close() {
	if s != nil {
		_ = s.http.Close() // its connections are given up
		s.running.Wait()
	}
}

// Limit returns a listener that has so many connections at a time. Others wait; but one address has half of them at most, and more of
// it are closed at once: nobody alone keeps out those who check whether the program is alive.
func Limit(l net.Listener, most int) net.Listener {
	return &limited{Listener: netutil.LimitListener(l, most), each: most / 2, of: map[netip.Addr]int{}}
}

type limited struct {
	net.Listener
	each int

	mu sync.Mutex
	of map[netip.Addr]int // connections
}

// Accept implements net.Listener.
func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := hosts.Of(c.RemoteAddr().String())
		if l.begin(from) {
			return &counted{c, sync.OnceFunc(func() { l.end(from) })}, nil
		}
		_ = c.Close()
	}
}

func (l *limited) begin(from netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of[from] >= l.each {
		return false
	}
	l.of[from]++
	return true
}

func (l *limited) end(from netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of[from]--; l.of[from] == 0 {
		delete(l.of, from)
	}
}

type counted struct {
	net.Conn
	end func()
}

// Close implements net.Conn.
func (c *counted) Close() error {
	err := c.Conn.Close()
	c.end()
	return err
}
