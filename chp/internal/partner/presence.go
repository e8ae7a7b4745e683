package partner

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"clustermap/chp/internal/wire"
	"clustermap/internal/lograte"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// Who is not heard need not be gone: at the addresses of the other server somebody may accept
// connections who refuses this server's key, or who sends no state there.

// presence is what is known of who is at the addresses of the other server, without being
// heard. It is safe for concurrent use.
type presence struct {
	*Options
	failures *lograte.Limiter

	mu     sync.Mutex
	faults map[string]string // of the addresses that answer, by endpoint: why nothing is heard
	warned bool              // it has logged one of those
}

// knows notes why nobody is heard at an address although somebody answers there; fault is
// empty if nobody answers, or is heard.
func (p *presence) knows(endpoint, fault string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults[endpoint] = fault
}

// heard forgets what was wrong, since the other server is heard: when it is gone, nobody answers.
func (p *presence) heard() {
	p.mu.Lock()
	warned := p.warned
	p.warned = false
	clear(p.faults)
	p.mu.Unlock()
	if warned {
		p.Log.Warn("hears the other server", "peer", p.Peer) // at the level of the line that says that it could not
	}
}

// fault returns why the other server is not heard although somebody answers at its
// addresses. It is empty if nobody does.
func (p *presence) fault() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f := p.faults[p.PeerState]; f != "" {
		return f
	}
	return p.faults[p.Peer]
}

// watch is called with the events of connections to the other server's state endpoint. It
// logs why that one, or this server, refuses the connection.
func (p *presence) watch(e sockets.Event) {
	switch e.Kind {
	case sockets.EventHandshakeSucceeded:
		p.knows(p.PeerState, "")
		p.failures.Forget(p.PeerState)
	case sockets.EventConnectFailed:
		p.knows(p.PeerState, "")
	case sockets.EventHandshakeFailed:
		if !refuses(e) {
			return // it may be about to end, or only slow
		}
		fault := p.describe(p.PeerState, e.Err)
		p.knows(p.PeerState, fault)
		if due, _ := p.failures.Due(p.PeerState, fault, time.Now()); due {
			p.mu.Lock()
			p.warned = true
			p.mu.Unlock()
			p.Log.Warn("cannot hear the other server, which is there: "+fault, "peer", p.Peer, "error", e.Err)
		}
	}
}

// refuses reports whether a handshake failed because the two ends do not fit.
func refuses(e sockets.Event) bool {
	return e.Failure() > sockets.FailureNoDetail || errors.Is(e.Err, sockets.ErrServerKey)
}

// describe says why a handshake with the server at an endpoint failed.
func (p *presence) describe(endpoint string, err error) string {
	why := "does not complete the handshake"
	denial := (*zmtp.ProtocolError)(nil)
	switch plain := p.PeerSecurity().CurveServerKey.IsZero(); {
	case errors.Is(err, zmtp.ErrMechanism) && plain:
		why = "requires CURVE, which this server does not use"
	case errors.Is(err, zmtp.ErrMechanism):
		why = "does not use CURVE, which this server requires"
	case errors.Is(err, sockets.ErrServerKey):
		why = "cannot read what this server sends, as if it had another CURVE key"
	case errors.As(err, &denial) && denial.Status() != 0:
		why = "does not accept this server's key"
	case errors.Is(err, zmtp.ErrIncompatible) || errors.Is(err, zmtp.ErrRefused):
		why = "refuses the connection, as an endpoint for something else does"
	}
	return "the server at " + endpoint + " " + why
}

// outbound is a socket that connects.
type outbound interface {
	Connect(endpoint string) error
	Close() error
}

// look connects to the addresses of the other server and returns why it is not heard although
// somebody accepts a connection there, as fault does. It takes no longer than a connection of
// a passive server.
func (p *presence) look(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, max(p.Timeout, time.Second))
	defer cancel()
	var looking sync.WaitGroup
	looking.Go(func() {
		p.visit(ctx, p.PeerState, "sends no state", func(o sockets.Options) (outbound, error) { return sockets.NewSub(o) })
	})
	looking.Go(func() {
		p.visit(ctx, p.Peer, "answers, but nothing is heard at "+p.PeerState+": is that its state endpoint?",
			func(o sockets.Options) (outbound, error) { return sockets.NewDealer(o) })
	})
	looking.Wait()
	return p.fault()
}

// visit connects to an address, and notes what it finds; welcome is what is wrong with a server
// with which the handshake succeeds.
func (p *presence) visit(ctx context.Context, endpoint, welcome string, open func(sockets.Options) (outbound, error)) {
	events := make(chan sockets.Event, 16) // one connection has fewer that matter
	socket, err := open(sockets.Options{
		Security: p.PeerSecurity(), Metadata: wire.Properties(), ReconnectInterval: sockets.ReconnectNever, Linger: sockets.LingerNone,
		Monitor: func(e sockets.Event) {
			select {
			case events <- e:
			default:
			}
		},
	})
	if err != nil {
		return
	}
	defer socket.Close()
	fault := ""
	defer func() { p.knows(endpoint, fault) }()
	if socket.Connect(endpoint) != nil {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-events:
			switch e.Kind {
			case sockets.EventConnected:
				fault = fmt.Sprintf("the server at %s accepts a connection, and does not complete the handshake", endpoint)
			case sockets.EventHandshakeSucceeded:
				fault = fmt.Sprintf("the server at %s %s", endpoint, welcome)
				return
			case sockets.EventHandshakeFailed:
				fault = p.describe(endpoint, e.Err)
				return
			case sockets.EventConnectFailed:
				return
			}
		}
	}
}
