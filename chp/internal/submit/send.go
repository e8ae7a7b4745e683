package submit

import "clustermap/internal/buf"

// run sends the staged updates, until close.
func (w *Writer) run() {
	defer close(w.ended)
	for {
		s := w.next()
		if s == nil {
			return
		}
		err := s.Uplink.Ready()
		if err == nil {
			err = w.send(s, true)
		}
		if err == nil {
			continue
		}
		w.mu.Lock()
		closed := w.closed
		w.mu.Unlock()
		if closed {
			return
		}
		s.Session.Fail(err) // it is failing already, unless the collector does not subscribe
		<-s.Session.Over()
	}
}

// unsent reports whether there are staged updates to send. mu must be held.
func (w *Writer) unsent() bool {
	w.advance()
	return w.turn != nil && w.turn.sent.bytes < len(w.turn.bytes)
}

// asks reports whether to ask the server what has become of the updates up to last: because
// something waits for that, or because nothing follows for now, and more than a stage of them
// is kept or an update waits for their room. mu must be held.
func (w *Writer) asks(last uint64) bool {
	if w.echoes != nil || w.server == nil {
		return false // it does not acknowledge
	}
	heavy := w.bytes > w.size || w.room != nil && w.stage != nil
	return w.account.Asks(last) || heavy && last == w.stage.last() && w.account.Unasked(last)
}

// next waits until there are updates to send and a session to send them with. It returns
// nil once the writer is closed and one of the two is missing.
func (w *Writer) next() *Server {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		if s := w.server; s != nil && s.Uplink != nil && (w.unsent() || w.asks(w.account.Sent())) {
			return s
		}
		if w.closed {
			return nil
		}
		w.asleep = true
		w.mu.Unlock()
		<-w.ready
		w.mu.Lock()
	}
}

// push has a new update sent: by run, or by the caller itself if the update comes alone,
// because run takes longer to wake than the update to send: without it, the median time from
// Set to another client is 1.25 times as long at 1,000 updates a second. While updates
// come one after the other, run sends many of them at a time. An update whose caller waits, with
// no other on its way, is alone too: the next one comes after its reply. mu must be held, with
// run asleep, and is released.
func (w *Writer) push(waits bool) {
	defer w.mu.Unlock()
	s := w.server
	if !(waits && w.account.Waits() == 1) && !w.alone.Over() || w.closed || s == nil || !s.Ours || s.Uplink == nil || !s.Uplink.Known() || len(w.turn.bytes)-w.turn.sent.bytes > aloneBytes {
		w.wakeRun()
		return
	}
	w.asleep = false
	w.mu.Unlock()
	err := s.Uplink.Ready()
	if err == nil {
		err = w.send(s, false)
	}
	w.mu.Lock()
	w.asleep = true
	if err != nil || w.closed || w.unsent() || w.asks(w.account.Sent()) {
		w.wakeRun() // run sends the updates staged since, and handles the error
	}
}

// send sends the next part of a stage to a server. After an error nothing was sent. Only one
// goroutine at a time calls it.
func (w *Writer) send(s *Server, wait bool) error {
	w.mu.Lock()
	w.advance()
	part := w.turn
	if w.server != s {
		w.mu.Unlock()
		return nil // the session has ended
	}
	var bytes []byte
	var chunk *buf.Chunk
	messages, last := 0, w.account.Sent()
	if part != nil { // otherwise the stages are freed
		w.cut(part)
		w.number(part, s.Ours)
		bytes, chunk = part.bytes[part.sent.bytes:], part.chunk
		if messages = part.messages - part.sent.messages; messages > 0 {
			last = part.last()
		}
	}
	ask := w.asks(last)
	if messages == 0 && !ask {
		w.reclaim()
		w.signalRoom()
		w.mu.Unlock()
		return nil
	}
	w.sending = true
	w.mu.Unlock()

	err := s.Uplink.Send(wait, bytes, messages, chunk, ask)

	w.mu.Lock()
	defer w.mu.Unlock()
	w.sending = false
	if w.idle != nil {
		close(w.idle)
		w.idle = nil
	}
	if err != nil {
		return err
	}
	if messages > 0 {
		part.sent.bytes += len(bytes)
		part.sent.messages += messages
		w.account.Send(last)
	}
	if ask {
		w.account.Ask(last)
	}
	w.reclaim()
	w.signalRoom()
	return nil
}
