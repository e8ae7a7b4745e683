package majordomo

import (
	"slices"
	"strings"

	"clustermap/internal/list"
)

// directory has the services of a broker by their names. Broker.mu protects it.
type directory struct {
	max     int
	named   map[string]*service
	orphans list.List[service] // those without a worker, oldest first
}

// service is a name for which workers have registered or requests wait. It is removed
// when there are neither.
type service struct {
	name    string
	workers int // registered
	holder  any // the last that registered; see conn.holder
	given   int // requests that workers have

	waiting      int // requests in lanes
	waitingBytes int
	lanes        list.List[lane] // lanes with requests, in the order of their turns

	orphan  list.Element[service] // in directory.orphans while it has no worker
	retired bool                  // removed from the directory

	idle  list.List[worker] // workers without a request, longest idle first
	ahead list.List[worker] // workers that may be sent one more ahead

	// A run of requests for one worker: see pick.
	run   *worker
	left  int    // the number of requests that remain in the run
	drain uint64 // the drain in which the run began, and with which it ends
}

// ServiceStatus is the status of a service.
type ServiceStatus struct {
	Name    string
	Workers int // registered
	Waiting int // requests that wait for a worker
	Given   int // requests that workers have
}

// lookup returns the service of a client's request. It creates it if there is room, and
// otherwise returns nil. As with hasRoom, a client may have requests waiting for as
// many services as there is room for more.
func (d *directory) lookup(c *conn, name []byte) *service {
	s := d.named[string(name)]
	if s == nil && c.lanes.Len() < d.max-len(d.named) {
		s = d.create(name)
	}
	return s
}

// enlist returns the service for which a worker registers. If there is no room, it
// abandons the oldest service without workers. It returns nil if all have workers.
func (b *Broker) enlist(name []byte) *service {
	s := b.services.named[string(name)]
	if s != nil {
		return s
	}
	if len(b.services.named) >= b.services.max {
		old := b.services.orphans.Front()
		if old == nil {
			return nil
		}
		b.abandon(old)
	}
	return b.services.create(name)
}

func (d *directory) create(name []byte) *service {
	s := &service{name: string(name)}
	s.orphan.Of = s
	d.orphans.PushBack(&s.orphan)
	d.named[s.name] = s
	return s
}

// abandon removes a service without workers and drops all requests that wait for it.
func (b *Broker) abandon(s *service) {
	for l := s.lanes.Front(); l != nil; l = s.lanes.Front() {
		j := l.jobs.Front()
		b.backlog.unwait(j)
		b.stats.Refused++
		b.refuse(j, ErrNoService)
	}
	b.services.retire(s)
}

// addWorker and removeWorker count the workers of a service.
func (d *directory) addWorker(s *service) {
	s.workers++
	s.orphan.Remove()
}

func (d *directory) removeWorker(s *service) {
	s.workers--
	if s.workers == 0 {
		d.orphans.PushBack(&s.orphan)
	}
}

// retire removes a service without workers and requests.
func (d *directory) retire(s *service) {
	if s.workers == 0 && s.waiting == 0 && !s.retired {
		s.retired = true
		s.orphan.Remove()
		delete(d.named, s.name)
	}
}

// pick returns the worker for the next request, or nil: the one that has been idle
// longest, otherwise one that accepts requests ahead.
//
// Requests that arrived together go to a quick worker in runs. It has its window
// because it executes that many requests within aheadTime, so a run takes a small part
// of that. With many workers, runs account for most of the saved system calls, here and
// at the workers.
func (s *service) pick(j *job, drain uint64) *worker {
	if w := s.run; w != nil && s.left > 0 && s.drain == drain && w.free.In(&s.ahead) && !j.returned {
		s.left--
		return w
	}
	w := s.idle.Front()
	if w == nil && !j.returned { // it may end this worker too, so no other request should be sent with it
		w = s.ahead.Front()
	}
	s.run = nil
	if w != nil && w.window >= runPart {
		s.run, s.left, s.drain = w, w.window/runPart-1, drain
	}
	return w
}

// admit passes a request to a worker, or makes it wait.
func (b *Broker) admit(j *job) {
	s := j.service
	if s.waiting == 0 {
		if w := s.pick(j, b.drain); w != nil {
			b.give(j, w)
			return
		}
	}
	b.backlog.wait(j, false)
}

// dispatch passes waiting requests of a service to workers while they accept them,
// taking the clients in turn.
func (b *Broker) dispatch(s *service) {
	for s.waiting > 0 {
		l := s.lanes.Front()
		j := l.jobs.Front()
		w := s.pick(j, b.drain)
		if w == nil {
			return
		}
		if l.jobs.Len() > 1 {
			l.inService.Remove()
			s.lanes.PushBack(&l.inService)
		}
		b.backlog.unwait(j)
		b.give(j, w)
	}
}

// give sends a request to a worker.
func (b *Broker) give(j *job, w *worker) {
	j.worker, j.sent = w, b.now
	w.jobs.PushBack(&j.place)
	w.bytes += j.size()
	j.service.given++
	dst := append(b.out.open(w.conn), w.head...)
	dst = appendAddress(dst, j.client.peer.Identity())
	w.conn.stage.Bytes = append(dst, j.body()...)
	w.place()
}

// status returns the status of all services, sorted by name.
func (d *directory) status() []ServiceStatus {
	all := make([]ServiceStatus, 0, len(d.named))
	for _, s := range d.named {
		all = append(all, ServiceStatus{s.name, s.workers, s.waiting, s.given})
	}
	slices.SortFunc(all, func(a, b ServiceStatus) int { return strings.Compare(a.Name, b.Name) })
	return all
}
