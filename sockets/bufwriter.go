package sockets

import (
	"context"

	"clustermap/internal/buf"
	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// WireSender is implemented by the sockets for which there is a [Writer]: [Push],
// [Pub], [XPub], [Dealer] and [Pair].
type WireSender interface {
	Socket
	sendWire(ctx context.Context, wire []byte, messages int, owner queue.Owner) error
}

// Writer sends many small messages at the cost of a few: it encodes them into a
// buffer of its own, and passes the buffer to the socket as a whole. So a
// message costs neither a lock nor an allocation. It is to a socket what
// bufio.Writer is to a file:
//
//	w := sockets.NewWriter(push)
//	for _, r := range records {
//		if err := w.Write(ctx, r.Key, r.Value); err != nil {
//			return err
//		}
//	}
//	return w.Flush(ctx)
//
// A Writer passes its messages on when the next one does not fit into the
// buffer, when it has as many as Options.SendHWM, and when Flush is called. It
// has no timer, so call Flush when there is nothing to write for the moment, and
// before the socket is closed: closing it does not flush a Writer.
//
// A PUSH or DEALER sends all messages that are passed on at a time to the next peer in
// turn; use a smaller buffer, or Send, if work must be spread more evenly. A peer's queue may exceed its high-water mark by one buffer,
// because it is checked once. With a PUB, Options.WaitSubscriber does not apply.
//
// A Writer must not be used by several goroutines at the same time. The socket
// may be: several Writers, and calls of Send, do not disturb one another. Between
// them the order of messages is that in which they are passed on.
type Writer struct {
	to   WireSender
	size int
	err  error

	// The messages that have not been passed on. chunk is nil if there are none
	// and the last one is still with the socket.
	chunk    *buf.Chunk
	used     int
	messages int

	// Limits of the socket, read for each buffer.
	most    int   // messages in a buffer
	largest int64 // bytes of a message
}

// NewWriter returns a Writer for a socket, with a buffer of DefaultWriterSize.
func NewWriter(s WireSender) *Writer { return NewWriterSize(s, DefaultWriterSize) }

// NewWriterSize is like NewWriter with a buffer of the given size in bytes. Each
// message takes two bytes for each of its frames in addition, and nine for each
// frame of more than 255 bytes. A size below 512 becomes 512.
func NewWriterSize(s WireSender, size int) *Writer {
	w := &Writer{to: s, size: max(size, 512)}
	w.begin()
	return w
}

// begin reads the limits for the next buffer.
func (w *Writer) begin() {
	o := w.to.engine().Config()
	w.used, w.messages = 0, 0
	w.most, w.largest = o.Send.Messages, o.MaxMessageSize
}

// Write adds a message of one or more frames to the buffer. It copies the
// frames. It waits, as the Send of the socket does, only if it has to pass the
// buffer on. A message that is larger than the buffer is passed on at once,
// after those before it.
//
// If Write returns an error, its message was not added and will not be sent. If
// the buffer could not be passed on, for example because the context is done, the
// error stays: further calls of Write and Flush return it, until Resume or Reset
// is called. The errors ErrNoFrames and ErrTooLarge concern the message alone
// and do not stay.
func (w *Writer) Write(ctx context.Context, frames ...[]byte) error {
	if w.err != nil {
		return w.err
	}
	if len(frames) == 0 {
		return ErrNoFrames
	}
	var size int64
	for _, f := range frames {
		size += int64(zmtp.FrameSize(len(f)))
	}
	if size > w.largest {
		return ErrTooLarge
	}
	if size > int64(w.size-w.used) || w.messages >= w.most {
		if err := w.Flush(ctx); err != nil {
			return err
		}
		if size > int64(w.size) {
			return w.writeLarge(ctx, frames, int(size))
		}
	}
	if w.chunk == nil {
		w.chunk = buf.Get(w.size)
	}
	zmtp.AppendMessage(w.chunk.Data()[:w.used], frames...)
	w.used += int(size)
	w.messages++
	return nil
}

// writeLarge passes on a message that is larger than the buffer, which is empty.
func (w *Writer) writeLarge(ctx context.Context, frames [][]byte, size int) error {
	c := buf.Get(size)
	defer c.Release()
	w.err = w.to.sendWire(ctx, zmtp.AppendMessage(c.Data()[:0], frames...), 1, c)
	return w.err
}

// Flush passes all buffered messages to the socket. It waits like the Send of
// the socket, until the context is done or until Options.SendTimeout has passed
// (ErrTimeout). If it returns an error, none of the buffered messages was sent,
// and the error stays as with Write. All messages that are no longer buffered
// have been passed to the socket, in order.
//
// Flush does not wait until the messages have been written to the network.
func (w *Writer) Flush(ctx context.Context) error {
	if w.err != nil || w.messages == 0 {
		return w.err
	}
	chunk := w.chunk
	if w.used >= queue.LendFrom && w.used <= len(chunk.Data())/2 {
		// The socket would keep all of the buffer for the few messages in it, and count
		// only these.
		chunk = buf.Get(w.used)
		defer chunk.Release()
		copy(chunk.Data(), w.chunk.Data()[:w.used])
	}
	if w.err = w.to.sendWire(ctx, chunk.Data()[:w.used], w.messages, chunk); w.err != nil {
		return w.err
	}
	if !w.chunk.Unique() {
		w.chunk.Release()
		w.chunk = nil
	}
	w.begin()
	return nil
}

// Buffered returns the number of messages that have not been passed to the
// socket, and their size in bytes.
func (w *Writer) Buffered() (messages, bytes int) { return w.messages, w.used }

// Resume removes the error that has stopped the Writer. The messages that were
// buffered then are still buffered, and the next Flush tries again to pass them
// on.
func (w *Writer) Resume() { w.err = nil }

// Reset drops the buffered messages, and the error if there is one.
func (w *Writer) Reset() {
	w.err = nil
	w.begin()
}
