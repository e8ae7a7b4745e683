package engine

import (
	"clustermap/internal/bounds"
	"clustermap/internal/buf"
	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// A connection with a [zmtp.Codec] does not carry plain ZMTP 3 frames but boxes of
// CURVE, or the framing of an older peer. Its reader keeps the received bytes in a
// separate buffer, and the codec puts frames into the chunk from which every
// reader decodes. Its writer encodes frames, piece by piece, into a pooled buffer.
// Everything else uses plain frames: queues, batches, and messages that are kept
// for the next connection.

// codedSource feeds a reader with the frames that a codec decodes from a
// connection's bytes.
type codedSource struct {
	reader *reader
	codec  zmtp.Codec
	max    int // largest message, in wire form

	window     // of bytes that the codec has not used yet
	need   int // size of the unit at their start, as far as known
}

// Space returns the free end of the chunk. As in reader.Space, the memory for a
// large unit depends on how much of it has arrived.
func (c *codedSource) Space() []byte {
	if c.chunk == nil {
		c.resume(max(c.reader.ordinary(), len(c.tail)+minRead))
	}
	if c.start == c.fill {
		c.start, c.fill = 0, 0
	}
	data := c.chunk.Data()
	need := max(c.need, c.pending()+1)
	if c.start+need > len(data) || len(data)-c.fill < minRead {
		ordinary := c.reader.ordinary()
		size := ordinary
		if need+minRead > size {
			size = min(need+readAhead, max(size, c.doubled(1)))
		}
		switch {
		case size > len(data):
			if size > ordinary {
				c.reader.reserve(bounds.PartWire, size)
			}
			c.move(size)
		case c.start > 0:
			c.use(c.chunk, c.unused())
		}
		data = c.chunk.Data()
	}
	return data[c.fill:min(len(data), max(c.start+need+readAhead, c.fill+buf.Large))]
}

// Received decodes the complete frames, portion by portion, and passes each portion to
// the reader.
func (c *codedSource) Received(n int) error {
	c.fill += n
	begin := c.start
	defer func() {
		switch h, left := c.reader.holding, c.pending(); {
		case h == nil || h.Part(bounds.PartWire) == 0:
		case left <= keepTail, c.start > begin && left <= buf.Large:
			c.reader.reserve(bounds.PartWire, 0)
		default:
			c.reader.pipe.socket.incomplete.KeptUp(h, n, false, c.reader.delivered)
		}
	}()
	for first := true; ; first = false {
		pending := c.pending()
		least := minRead
		if c.need <= pending {
			least = max(least, c.need) // a complete unit
		}
		room := c.reader.room(least)
		// Frames are rarely larger than their encoded form, so they fit.
		wire := c.chunk.Data()[c.start : c.start+min(pending, len(room))]
		frames, used, need, err := c.codec.Decode(room[:0:len(room)], wire, len(room))
		c.start += used
		c.need = need
		// The frames before a fault are valid. The first call notifies the
		// reader in any case that bytes have arrived.
		if first || len(frames) > 0 {
			if refused := c.hand(room, frames); refused != nil {
				return refused
			}
		}
		if err != nil {
			return err
		}
		left := c.pending()
		switch cut := len(wire) < pending || len(frames) >= len(room); {
		case left == 0:
			return nil
		case cut && (used > 0 || need > len(wire) && need <= left):
			// There may be more complete units.
		case need > codedSmall && need-codedExtra > c.max-c.reader.pending():
			return &zmtp.ProtocolError{Op: "decode", Reason: "message above MaxMessage", Err: zmtp.ErrTooLarge}
		default:
			c.reader.ttl = 0 // any bytes after a PING show that the peer is alive
			return nil
		}
	}
}

// hand passes frames to the reader. They are in room unless they did not fit.
func (c *codedSource) hand(room, frames []byte) error {
	if len(frames) <= len(room) {
		return c.reader.Received(len(frames))
	}
	for len(frames) > 0 {
		n := copy(c.reader.Space(), frames)
		frames = frames[n:]
		if err := c.reader.Received(n); err != nil {
			return err
		}
	}
	return nil
}

// Idle releases the chunk while there is nothing to read, like reader.Idle.
func (c *codedSource) Idle() {
	c.reader.Idle()
	c.reader.keep(bounds.PartWire, &c.window)
}

// sendCoded writes the frames that gather has listed, in the codec's form. Like
// send it returns how much was written, in bytes of frames: a frame of which
// one byte was written counts as a whole.
func (w *writer) sendCoded() (written int64, err error) {
	out := queue.NewStage()
	defer out.Pool()
	var encoded int64 // bytes of frames that are in out
	flush := func() error {
		w.coded[0] = out.Bytes
		n, err := w.conn.Stream.Send(w.coded[:])
		w.coded[0] = nil
		if err != nil {
			written += w.begun(written, n)
			return err
		}
		written += encoded
		encoded, out.Bytes = 0, out.Bytes[:0]
		return nil
	}
	for _, b := range w.bufs {
		for len(b) > 0 {
			n := leadingFrames(b, codedPiece)
			bytes, failed := w.codec.Encode(out.Bytes, b[:n])
			if failed != nil {
				if err := flush(); err != nil {
					return written, err
				}
				return written, failed
			}
			out.Bytes = bytes
			encoded += int64(n)
			b = b[n:]
			if len(out.Bytes) < codedPiece {
				continue
			}
			if err := flush(); err != nil {
				return written, err
			}
		}
	}
	if len(out.Bytes) == 0 {
		return written, nil
	}
	return written, flush()
}

// begun returns the size of the frames, from an offset in the list of gather, that begin
// within the first n bytes of their encoded form. It encodes them again to find out. This
// changes the state of the codec, which is not used any more.
func (w *writer) begun(from, n int64) (size int64) {
	var out []byte
	for _, b := range w.bufs {
		skip := min(from, int64(len(b)))
		from -= skip
		for b = b[skip:]; len(b) > 0; {
			if n <= 0 {
				return size
			}
			frame := leadingFrames(b, 1)
			var err error
			if out, err = w.codec.Encode(out[:0], b[:frame]); err != nil {
				return size + int64(frame)
			}
			n -= int64(len(out))
			size += int64(frame)
			b = b[frame:]
		}
	}
	return size
}

// leadingFrames returns the size of the first frames of b that together have at
// least limit bytes, or the size of all of them.
func leadingFrames(b []byte, limit int) int {
	if len(b) <= limit {
		return len(b)
	}
	rest := zmtp.WireMessage(b)
	for len(b)-len(rest) < limit {
		_, rest = rest.Next()
	}
	return len(b) - len(rest)
}
