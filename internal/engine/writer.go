package engine

import (
	"clustermap/internal/connection"
	"clustermap/internal/link"
	"clustermap/internal/queue"
	"clustermap/zmtp"
	"time"
)

// writer writes the messages of the outbox: it takes all queued ones at once and gives
// them to the kernel in as few vectored writes as it can.
type writer struct {
	pipe *Pipe
	peer *Peer
	conn *conn

	codec zmtp.Codec // encodes the outgoing frames; nil for plain frames
	coded [1][]byte

	raw [][]byte // scratch memory of sendRaw

	load queue.Load // taken, not yet known to be written
	bufs [][]byte
}

// run writes until the connection is gone.
func (w *writer) run() {
	s := w.pipe.socket
	roomy := func() {
		s.pattern.Roomy(w.pipe)
		s.In.Tell()
	}
	if w.conn.config.HeartbeatInterval == 0 {
		s.retireLater()
	}
	w.load.Gathers = s.pattern.Gathers
	defer w.beats()()
	for w.pipe.Out.Take(&w.load, w.conn.Gone(), roomy) {
		seen := w.conn.Reads()
		var before connection.Flow
		if w.load.Pinged {
			before = w.conn.Flow()
		}
		if !w.send() {
			return
		}
		w.load.Clear()
		if w.load.Pinged {
			w.load.Pinged = false
			w.conn.Answer(seen, before, w.conn.config.HeartbeatTimeout)
		}
	}
}

// send writes the messages that were taken. When it fails, it ends the connection and
// reports false. After halfClose it leaves the connection open: a PING or PONG that comes
// too late must not end it while the peer still receives earlier messages.
func (w *writer) send() bool {
	w.bufs = w.load.Gather(w.bufs[:0])
	var n int64
	var err error
	if w.pipe.socket.pattern.Raw {
		err = w.sendRaw()
	} else if w.codec == nil {
		n, err = w.conn.Stream.Send(w.bufs)
	} else {
		n, err = w.sendCoded()
	}
	clear(w.bufs)
	if err != nil {
		w.load.Written = n
		if !w.conn.HalfClosed() {
			w.conn.Close(err)
		}
	}
	return err == nil
}

// direct returns how senders write themselves: the bytes that the kernel does not take at
// once are left to the writer.
func (w *writer) direct() (d queue.Direct) {
	s := w.pipe.socket
	t := s.pattern
	if !(t.Lockstep || t.Prompt) || w.codec != nil {
		return d
	}
	if a := link.NewAttempt(&w.conn.Stream); a != nil {
		d.Write = a.Write
		if t.Prompt {
			d.Idle = &s.idle
		}
	}
	return d
}

// beats makes take add a PING at each interval, if heartbeats are enabled and the
// peer understands PING. stop ends that.
func (w *writer) beats() (stop func()) {
	o := w.conn.config
	if o.HeartbeatInterval == 0 || w.peer.info.Major < 3 {
		return func() {}
	}
	w.load.Beat = time.Tick(o.HeartbeatInterval)
	w.load.Ping = zmtp.AppendPing(nil, uint16(o.HeartbeatTTL/PingUnit), nil)
	return func() { w.load.Beat, w.load.Pinged = nil, false }
}
