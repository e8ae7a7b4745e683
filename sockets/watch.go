package sockets

import (
	"slices"
	"sync"
	"sync/atomic"
)

// watch notifies Pollers that the state of a socket may have changed: messages
// have arrived, a queue has room again, a peer has come or gone, or the socket
// was closed. The Pollers then check, under the socket's locks, what has
// changed.
//
// Its mutex is the last one in the lock order. While nothing is watching, it
// costs one atomic load per batch.
type watch struct {
	on     atomic.Bool // there are tokens
	mu     sync.Mutex
	tokens []chan<- struct{} // capacity 1
}

// tell notifies all Pollers. It must be called after the change, and may be
// called with any lock held.
//
// A Poller adds its token before it checks the socket. So if it has checked
// before the change, its token is there now.
func (w *watch) tell() {
	if !w.on.Load() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, token := range w.tokens {
		select {
		case token <- struct{}{}:
		default:
		}
	}
}

func (w *watch) add(token chan<- struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tokens = append(w.tokens, token)
	w.on.Store(true)
}

func (w *watch) remove(token chan<- struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := slices.Index(w.tokens, token); i >= 0 {
		w.tokens = slices.Delete(w.tokens, i, i+1)
	}
	w.on.Store(len(w.tokens) > 0)
}

// Readable returns a channel that holds a value while the socket has messages
// to receive. It can be used in a select statement: after receiving a value,
// call a receive method once, usually TryRecv. If messages are left after that,
// the channel holds a value again. The channel is closed when the socket is
// closed.
//
// All calls return the same channel. It is meant for a single goroutine that
// receives from the socket; if other goroutines receive too, a value does not
// guarantee that a message is left. The channel of a socket that cannot receive
// never holds a value. Readable costs nothing until it is called; after that,
// each batch costs a channel operation. No goroutine is involved.
func (s *socket) Readable() <-chan struct{} { return s.in.channel() }

// watched adds a token to be notified.
func (in *inbox) watched(token chan<- struct{}) {
	in.watch.add(token)
	in.mu.Lock()
	in.recall() // the application no longer waits in receive calls
	in.mu.Unlock()
}

// channel returns the channel of Readable and creates it if necessary.
func (in *inbox) channel() <-chan struct{} {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.readable == nil {
		in.readable = make(chan struct{}, 1)
		in.recall()
		if in.closed() {
			close(in.readable)
		}
		in.signal()
	}
	return in.readable
}

// signal makes the channel of Readable hold a value if there are messages, and
// none otherwise. mu must be held, as by all code that changes whether there
// are messages.
func (in *inbox) signal() {
	switch {
	case in.readable == nil || in.closed():
	case in.ready.Len() > 0:
		select {
		case in.readable <- struct{}{}:
		default:
		}
	default:
		select {
		case <-in.readable:
		default:
		}
	}
}

func (in *inbox) closed() bool {
	select {
	case <-in.done:
		return true
	default:
		return false
	}
}

// waiting reports whether there are messages. It fetches what a link holds, of
// which nothing may be for the application.
func (in *inbox) waiting() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.front() != nil
}
