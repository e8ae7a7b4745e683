package main

import (
	"bytes"
	"sync"
)

// lockedBuffer is a buffer that one goroutine fills while another looks.
type lockedBuffer struct {
	mu     sync.Mutex
	buf    bytes.Buffer
	signal chan struct{} // closed at the next write
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.signal != nil {
		close(b.signal)
		b.signal = nil
	}
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// written returns a channel that is closed at the next write. To miss nothing,
// ask for it before looking.
func (b *lockedBuffer) written() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.signal == nil {
		b.signal = make(chan struct{})
	}
	return b.signal
}
