package collect

import (
	"context"
	"errors"
	"sync"
	"time"

	"clustermap/internal/hooks"
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
	applied func(context.Context, sender) ([]byte, error) // Clients.appliedSoon
	timeout time.Duration                                 // for sending one portion
	ctx     context.Context
	cancel  context.CancelFunc
	sending sync.WaitGroup

	mu    sync.Mutex
	owed  map[*sockets.Peer]*refusalNotice // unsent reports, by snapshot connection
	bytes int                              // of all unsent refusals
}

func newNotifier(router *sockets.Router, applied func(context.Context, sender) ([]byte, error), timeout time.Duration) *notifier {
	t := &notifier{router: router, applied: applied, timeout: timeout, owed: map[*sockets.Peer]*refusalNotice{}}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// notify sends the refusals in n to their client, now or later. It does not wait.
func (t *notifier) notify(n *refusalNotice) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx.Err() != nil {
		return
	}
	owed := t.owed[n.peer]
	if owed == nil {
		err := hooks.SendWireTo(wake.Ended, t.router, n.peer, n.wire, n.messages, nil)
		if !errors.Is(err, context.Canceled) {
			return // sent, or the connection has ended
		}
	}
	waiting := len(n.wire)
	if owed != nil {
		waiting += len(owed.wire)
	}
	if waiting > maxOwed || t.bytes+len(n.wire) > maxOwedTotal {
		n.peer.Disconnect(sockets.ErrSlowPeer)
		return
	}
	if owed == nil {
		owed = t.owe(n.peer)
	}
	owed.wire = append(owed.wire, n.wire...)
	owed.messages += n.messages
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
	owed := t.owed[peer]
	if owed == nil {
		if wire, err := t.applied(wake.Ended, who); err == nil {
			if err := hooks.SendWireTo(wake.Ended, t.router, peer, wire, 1, nil); !errors.Is(err, context.Canceled) {
				return // sent, or the connection has ended
			}
		}
		owed = t.owe(peer)
	}
	owed.progress, owed.who = true, who
}

// owe starts a goroutine for a client. mu must be held.
func (t *notifier) owe(peer *sockets.Peer) *refusalNotice {
	owed := &refusalNotice{peer: peer}
	t.owed[peer] = owed
	t.sending.Go(func() { t.run(owed) })
	return owed
}

// run sends the reports for one client until all are sent or the connection ends.
func (t *notifier) run(owed *refusalNotice) {
	for {
		t.mu.Lock()
		var wire []byte
		var messages, size int
		switch {
		case owed.messages > 0:
			messages = min(owed.messages, notifyPortion)
			size = len(owed.wire) / owed.messages * messages // all have the same size
			wire = owed.wire[:size:size]
			owed.wire, owed.messages = owed.wire[size:], owed.messages-messages
			t.mu.Unlock()
		case owed.progress:
			owed.progress = false
			who := owed.who
			t.mu.Unlock()
			var err error
			if wire, err = t.applied(t.ctx, who); err != nil {
				return // the server ends
			}
			messages = 1
		default:
			delete(t.owed, owed.peer)
			t.mu.Unlock()
			return
		}

		ctx, cancel := context.WithTimeout(t.ctx, t.timeout)
		err := hooks.SendWireTo(ctx, t.router, owed.peer, wire, messages, nil)
		cancel()

		t.mu.Lock()
		t.bytes -= size
		if err != nil {
			t.bytes -= len(owed.wire)
			delete(t.owed, owed.peer)
		}
		t.mu.Unlock()
		if err != nil {
			if t.ctx.Err() == nil {
				owed.peer.Disconnect(sockets.ErrSlowPeer)
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
