package engine

import (
	"time"

	"clustermap/internal/link"
)

// handshakeWriter writes the bytes of a handshake. In a handshake both sides may write
// before they read. A connection that Options.Dial or Options.Listen has made may have no
// buffer, like net.Pipe, so that a write lasts until the other side reads. Therefore such
// a write takes place in a goroutine of its own, one at a time, while the handshake
// reads.
type handshakeWriter struct {
	stream *link.Stream
	done   chan error // receives the result of the write in progress; nil if there is none
}

// write writes b, which the caller may reuse afterwards. The error may be that of
// an earlier write.
func (w *handshakeWriter) write(b []byte) error {
	if w.stream.Buffered() {
		_, err := w.stream.Write(b)
		return err
	}
	if err := w.flush(); err != nil {
		return err
	}
	b, done := append([]byte(nil), b...), make(chan error, 1)
	w.done = done
	go func() {
		_, err := w.stream.Write(b)
		done <- err
	}()
	return nil
}

// flush waits until everything is written. The connection's deadline limits the
// wait.
func (w *handshakeWriter) flush() error {
	if w.done == nil {
		return nil
	}
	err := <-w.done
	w.done = nil
	return err
}

// abandon ends a write that is in progress and waits for its goroutine.
func (w *handshakeWriter) abandon(c *conn) {
	if w.done == nil {
		return
	}
	_ = c.setDeadline(time.Unix(1, 0)) // fails on a closed connection, where the write has ended
	_ = w.flush()                      // the handshake has failed for another reason
}
