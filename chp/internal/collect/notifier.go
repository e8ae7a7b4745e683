package collect

import (
	"context"
	"errors"
	"sync"
	"time"

	"clustermap/internal/hooks"
	"clustermap/internal/kvmsg"
	"clustermap/internal/wake"
	"clustermap/sockets"
)

// notifier reports refused updates and progress to clients. The goroutines that read
// and accept updates must not wait for a client, and a client can have many thousands
// of updates in transit when the map becomes full. So reports for which a connection
// has no room are kept here, and a goroutine per client sends them. A client with too
// many of them is disconnected.
type notifier struct {
	router  *sockets.Router
	applied func(context.Context, []byte, sender) ([]byte, error) // Clients.applied
	timeout time.Duration                                         // for sending one portion
	ctx     context.Context
	cancel  context.CancelFunc
	sending sync.WaitGroup

	mu      sync.Mutex
	pending map[*sockets.Peer]*refusalNotice // unsent reports, by snapshot connection
	bytes   int                              // of all unsent refusals
	wire    []byte                           // scratch, for one report
}

func newNotifier(router *sockets.Router, applied func(context.Context, []byte, sender) ([]byte, error), timeout time.Duration) *notifier {
	t := &notifier{router: router, applied: applied, timeout: timeout, pending: map[*sockets.Peer]*refusalNotice{}}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// room returns the bytes that answers to a client may still add with the values they carry, given
// those that wait elsewhere. Values take half of what is kept at most. So they are never what a
// client is disconnected for: the rest of the answers to all requests that it may have on
// their way is far below the other half.
func (t *notifier) room(peer *sockets.Peer, waiting, all int) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if pending := t.pending[peer]; pending != nil {
		waiting += len(pending.wire)
	}
	return max(0, min(maxPending/2-waiting, maxPendingTotal/2-all-t.bytes))
}

// notify sends the refusals in n to their client, now or later. It does not wait.
func (t *notifier) notify(n *refusalNotice) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx.Err() != nil {
		return
	}
	pending := t.pending[n.peer]
	if pending == nil {
		err := hooks.SendWireTo(wake.Ended, t.router, n.peer, n.wire, n.messages, nil)
		if !errors.Is(err, context.Canceled) {
			return // sent, or the connection has ended
		}
	}
	waiting := len(n.wire)
	if pending != nil {
		waiting += len(pending.wire)
	}
	if waiting > maxPending || t.bytes+len(n.wire) > maxPendingTotal {
		n.peer.Disconnect(sockets.ErrSlowPeer)
		return
	}
	if pending == nil {
		pending = t.add(n.peer)
	}
	pending.wire = append(pending.wire, n.wire...)
	pending.messages += n.messages
	t.bytes += len(n.wire)
}

// notifyProgress sends a client its progress, behind its refusals: now, or as soon as all
// its updates are published and there is room. It does not wait.
func (t *notifier) notifyProgress(peer *sockets.Peer, who sender) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx.Err() != nil {
		return
	}
	pending := t.pending[peer]
	if pending == nil {
		wire, err := t.applied(wake.Ended, t.wire[:0], who)
		if err == nil {
			t.wire = wire
			err = hooks.SendWireTo(wake.Ended, t.router, peer, wire, 1, nil)
		}
		if !errors.Is(err, context.Canceled) {
			return // sent, or the connection has ended
		}
		pending = t.add(peer)
	}
	pending.progress, pending.who = true, who
}

// add starts a goroutine for a client. mu must be held.
func (t *notifier) add(peer *sockets.Peer) *refusalNotice {
	pending := &refusalNotice{peer: peer}
	t.pending[peer] = pending
	t.sending.Go(func() { t.run(pending) })
	return pending
}

// sizeOf returns the size of the first n messages in wire.
func sizeOf(wire []byte, n int) (size int) {
	for more := false; n > 0; {
		more = wire[size]&kvmsg.FlagMore != 0
		if _, size = kvmsg.FrameBounds(wire, size); !more {
			n--
		}
	}
	return size
}

// run sends the reports for one client until all are sent or the connection ends.
func (t *notifier) run(pending *refusalNotice) {
	for {
		t.mu.Lock()
		var wire []byte
		var messages, size int
		switch {
		case pending.messages > 0:
			messages = min(pending.messages, notifyPortion)
			size = sizeOf(pending.wire, messages)
			wire = pending.wire[:size:size]
			pending.wire, pending.messages = pending.wire[size:], pending.messages-messages
			t.mu.Unlock()
		case pending.progress:
			pending.progress = false
			who := pending.who
			t.mu.Unlock()
			var err error
			if wire, err = t.applied(t.ctx, nil, who); err != nil {
				return // the server ends
			}
			messages = 1
		default:
			delete(t.pending, pending.peer)
			t.mu.Unlock()
			return
		}

		ctx, cancel := context.WithTimeout(t.ctx, t.timeout)
		err := hooks.SendWireTo(ctx, t.router, pending.peer, wire, messages, nil)
		cancel()

		t.mu.Lock()
		t.bytes -= size
		if err != nil {
			t.bytes -= len(pending.wire)
			delete(t.pending, pending.peer)
		}
		t.mu.Unlock()
		if err != nil {
			if t.ctx.Err() == nil {
				pending.peer.Disconnect(sockets.ErrSlowPeer)
			}
			return
		}
	}
}

// close ends the goroutines and waits for them.
func (t *notifier) close() {
	t.mu.Lock()
	t.cancel() // with mu held, so that no more goroutines start
	t.mu.Unlock()
	t.sending.Wait()
}
