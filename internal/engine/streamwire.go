package engine

import (
	"encoding/binary"

	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// Sizes of the headers of a frame.
const (
	rawShort = 2
	rawLong  = 9
)

// rawSource feeds a reader with the bytes of a connection that does not carry
// ZMTP. It reads each time behind room for a header, and makes one frame of the bytes
// that it has read, so that nothing is copied.
type rawSource struct {
	*reader
	most int // maximum number of bytes in a message
}

// Space returns the buffer for the next read.
func (r *rawSource) Space() []byte {
	p := r.room(rawLong + 1)[rawLong:]
	return p[:min(len(p), r.most)]
}

// Received makes a frame of the n bytes and passes it to the reader.
func (r *rawSource) Received(n int) error {
	head := r.chunk.Data()[r.fill : r.fill+rawLong]
	if n > 255 {
		head[0] = zmtp.FlagLong
		binary.BigEndian.PutUint64(head[1:], uint64(n))
		return r.reader.Received(rawLong + n)
	}
	const skip = rawLong - rawShort
	head[skip], head[skip+1] = 0, byte(n)
	r.start, r.fill = r.start+skip, r.fill+skip // nothing is pending, since all frames are complete
	return r.reader.Received(rawShort + n)
}

// sendRaw writes the bodies of the frames that gather has listed. It collects
// small ones, because a vectored write costs more for many small pieces than a
// copy.
func (w *writer) sendRaw() error {
	out := queue.NewStage()
	defer out.Pool()
	defer func() { clear(w.raw[:cap(w.raw)]) }()
	if cap(out.Bytes) < codedPiece {
		out.Bytes = make([]byte, 0, codedPiece) // it must not move while w.raw refers to it
	}
	w.raw = w.raw[:0]
	from := 0
	cut := func() {
		if len(out.Bytes) > from {
			w.raw = append(w.raw, out.Bytes[from:])
			from = len(out.Bytes)
		}
	}
	flush := func() error {
		cut()
		_, err := w.conn.Stream.Send(w.raw)
		w.raw, out.Bytes, from = w.raw[:0], out.Bytes[:0], 0
		return err
	}
	for _, b := range w.bufs {
		for rest := zmtp.WireMessage(b); len(rest) > 0; {
			var body []byte
			body, rest = rest.Next()
			if len(body) >= queue.LendFrom {
				cut()
				w.raw = append(w.raw, body)
				continue
			}
			if len(out.Bytes)+len(body) > cap(out.Bytes) {
				if err := flush(); err != nil {
					return err
				}
			}
			out.Bytes = append(out.Bytes, body...)
		}
	}
	return flush()
}
