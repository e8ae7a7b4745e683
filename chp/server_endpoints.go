package chp

import (
	"clustermap/chp/internal/ports"
	netlink "clustermap/internal/link"
	"clustermap/internal/option"
)

// sites returns where the server listens. The options were checked.
func (o *ServerOptions) sites() []ports.Site {
	if len(o.Endpoints) == 0 {
		return []ports.Site{ports.TCP(o.Host, o.Port)}
	}
	var all []ports.Site
	for _, text := range o.Endpoints {
		b, _ := ports.Parse(text, true)
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
	if _, err := ports.Parse(ports.TCP(o.Host, 0).At(0), true); err != nil && o.Host != "" {
		bad("Host", "%q is not an address, a name or *; the port is in Port", o.Host)
	}
	if len(o.Endpoints) > 0 && (o.Host != "" || o.Port != 0) {
		bad("Endpoints", "excludes Host and Port: they stand for one tcp endpoint")
	}
	seen := map[string]bool{}
	for _, text := range o.Endpoints {
		b, err := ports.Parse(text, true)
		switch {
		case err != nil:
			bad("Endpoints", "%q %v", text, err)
		case seen[text] && !b.Open():
			bad("Endpoints", "%q is listed twice", text)
		}
		seen[text] = true
	}
	if o.Advertise != "" {
		if _, err := ports.Parse(o.Advertise, false); err != nil {
			bad("Advertise", "%q %v", o.Advertise, err)
		}
	}
	return errs
}

// checkSelf returns an error for each endpoint of the other server that is one of this
// server's own. It does not resolve names. A server that hears itself all the same logs
// that (see partner.Pair).
func (o *ServerOptions) checkSelf() (errs []error) {
	p := o.Pair
	own := []string{p.State}
	for _, b := range o.sites() {
		for n := 0; n < 3 && !b.Open(); n++ {
			own = append(own, b.At(n))
		}
	}
	for _, f := range []struct{ name, value string }{{"Peer", p.Peer}, {"PeerState", p.PeerState}} {
		for _, bound := range own {
			if ports.Lead(f.value, bound) {
				errs = append(errs, option.New("chp", "Pair."+f.name, "%q is this server's own endpoint %s, not the other server's", f.value, bound))
				break
			}
		}
	}
	return errs
}
