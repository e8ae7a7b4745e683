package partner

import (
	"context"
	"slices"
	"sync"
	"time"

	"clustermap/chp/internal/snapshot"
	"clustermap/chp/internal/wire"
	"clustermap/internal/timer"
	"clustermap/patterns/binarystar"
	"clustermap/sockets"
)

// parked are the requests of clients that wait for this server to become active. They, and
// others that came lately, vote for it.
type parked struct {
	mu       sync.Mutex
	requests []request
	asked    time.Duration // when a client last sent one while the server was not active, on clock; 0 if none did
}

// request is one ICANHAZ of one client.
type request struct {
	peer *sockets.Peer
	want wire.Want
}

// add parks a request unless done says that the server is active now. It reports whether it is
// parked, and whether the client has too many.
func (w *parked) add(r request, now time.Duration, active func() bool) (kept, tooMany bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = now
	if active() {
		return false, false
	}
	own := 0
	for _, other := range w.requests {
		if other.peer == r.peer {
			own++
		}
	}
	if own >= maxParkedEach {
		return false, true
	}
	if len(w.requests) == maxParked {
		w.requests = slices.Delete(w.requests, 0, 1)
	}
	w.requests = append(w.requests, r)
	return true, false
}

// ask notes that somebody wants this server to be active who sends no request.
func (w *parked) ask(now time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = now
}

// take removes all requests, and returns them.
func (w *parked) take() []request {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.requests
	w.requests = nil
	return all
}

// forget removes the requests of a peer whose connection has ended.
func (w *parked) forget(peer *sockets.Peer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requests = slices.DeleteFunc(w.requests, func(r request) bool { return r.peer == peer })
}

// vote reports whether clients want this server to be active: one waits for that or has sent a
// request for at most a time. A request from before the other server was last heard says
// nothing about that server's silence.
func (w *parked) vote(heard, now, most time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.requests) > 0 || w.asked != 0 && w.asked >= heard && now-w.asked <= most
}

// Park keeps a client's request while the server is not active, and counts it as a vote.
func (p *Pair) Park(ctx context.Context, peer *sockets.Peer, want wire.Want) error {
	// It may have become active since the caller's check, and have served the parked requests.
	kept, tooMany := p.parked.add(request{peer, want}, timer.Now(), p.active.Load)
	switch {
	case tooMany:
		return snapshot.ErrTooMany
	case !kept:
		return p.o.Answer(ctx, peer, want)
	}
	if want.Full {
		p.send(peer, wire.AppendStandby(nil))
	}
	p.vote(ctx)
	return nil
}

// Ask counts as a request of a client: if the server is not active, it votes for it, with the next heartbeat.
func (p *Pair) Ask() { p.parked.ask(timer.Now()) }

// vote votes for this server if clients do, see parked.vote.
//
// Before this server takes over it asks the other one on a new connection: if this one was
// cut off, clients may reach it before it hears the other one, which would then yield what
// it has accepted meanwhile.
func (p *Pair) vote(ctx context.Context) {
	if p.active.Load() || !p.mayServe() || !p.node.CanTakeOver() {
		return
	}
	heard := time.Duration(0)
	if peer := p.node.Peer(); peer.State != 0 {
		heard = timer.At(peer.Heard)
	}
	if !p.parked.vote(heard, timer.Now(), 2*p.o.Timeout) || p.votes.Swap(true) {
		return
	}
	p.asking.Go(func() {
		defer p.votes.Store(false)
		if p.probe(ctx) != nil && p.mayServe() {
			_, _ = p.node.Vote(ctx) // Run receives the result
		}
	})
}

// mayServe reports whether the server may become active. A passive server must have
// copied the active one's map. A server that has just started, perhaps with an empty
// map, gives the other one time to announce itself.
func (p *Pair) mayServe() bool {
	if p.node.State() == binarystar.StatePassive {
		return p.copier.copied.Load()
	}
	return p.waitsFor() < 0
}

// waitsFor is what is left of the time that a server which has started gives the other one to
// be heard.
func (p *Pair) waitsFor() time.Duration {
	return max(startTimeouts*p.o.Timeout, startLeast) - time.Since(p.Began)
}
