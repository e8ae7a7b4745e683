package sockets

import (
	"slices"
	"sync"
	"sync/atomic"
)

// watch tells Pollers that something about a socket may have changed: messages
// came, a queue has room again, a peer came or went, the socket was closed. They
// look for themselves what it was, under the socket's locks.
//
// Its mutex is the last of all in the order of locks. While nobody watches, it
// costs a load a batch.
type watch struct {
	on     atomic.Bool // there are tokens
	mu     sync.Mutex
	tokens []chan<- struct{} // capacity 1
}

// tell is to be called after the change, with any lock held.
//
// Who watches adds its token before it looks. So if it looked before the
// change, the token is there now.
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

// Readable returns a channel for use in select beside other channels. A value
// can be received from it while messages are waiting: each time that one was
// received, call a receive method once (usually TryRecv), and there is a value
// again if that left messages. After Close the channel is closed.
//
// All calls return the same channel. It is made for one goroutine that receives
// from the socket: if others take messages as well, there may be none left
// where the channel had a value. Sockets that receive nothing have a channel
// without values. It costs nothing before the first call, and afterwards a
// channel operation a batch; no goroutine is behind it.
func (s *socket) Readable() <-chan struct{} { return s.in.channel() }

// watched adds a token to those that are told.
func (in *inbox) watched(token chan<- struct{}) {
	in.watch.add(token)
	in.mu.Lock()
	in.recall() // nobody will be waiting in a receive call
	in.mu.Unlock()
}

// channel makes the channel of Readable.
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

// signal makes the channel of Readable hold a value while there are messages,
// and none while there are none. mu must be held, and is held by whoever
// changes that.
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

// waiting says that there are messages. It fetches what a link has, of which
// nothing may be for the application.
func (in *inbox) waiting() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.front() != nil
}
