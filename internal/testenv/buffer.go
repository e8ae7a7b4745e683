package testenv

import (
	"bytes"
	"sync"
)

// Buffer is a buffer that several goroutines can write and read.
type Buffer struct {
	mu     sync.Mutex
	buf    bytes.Buffer
	signal chan struct{} // closed at the next write
}

// Write appends to the buffer.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.signal != nil {
		close(b.signal)
		b.signal = nil
	}
	return b.buf.Write(p)
}

// String returns the bytes written.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// Written returns a channel that is closed at the next write. Call it before String, so
// that no write is missed.
func (b *Buffer) Written() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.signal == nil {
		b.signal = make(chan struct{})
	}
	return b.signal
}
