package queue

// The high-water marks can change while messages are queued. A lower one drops nothing:
// the queue takes no more until it is below. A higher one lets callers that wait for room
// go on.

// SetLimits changes the high-water mark of each queue, and the total of their bytes.
func (in *Inbox) SetLimits(limits HWM, total int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.limits, in.total.most = limits, total
	for i := range in.ready.lanes.Len() { // a queue whose readers wait has messages
		queues := &(*in.ready.lanes.At(i)).queues
		for j := range queues.Len() {
			(*queues.At(j)).room.WakeAll()
		}
	}
	in.total.release()
	in.leftovers.newcomers.WakeAll()
}

// Report changes the number of messages given to Connect.
func (in *Inbox) Report(q *Inqueue, report int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	q.report = report
}

// SetLimits changes the high-water mark, with Link only the part that is not the
// other socket's, and what MarkFull has said. It reports whether a full outbox may take
// messages again.
func (o *Outbox) SetLimits(limits HWM) (roomy bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.conflate {
		return false
	}
	o.shares.own = limits
	return o.relimit()
}

// SetFarLimits is SetLimits for the other socket's part. It does nothing before Link.
func (o *Outbox) SetFarLimits(limits HWM) (roomy bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.conflate || !o.linked || o.shares.far == limits {
		return false
	}
	o.shares.far = limits
	return o.relimit()
}

// shares are the high-water marks that an outbox has from this socket, and from the one at
// the other end if that is in this process; else far is zero.
type shares struct{ own, far HWM }

// relimit makes a change of the shares take effect, and reports whether the outbox was
// full. mu must be held.
func (o *Outbox) relimit() (roomy bool) {
	o.limits = o.shares.own
	if o.linked {
		o.limits = o.shares.own.Plus(o.shares.far)
	}
	roomy = o.full
	o.full, o.queue.mark = false, 0 // the next offer looks again
	o.kick()
	return roomy
}

// Limits returns the high-water mark.
func (o *Outbox) Limits() HWM {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.limits
}

// Kick makes the calls of WaitRoom in progress return.
func (o *Outbox) Kick() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.kick()
}

// kick is Kick with mu held.
func (o *Outbox) kick() {
	o.kicks++
	o.room.WakeAll()
}

// none reports whether there is no limit.
func (l *Limit) none() bool { return l == nil || l.Patience == 0 }
