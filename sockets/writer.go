package sockets

import (
	"clustermap/internal/invariants"
	"clustermap/zmtp"
)

// writer writes what the outbox collects: it takes everything that is queued
// at once and gives it to the kernel in as few vectored writes as it can.
type writer struct {
	pipe *pipe
	peer *Peer
	conn *conn

	codec zmtp.Codec // translates what goes out, nil for plain frames
	coded [1][]byte

	load    // taken, not yet known to be written
	bufs    [][]byte
	written int64 // bytes of load that were written
}

// run writes until the connection is gone.
func (w *writer) run() {
	s := w.pipe.socket
	roomy := func() {
		s.pattern.roomy(w.pipe)
		s.in.watch.tell()
	}
	s.retireLater()
	defer w.beats()()
	for w.pipe.out.take(&w.load, w.conn.gone, roomy) {
		seen := w.conn.life.reads.Load()
		if !w.send() {
			return
		}
		w.peer.messagesOut.Add(uint64(w.queue.messages + w.head.messages))
		w.peer.bytesOut.Add(uint64(w.queue.bytes()))
		w.release()
		if w.pinged {
			w.pinged = false
			w.conn.answer(seen, s.opts.HeartbeatTimeout)
		}
	}
}

// send writes what was taken. When it fails, it ends the connection and reports
// false. After halfClose it leaves the connection open: a PING or PONG that comes
// too late must not end it while the peer still receives what was sent before.
func (w *writer) send() bool {
	w.gather()
	var n int64
	var err error
	if w.codec == nil {
		n, err = w.conn.stream.Send(w.bufs)
	} else {
		n, err = w.sendCoded()
	}
	clear(w.bufs)
	if err != nil {
		w.written = n
		if !w.conn.halfClosed.Load() {
			w.conn.close(err)
		}
	}
	return err == nil
}

// gather lists the bytes to write, in order.
func (w *writer) gather() {
	w.bufs = w.bufs[:0]
	if len(w.head.bytes) > 0 {
		w.bufs = append(w.bufs, w.head.bytes)
	}
	for i := range w.queue.items {
		w.bufs = append(w.bufs, w.queue.items[i].wire)
	}
	if staged := w.queue.staged(); len(staged) > 0 {
		w.bufs = append(w.bufs, staged)
	}
}

// release gives back what was taken.
func (w *writer) release() {
	w.load.clear()
	w.written = 0
}

// putBack returns to the outbox the messages of which nothing was written, for
// the next connection.
func (w *writer) putBack() {
	wire, messages := w.remaining()
	w.release()
	w.pipe.out.putBack(wire, messages)
}

// remaining returns, in memory of their own, the messages of which nothing was
// written. One that was written in part is lost, and never sent twice (RFC 37
// §1.3).
func (w *writer) remaining() (wire []byte, messages int) {
	skip := max(w.written-int64(len(w.head.bytes)), 0)
	w.head.clear()
	w.gather()
	defer clear(w.bufs)
	decoder := zmtp.NewDecoder(zmtp.Limits{MaxMessage: -1, MaxFrames: -1, MaxCommand: -1})
	for _, b := range w.bufs {
		for len(b) > 0 {
			kind, n, err := decoder.Next(b)
			if err != nil || kind == zmtp.NeedMore {
				invariants.Assert(false, "something else than whole messages was queued")
				return wire, messages
			}
			if skip <= 0 {
				wire = append(wire, b[:n]...)
				if kind == zmtp.KindMessage {
					messages++
				}
			}
			skip -= int64(n)
			b = b[n:]
		}
	}
	return wire, messages
}
