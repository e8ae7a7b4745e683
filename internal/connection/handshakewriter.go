package connection

import "time"

// HandshakeWriter writes the bytes of a handshake. In a handshake both sides may write
// before they read. A connection that Options.Dial or Options.Listen has made may have no
// buffer, like net.Pipe, so that a write lasts until the other side reads. Therefore such
// a write takes place in a goroutine of its own, one at a time, while the handshake
// reads.
type HandshakeWriter struct {
	Conn *Conn
	done chan error // receives the result of the write in progress; nil if there is none
}

// Write writes b, which the caller may reuse afterwards. The error may be that of
// an earlier write.
func (w *HandshakeWriter) Write(b []byte) error {
	if w.Conn.Stream.Buffered() {
		_, err := w.Conn.Stream.Write(b)
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	b, done := append([]byte(nil), b...), make(chan error, 1)
	w.done = done
	go func() {
		_, err := w.Conn.Stream.Write(b)
		done <- err
	}()
	return nil
}

// Flush waits until everything is written. The connection's deadline limits the
// wait.
func (w *HandshakeWriter) Flush() error {
	if w.done == nil {
		return nil
	}
	err := <-w.done
	w.done = nil
	return err
}

// Abandon ends a write that is in progress and waits for its goroutine.
func (w *HandshakeWriter) Abandon() {
	if w.done == nil {
		return
	}
	_ = w.Conn.SetDeadline(time.Unix(1, 0)) // fails on a closed connection, where the write has ended
	_ = w.Flush()                           // the handshake has failed for another reason
}
