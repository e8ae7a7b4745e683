package chp

import (
	"cmp"
	"context"
	"errors"
	"net"
	"strconv"

	"clustermap/chp/internal/follow"
	"clustermap/chp/internal/wire"
	netlink "clustermap/internal/link"
	"clustermap/internal/option"
)

// A server listens on three endpoints, which one text names: see
// [ServerOptions.Endpoints].

// Endpoints holds the endpoints on which a server listens, with the actual ports.
type Endpoints struct {
	Snapshot  string // P: ROUTER; empty in Clone model 1
	Publisher string // P+1: PUB; P in Clone model 1
	Collector string // P+2: SUB; PULL in Clone models 1 to 5
}

// site is a parsed text that names three endpoints.
type site struct {
	scheme string // with the slashes
	name   string // host, path or name
	port   int    // tcp only; 0 for any free port
}

const (
	schemeTCP    = "tcp://"
	schemeIPC    = "ipc://"
	schemeInproc = "inproc://"
)

// parseSite parses tcp://host:P, ipc://path or inproc://name. Wildcards, and port 0, are
// allowed only if bind is true.
func parseSite(text string, bind bool) (site, error) {
	e, err := netlink.ParseServer(text, bind)
	if wrong := (*netlink.EndpointError)(nil); errors.As(err, &wrong) {
		return site{}, errors.New(wrong.Reason) // the caller names the endpoint
	}
	name := e.Name
	switch e.Scheme {
	case netlink.TCP:
		name = cmp.Or(e.Host(), "*")
	case netlink.IPC:
		name = cmp.Or(e.Name, "*")
	}
	return site{e.Scheme + "://", name, e.Port()}, nil
}

// at returns the endpoint n places after P, or "" if n is negative.
func (b site) at(n int) string {
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

// open reports whether the system chooses a part of the endpoint.
func (b site) open() bool {
	return b.scheme == schemeTCP && b.port == 0 || b.scheme == schemeIPC && b.name == "*"
}

// parseServer derives a server's three endpoints from the text that names it.
func parseServer(name string, d wire.Dialect) (follow.Address, error) {
	b, err := parseSite(name, false)
	if err != nil {
		return follow.Address{}, err
	}
	snapshot, publisher, collector := d.Ports()
	return follow.Address{Name: name, Snapshot: b.at(snapshot), Publisher: b.at(publisher), Collector: b.at(collector)}, nil
}

// sites returns where the server listens. The options were checked.
func (o *ServerOptions) sites() []site {
	if len(o.Endpoints) == 0 {
		return []site{{schemeTCP, o.Host, o.Port}}
	}
	var all []site
	for _, text := range o.Endpoints {
		b, _ := parseSite(text, true)
		all = append(all, b)
	}
	return all
}

// checkEndpoints returns the errors of the options that say where the server listens.
func (o *ServerOptions) checkEndpoints() (errs []error) {
	bad := func(field, format string, args ...any) {
		errs = append(errs, option.New("chp", field, format, args...))
	}
	if o.Port < 0 || o.Port > netlink.MaxServerPort {
		bad("Port", "%d: P, P+1 and P+2 must be between 1 and 65535", o.Port)
	}
	if _, err := parseSite(site{schemeTCP, o.Host, 0}.at(0), true); err != nil && o.Host != "" {
		bad("Host", "%q is not an address, a name or *; the port is in Port", o.Host)
	}
	if len(o.Endpoints) > 0 && (o.Host != "" || o.Port != 0) {
		bad("Endpoints", "excludes Host and Port: they stand for one tcp endpoint")
	}
	seen := map[string]bool{}
	for _, text := range o.Endpoints {
		b, err := parseSite(text, true)
		switch {
		case err != nil:
			bad("Endpoints", "%q %v", text, err)
		case seen[text] && !b.open():
			bad("Endpoints", "%q is listed twice", text)
		}
		seen[text] = true
	}
	if o.Advertise != "" {
		if _, err := parseSite(o.Advertise, false); err != nil {
			bad("Advertise", "%q %v", o.Advertise, err)
		}
	}
	return errs
}

// portAttempts is the number of times that Listen looks for three consecutive free
// ports.
const portAttempts = 100

// bind binds all endpoints, or none.
func (s *Server) bind(ctx context.Context) error {
	for _, b := range s.opts.sites() {
		some, err := s.bindThree(ctx, b)
		// The system always finds a first port, so an error at that one would come again.
		for n := 1; err != nil && some && b.scheme == schemeTCP && b.port == 0 && n < portAttempts; n++ {
			some, err = s.bindThree(ctx, b)
		}
		if err != nil {
			s.unbind()
			return err
		}
	}
	return nil
}

// binder is a socket that the server binds.
type binder interface {
	Bind(ctx context.Context, endpoint string) error
	Unbind(endpoint string) error
	LastEndpoint() string
}

// unbind undoes bind.
func (s *Server) unbind() {
	for _, e := range s.endpoints {
		s.unbindThree(e)
	}
	s.endpoints = nil
}

func (s *Server) unbindThree(e Endpoints) {
	for _, at := range []struct {
		binder
		endpoint string
	}{{s.router, e.Snapshot}, {s.publisher, e.Publisher}, {s.collector, e.Collector}} {
		if at.endpoint != "" {
			_ = at.Unbind(at.endpoint) // it was bound just now
		}
	}
}

// bindThree binds the three endpoints of b, or none, and adds them to s.endpoints. If
// the system chooses a part of the first one, the others follow from it. With an error it
// reports whether the first one could be bound.
func (s *Server) bindThree(ctx context.Context, b site) (some bool, _ error) {
	var bound Endpoints
	snapshot, publisher, collector := s.dialect.Ports()
	for _, at := range [...]struct {
		binder
		offset int
		bound  *string
	}{{s.router, snapshot, &bound.Snapshot}, {s.publisher, publisher, &bound.Publisher}, {s.collector, collector, &bound.Collector}} {
		if at.offset < 0 {
			continue
		}
		endpoint := b.at(at.offset)
		err := at.Bind(ctx, endpoint)
		if err == nil {
			*at.bound = at.LastEndpoint()
			if at.offset == 0 && b.open() {
				b, err = s.chosen(b, *at.bound)
			}
		}
		if err != nil {
			s.unbindThree(bound)
			return bound != (Endpoints{}), &ListenError{endpoint, err}
		}
	}
	s.endpoints = append(s.endpoints, bound)
	return true, nil
}

// chosen returns b with the part that the system has chosen for a bound endpoint.
func (s *Server) chosen(b site, bound string) (site, error) {
	if b.scheme == schemeTCP {
		b.port = portOf(bound) // the host stays as it was given
		if b.port > netlink.MaxServerPort {
			return b, errors.New("P+2 is above 65535")
		}
		return b, nil
	}
	return parseSite(bound, false)
}

// portOf returns the port of a bound endpoint.
func portOf(endpoint string) int {
	e, _ := netlink.Parse(endpoint, true)
	return e.Port()
}

// Endpoints returns the endpoints on which the server listens: the first ones if it
// listens on several. They are empty before Listen.
func (s *Server) Endpoints() Endpoints {
	if all := s.AllEndpoints(); len(all) > 0 {
		return all[0]
	}
	return Endpoints{}
}

// AllEndpoints returns the endpoints of each element of ServerOptions.Endpoints, in the
// same order, with the actual ports and paths. There are none before Listen.
func (s *Server) AllEndpoints() []Endpoints {
	s.state.Lock()
	defer s.state.Unlock()
	return append([]Endpoints(nil), s.endpoints...)
}
