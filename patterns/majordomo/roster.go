package majordomo

import (
	"strconv"

	"clustermap/internal/list"
)

// worker is a connection that has registered for a service.
type worker struct {
	conn    *conn
	version Version
	service *service
	head    []byte         // the start of every REQUEST to it
	jobs    list.List[job] // the requests that it has, in the order in which they were sent
	bytes   int
	limit   int   // the most requests that it accepts at a time
	window  int   // the number of requests that it is sent now, 1 to limit
	shrunk  int64 // when window was last halved

	heard    int64 // when it was last heard
	lastSent int64 // when it was last sent a message

	free     list.Element[worker] // in service.idle or service.ahead
	inBroker list.Element[worker] // in Broker.workers
}

// register adds a worker. It returns nil if there is no room for it.
func (b *Broker) register(c *conn, p *packet) *worker {
	if b.workers.Len() >= b.opts.MaxWorkers {
		return nil
	}
	s := b.enlist(p.service)
	if s == nil {
		return nil
	}
	w := &worker{conn: c, version: p.version, service: s, limit: aheadOf(c.peer), window: 1, heard: b.now, lastSent: b.now}
	w.head = appendWorkerHeader(nil, w.version, request, true)
	w.free.Of, w.inBroker.Of = w, w
	b.workers.PushBack(&w.inBroker)
	b.services.addWorker(s)
	s.holder = c.holder()
	c.worker = w
	w.place()
	return w
}

// place adds the worker to the end of the list of its service to which it belongs.
func (w *worker) place() {
	w.free.Remove()
	switch {
	case w.jobs.Len() == 0:
		w.service.idle.PushBack(&w.free)
	case w.jobs.Len() < w.window && w.bytes < aheadBytes && !w.jobs.Front().returned:
		w.service.ahead.PushBack(&w.free)
	}
}

// adapt adjusts the window after a reply to a request that was sent at the given time.
func (w *worker) adapt(now, sent int64) {
	if w.limit == 1 {
		return
	}
	if now-sent <= int64(aheadTime) {
		w.window = min(w.window+1, w.limit)
	} else if w.shrunk != now { // once for all replies that came together
		w.window, w.shrunk = max(w.window/2, 1), now
	}
}

// remove removes a worker. Its requests go to other workers; the first one, which it
// may have begun, as often as BrokerOptions.MaxDeliveries allows.
func (b *Broker) remove(w *worker) {
	w.conn.worker = nil
	w.free.Remove()
	w.inBroker.Remove()
	if w.service.run == w {
		w.service.run = nil
	}
	s := w.service
	if j := w.jobs.Front(); j != nil {
		b.charge(j, w)
	}
	b.giveBack(w, 0, w.jobs.Len(), true)
	b.services.removeWorker(s)
	b.dispatch(s)
	b.services.retire(s)
}

// charge counts the loss of a worker with a request. The connections of a process that has
// ended are lost one after the other, and the request may have gone from one to the next:
// they count once. A worker that a request makes lose its connection again and again counts
// each time after a while.
func (b *Broker) charge(j *job, w *worker) {
	id, _ := w.conn.peer.Property(propertyInstance)
	if id != "" && id == j.lostBy && b.now-j.lostAt < int64(b.opts.Heartbeat) {
		return
	}
	j.deliveries, j.lostBy, j.lostAt = j.deliveries+1, id, b.now
}

// giveBack removes n requests after the first skip ones from a worker, and puts them
// before those that wait.
func (b *Broker) giveBack(w *worker, skip, n int, lost bool) {
	behind := w.jobs.Len() - skip - n
	for j := range w.jobs.Backward() { // last to first, since each goes to the front
		if behind--; behind >= 0 {
			continue
		}
		if n--; n < 0 {
			break
		}
		j.take()
		j.returned = j.returned || lost
		b.repeat(j)
	}
}

// repeat makes another worker execute a request, unless that is pointless or not
// allowed.
func (b *Broker) repeat(j *job) {
	switch {
	case j.client.gone:
		b.stats.Abandoned++
		b.backlog.drop(j)
	case j.begun || j.deliveries >= b.opts.MaxDeliveries:
		b.stats.Undelivered++
		b.refuse(j, ErrWorkerLost)
	case j.expiry != 0 && j.expiry <= b.now:
		b.stats.Expired++
		b.refuse(j, ErrExpired)
	default:
		b.backlog.forgetReply(j) // the next worker starts the reply again
		b.stats.Repeated++
		b.backlog.wait(j, true)
	}
}

// handleGiveBack handles a worker's command that gives back requests.
func (b *Broker) handleGiveBack(w *worker, count []byte) bool {
	n, err := strconv.ParseUint(string(count), 10, 16)
	if err != nil || int(n) >= w.jobs.Len() && n > 0 {
		return false
	}
	w.window = 1
	b.giveBack(w, 1, int(n), false)
	w.place()
	b.dispatch(w.service)
	return true
}
