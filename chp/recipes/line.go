package recipes

import (
	"cmp"
	"slices"
)

// line is those that hold a lock, and those that wait for it, as the watch has reported.
type line struct {
	name    string
	slots   int     // how many may hold it, if own locks are in the line
	places  []place // by ticket
	touched bool    // in queue.touched
}

// place is a key in a line.
type place struct {
	ticket int64
	key    string
	value  []byte
	own    *Lock // nil if it is of another
	seen   bool  // since the watch began
}

func (l *line) find(ticket int64) (int, bool) {
	return slices.BinarySearchFunc(l.places, ticket, func(p place, t int64) int { return cmp.Compare(p.ticket, t) })
}

// insert adds a place.
func (l *line) insert(p place) {
	i, _ := l.find(p.ticket)
	l.places = slices.Insert(l.places, i, p)
}
