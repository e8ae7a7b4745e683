// Package ports is where a server listens: three endpoints, P, P+1 and P+2, which one text
// names.
package ports

import (
	"cmp"
	"context"
	"errors"
	"net"
	"strconv"

	netlink "clustermap/internal/link"
)

// Site is a parsed text that names three endpoints.
type Site struct {
	scheme string // with the slashes
	name   string // host, path or name
	port   int    // tcp only; 0 for any free port
}

const (
	schemeTCP = "tcp://"
	schemeIPC = "ipc://"
)

// TCP returns the site of a host and a port; 0 is any free port.
func TCP(host string, port int) Site { return Site{schemeTCP, host, port} }

// Parse parses tcp://host:P, ipc://path or inproc://name. Wildcards, and port 0, are
// allowed only if bind is true.
func Parse(text string, bind bool) (Site, error) {
	e, err := netlink.ParseServer(text, bind)
	if wrong := (*netlink.EndpointError)(nil); errors.As(err, &wrong) {
		return Site{}, errors.New(wrong.Reason) // the caller names the endpoint
	}
	name := e.Name
	switch e.Scheme {
	case netlink.TCP:
		name = cmp.Or(e.Host(), "*")
	case netlink.IPC:
		name = cmp.Or(e.Name, "*")
	}
	return Site{e.Scheme + "://", name, e.Port()}, nil
}

// At returns the endpoint n places after P, or "" if n is negative.
func (b Site) At(n int) string {
	switch {
	case n < 0:
		return ""
	case b.scheme == schemeTCP && b.port == 0:
		return b.scheme + net.JoinHostPort(b.name, "0")
	case b.scheme == schemeTCP:
		return b.scheme + net.JoinHostPort(b.name, strconv.Itoa(b.port+n))
	case n == 0:
		return b.scheme + b.name
	}
	return b.scheme + b.name + "+" + strconv.Itoa(n)
}

// Open reports whether the system chooses a part of the endpoint.
func (b Site) Open() bool {
	return b.scheme == schemeTCP && b.port == 0 || b.scheme == schemeIPC && b.name == "*"
}

// chosen returns b with the part that the system has chosen for a bound endpoint.
func (b Site) chosen(bound string) (Site, error) {
	if b.scheme == schemeTCP {
		b.port = of(bound) // the host stays as it was given
		if b.port > netlink.MaxServerPort {
			return b, errors.New("P+2 is above 65535")
		}
		return b, nil
	}
	return Parse(bound, false)
}

// of returns the port of a bound endpoint.
func of(endpoint string) int {
	e, _ := netlink.Parse(endpoint, true)
	return e.Port()
}

// Three has a socket of a server, or an endpoint, for each of its ports: the one for
// snapshots, the publisher, the collector.
type Three[T any] [3]T

// Socket is a socket that is bound.
type Socket interface {
	Bind(ctx context.Context, endpoint string) error
	Unbind(endpoint string) error
	LastEndpoint() string
}

// Listener binds the sockets of a server.
type Listener struct {
	Sockets Three[Socket]
	Places  Three[int] // after P; that of a socket that is not bound is negative
}

// attempts is the number of times that Bind looks for three consecutive free ports.
const attempts = 100

// Bind binds all sites, or none. It returns the endpoints of each; with an error, also the
// one that could not be bound.
func (l *Listener) Bind(ctx context.Context, sites []Site) (all []Three[string], at string, err error) {
	for _, b := range sites {
		bound, at, err := l.bind(ctx, b)
		// The system always finds a first port, so an error at that one would come again.
		for n := 1; err != nil && bound != (Three[string]{}) && b.scheme == schemeTCP && b.port == 0 && n < attempts; n++ {
			bound, at, err = l.bind(ctx, b)
		}
		if err != nil {
			l.Unbind(all)
			return nil, at, err
		}
		all = append(all, bound)
	}
	return all, "", nil
}

// Unbind undoes Bind.
func (l *Listener) Unbind(all []Three[string]) {
	for _, bound := range all {
		for i, endpoint := range bound {
			if endpoint != "" {
				_ = l.Sockets[i].Unbind(endpoint) // it was bound just now
			}
		}
	}
}

// bind binds the three endpoints of b, or none. If the system chooses a part of the first
// one, the others follow from it. With an error it returns those that could be bound, which
// no longer are, and the one that could not.
func (l *Listener) bind(ctx context.Context, b Site) (bound Three[string], at string, err error) {
	for i, place := range l.Places {
		if place < 0 {
			continue
		}
		at = b.At(place)
		if err = l.Sockets[i].Bind(ctx, at); err == nil {
			bound[i] = l.Sockets[i].LastEndpoint()
			if place == 0 && b.Open() {
				b, err = b.chosen(bound[i])
			}
		}
		if err != nil {
			l.Unbind([]Three[string]{bound})
			return bound, at, err
		}
	}
	return bound, "", nil
}
