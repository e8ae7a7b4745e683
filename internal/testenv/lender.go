package testenv

import "sync/atomic"

// Lender owns lent bytes and counts the references to them.
type Lender struct {
	Refs     atomic.Int64
	Retained atomic.Int64
	Free     chan struct{} // gets a token when the last reference goes; capacity 1
}

// NewLender returns a lender of bytes to which nothing refers.
func NewLender() *Lender { return &Lender{Free: make(chan struct{}, 1)} }

// Retain adds a reference.
func (l *Lender) Retain() {
	l.Refs.Add(1)
	l.Retained.Add(1)
}

// Release removes a reference, and panics if there is none.
func (l *Lender) Release() {
	switch n := l.Refs.Add(-1); {
	case n < 0:
		panic("released more often than retained")
	case n == 0:
		select {
		case l.Free <- struct{}{}:
		default:
		}
	}
}
