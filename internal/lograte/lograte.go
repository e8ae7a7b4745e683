// Package lograte limits how often the same thing is logged, so that neither a peer that
// fails all the time nor many of them hide what happens to others, and keeps a slow logger
// from delaying anyone.
package lograte

import (
	"sync"
	"time"
)

// Limiter decides which events are logged. An event of a kind about a peer is logged when
// it first occurs, and then at intervals that double from First to Most, with the number
// of those left out since. Its memory is bounded by Size: when as many peers and kinds are
// remembered, those about which nothing has happened for a while are forgotten; if there
// are none, the events of a kind about all further peers count as being about one. All
// methods are safe for concurrent use.
//
// Kinds are texts of the program, of which there are few; the text of a peer is of any
// number, and must be short.
type Limiter struct {
	First, Most time.Duration
	Size        int

	mu    sync.Mutex
	table map[key]*entry
	swept time.Time // when the table was last searched for what can be forgotten
}

type key struct{ peer, kind string }

// entry counts the events of one kind about one peer.
type entry struct {
	next    time.Time     // when one is logged again
	wait    time.Duration // from next to the time after it
	omitted int           // not logged since the last one that was
}

// Due reports whether to log an event, and how many of the same kind about the same peer
// were left out since the last that was logged.
func (l *Limiter) Due(peer, kind string, now time.Time) (log bool, omitted int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := key{peer, kind}
	e := l.table[k]
	if e == nil && len(l.table) >= l.Size && !l.sweep(now) {
		k.peer = "" // all others
		e = l.table[k]
	}
	if e == nil {
		if l.table == nil {
			l.table = map[key]*entry{}
		}
		l.table[k] = &entry{next: now.Add(l.First), wait: 2 * l.First}
		return true, 0
	}
	if now.Before(e.next) {
		e.omitted++
		return false, 0
	}
	return true, l.logged(e, now)
}

// logged sets when an entry is logged again, and returns what was left out.
func (l *Limiter) logged(e *entry, now time.Time) (omitted int) {
	omitted = e.omitted
	*e = entry{next: now.Add(min(e.wait, l.Most)), wait: min(2*e.wait, l.Most)}
	return omitted
}

// Forget forgets a peer, so that what happens to it next is logged at once.
func (l *Limiter) Forget(peer string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k := range l.table {
		if k.peer == peer {
			delete(l.table, k)
		}
	}
}

// sweep forgets entries about which nothing has happened for as long as they may be left
// out, and reports whether there is room now. It searches once in First.
func (l *Limiter) sweep(now time.Time) bool {
	if now.Sub(l.swept) < l.First {
		return false
	}
	l.swept = now
	for k, e := range l.table {
		if e.omitted == 0 && now.After(e.next) {
			delete(l.table, k)
		}
	}
	return len(l.table) < l.Size
}

// Flush calls report for everything that was left out, and that may be logged again, but
// has not occurred again. It is for a goroutine that runs now and then, so that the last
// events of a series are counted too. peer is empty if the events were about several.
func (l *Limiter) Flush(now time.Time, report func(peer, kind string, omitted int)) {
	type left struct {
		key
		omitted int
	}
	var all []left
	l.mu.Lock()
	for k, e := range l.table {
		if e.omitted > 0 && now.After(e.next) {
			all = append(all, left{k, l.logged(e, now)})
		}
	}
	l.mu.Unlock()
	for _, e := range all {
		report(e.peer, e.kind, e.omitted)
	}
}
