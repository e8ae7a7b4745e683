package queue

import (
	"slices"
	"sync"
	"sync/atomic"

	"clustermap/internal/wake"
)

// watch notifies Pollers that the state of a socket may have changed: messages
// have arrived, a queue has room again, a peer has come or gone, or the socket
// was closed. The Pollers then check, under the socket's locks, what has
// changed.
//
// Its mutex is the last one in the lock order. While nothing is watching, it
// costs one atomic load per batch.
type watch struct {
	on     atomic.Bool   // there are tokens
	others atomic.Uint64 // changes other than arrivals; see Inbox.Marks
	mu     sync.Mutex
	tokens []chan<- struct{} // capacity 1

	// Guarded by Inbox.mu.
	dry      uint64        // how often there were no messages left; see Marks
	readable chan struct{} // see Readable; nil before its first use
}

// Tell notifies all Pollers. It must be called after the change, and may be
// called with any lock held.
//
// A Poller adds its token before it checks the socket. So if it has checked
// before the change, its token is there now.
func (in *Inbox) Tell() {
	if in.watch.on.Load() {
		in.watch.others.Add(1)
		in.watch.tell()
	}
}

// arrived is Tell for messages that have arrived.
func (in *Inbox) arrived() {
	if in.watch.on.Load() {
		in.watch.tell()
	}
}

// Marks tells Pollers and hooks whether a ready socket was not ready in between. dry
// rises whenever there are no messages left, and others with each change that Tell was
// called for. Both must be read before the state of the socket.
func (in *Inbox) Marks() (dry, others uint64) {
	in.lock()
	defer in.mu.Unlock()
	return in.watch.dry, in.watch.others.Load()
}

func (w *watch) tell() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, token := range w.tokens {
		wake.Signal(token)
	}
}

// Watch adds a token to be notified.
func (in *Inbox) Watch(token chan<- struct{}) {
	w := &in.watch
	w.mu.Lock()
	w.tokens = append(w.tokens, token)
	w.on.Store(true)
	w.mu.Unlock()
	in.lock()
	in.recall() // the application no longer waits in receive calls
	in.mu.Unlock()
}

// Unwatch removes a token.
func (in *Inbox) Unwatch(token chan<- struct{}) {
	w := &in.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := slices.Index(w.tokens, token); i >= 0 {
		w.tokens = slices.Delete(w.tokens, i, i+1)
	}
	w.on.Store(len(w.tokens) > 0)
}

// Readable returns a channel that holds a value while there are messages, and is closed
// when the inbox is.
func (in *Inbox) Readable() <-chan struct{} {
	in.lock()
	defer in.mu.Unlock()
	if in.watch.readable == nil {
		in.watch.readable = make(chan struct{}, 1)
		in.recall()
		if in.over {
			close(in.watch.readable)
		}
		in.signal()
	}
	return in.watch.readable
}

// signal makes the channel of Readable hold a value if there are messages, and
// none otherwise, and counts for Marks. mu must be held, as by all code that changes whether there
// are messages.
func (in *Inbox) signal() { in.watch.signal(in.ready.count > 0, in.over) }

func (w *watch) signal(some, over bool) {
	if !some {
		w.dry++
	}
	switch {
	case w.readable == nil || over:
	case some:
		wake.Signal(w.readable)
	default:
		select {
		case <-w.readable:
		default:
		}
	}
}
