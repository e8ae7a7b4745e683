package majordomo

import (
	"strconv"
	"time"
)

// worker is a connection that has registered for a service.
type worker struct {
	conn    *conn
	version Version
	service *service
	head    []byte    // what every REQUEST to it begins with
	jobs    list[job] // requests that it has, in the order in which they were sent
	bytes   int
	limit   int   // the most requests that it takes at a time
	window  int   // how many it is sent now, 1 to limit
	shrunk  int64 // when window was last halved

	heard int64 // when something came from it
	told  int64 // when it was sent something

	free     element[worker] // in service.idle or service.ahead
	inBroker element[worker] // in Broker.workers
}

const (
	// aheadTime is how long a request that is sent ahead may take: a worker that
	// answers later is sent fewer ahead, so that they do not wait behind others
	// while another worker is idle. It includes the way there and back, so with a
	// shorter time a machine with much to do would send ever fewer at a time, and
	// have ever more to do for each.
	aheadTime = 20 * time.Millisecond

	// aheadBytes bounds what is sent ahead to one worker.
	aheadBytes = 1 << 20
)

// register enters a worker. It returns nil if there is no room for it.
func (b *Broker) register(c *conn, p *packet) *worker {
	if b.workers.n >= b.opts.MaxWorkers {
		return nil
	}
	s := b.enlist(p.service)
	if s == nil {
		return nil
	}
	w := &worker{conn: c, version: p.version, service: s, limit: aheadOf(c.peer), window: 1, heard: b.now, told: b.now}
	w.head = appendWorkerHeader(nil, w.version, request, true)
	w.free.of, w.inBroker.of = w, w
	b.workers.pushBack(&w.inBroker)
	b.addWorker(s)
	c.worker = w
	w.place()
	return w
}

// place enters the worker in the list of its service in which it belongs, at the
// end.
func (w *worker) place() {
	w.free.remove()
	switch {
	case w.jobs.n == 0:
		w.service.idle.pushBack(&w.free)
	case w.jobs.n < w.window && w.bytes < aheadBytes && !w.jobs.front().returned:
		w.service.ahead.pushBack(&w.free)
	}
}

// adapt sets how many requests the worker is sent, after its reply to one that was
// sent at the given time.
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

// remove takes a worker out. Its requests are given to others, as often as
// BrokerOptions.MaxDeliveries allows for the first of them, which it may have begun.
func (b *Broker) remove(w *worker) {
	w.conn.worker = nil
	w.free.remove()
	w.inBroker.remove()
	if w.service.run == w {
		w.service.run = nil
	}
	s := w.service
	if j := w.jobs.front(); j != nil {
		j.deliveries++
	}
	b.giveBack(w, 0, w.jobs.n, true)
	b.removeWorker(s)
	b.dispatch(s)
	b.retire(s)
}

// giveBack takes requests from a worker, n of them behind the first skip, and puts
// them in front of those that wait.
func (b *Broker) giveBack(w *worker, skip, n int, lost bool) {
	e := w.jobs.tail
	for range w.jobs.n - skip - n {
		e = e.prev
	}
	for range n { // last to first, since each goes to the front
		j := e.of
		e = e.prev
		b.takeBack(j)
		j.returned = j.returned || lost
		b.repeat(j)
	}
}

// repeat has a request done by another worker, if that makes sense.
func (b *Broker) repeat(j *job) {
	switch {
	case j.client.gone:
		b.stats.Abandoned++
		b.drop(j)
	case j.begun || j.deliveries >= b.opts.MaxDeliveries:
		b.stats.Undelivered++
		b.refuse(j, ErrWorkerLost)
	case j.expiry != 0 && j.expiry <= b.now:
		b.stats.Expired++
		b.refuse(j, ErrExpired)
	default:
		if n := len(j.kept); n > 0 { // the other worker begins anew
			b.bytes -= n
			j.kept = j.kept[:0]
		}
		b.stats.Repeated++
		b.wait(j, true)
	}
}

// returns takes the requests back that a worker has not begun.
func (b *Broker) returns(w *worker, count []byte) bool {
	n, err := strconv.ParseUint(string(count), 10, 16)
	if err != nil || int(n) >= w.jobs.n && n > 0 {
		return false
	}
	w.window = 1
	b.giveBack(w, 1, int(n), false)
	w.place()
	b.dispatch(w.service)
	return true
}
