package majordomo

import (
	"slices"
	"strings"

	"clustermap/internal/list"
)

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

	orphan  list.Element[service] // in Broker.orphans while it has no worker
	retired bool                  // removed from Broker.services

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
func (b *Broker) lookup(c *conn, name []byte) *service {
	s := b.services[string(name)]
	if s == nil && c.lanes.Len() < b.opts.MaxServices-len(b.services) {
		s = b.newService(name)
	}
	return s
}

// enlist returns the service for which a worker registers. If there is no room, it
// abandons the oldest service without workers. It returns nil if all have workers.
func (b *Broker) enlist(name []byte) *service {
	s := b.services[string(name)]
	if s != nil {
		return s
	}
	if len(b.services) >= b.opts.MaxServices {
		old := b.orphans.Front()
		if old == nil {
			return nil
		}
		b.abandon(old)
	}
	return b.newService(name)
}

func (b *Broker) newService(name []byte) *service {
	s := &service{name: string(name)}
	s.orphan.Of = s
	b.orphans.PushBack(&s.orphan)
	b.services[s.name] = s
	return s
}

// abandon removes a service without workers and drops all requests that wait for it.
func (b *Broker) abandon(s *service) {
	for l := s.lanes.Front(); l != nil; l = s.lanes.Front() {
		j := l.jobs.Front()
		b.unwait(j)
		b.stats.Refused++
		b.refuse(j, ErrNoService)
	}
	b.retire(s)
}

// addWorker and removeWorker count the workers of a service.
func (b *Broker) addWorker(s *service) {
	s.workers++
	s.orphan.Remove()
}

func (b *Broker) removeWorker(s *service) {
	s.workers--
	if s.workers == 0 {
		b.orphans.PushBack(&s.orphan)
	}
}

// retire removes a service without workers and requests.
func (b *Broker) retire(s *service) {
	if s.workers == 0 && s.waiting == 0 && !s.retired {
		s.retired = true
		s.orphan.Remove()
		delete(b.services, s.name)
	}
}

// pick returns the worker for the next request, or nil: the one that has been idle
// longest, otherwise one that accepts requests ahead.
//
// Requests that arrived together go to a quick worker in runs. It has its window
// because it executes that many requests within aheadTime, so a run takes a small part
// of that. With many workers, runs account for most of the saved system calls, here and
// at the workers.
func (b *Broker) pick(s *service, j *job) *worker {
	if w := s.run; w != nil && s.left > 0 && s.drain == b.drain && w.free.In(&s.ahead) && !j.returned {
		s.left--
		return w
	}
	w := s.idle.Front()
	if w == nil && !j.returned { // it may end this worker too, so no other request should be sent with it
		w = s.ahead.Front()
	}
	s.run = nil
	if w != nil && w.window >= runPart {
		s.run, s.left, s.drain = w, w.window/runPart-1, b.drain
	}
	return w
}

// runPart is the divisor of the window that gives the length of a run. A request waits
// for those before it in its run for an eighth of aheadTime at most, even if another
// worker is idle.
const runPart = 8

// admit passes a request to a worker, or makes it wait.
func (b *Broker) admit(j *job) {
	s := j.service
	if s.waiting == 0 {
		if w := b.pick(s, j); w != nil {
			b.give(j, w)
			return
		}
	}
	b.wait(j, false)
}

// dispatch passes waiting requests of a service to workers while they accept them,
// taking the clients in turn.
func (b *Broker) dispatch(s *service) {
	for s.waiting > 0 {
		l := s.lanes.Front()
		j := l.jobs.Front()
		w := b.pick(s, j)
		if w == nil {
			return
		}
		if l.jobs.Len() > 1 {
			l.inService.Remove()
			s.lanes.PushBack(&l.inService)
		}
		b.unwait(j)
		b.give(j, w)
	}
}

// give sends a request to a worker.
func (b *Broker) give(j *job, w *worker) {
	j.worker, j.sent = w, b.now
	w.jobs.PushBack(&j.place)
	w.bytes += j.size()
	j.service.given++
	dst := append(b.open(w.conn), w.head...)
	dst = appendAddress(dst, j.client.peer.Identity())
	w.conn.stage = append(dst, j.body()...)
	w.place()
}

// removeJob removes a request from its worker.
func (b *Broker) removeJob(j *job) {
	j.place.Remove()
	j.worker.bytes -= j.size()
	j.worker = nil
	j.service.given--
}

// status returns the status of all services, sorted by name.
func (b *Broker) status() []ServiceStatus {
	all := make([]ServiceStatus, 0, len(b.services))
	for _, s := range b.services {
		all = append(all, ServiceStatus{s.name, s.workers, s.waiting, s.given})
	}
	slices.SortFunc(all, func(a, b ServiceStatus) int { return strings.Compare(a.Name, b.Name) })
	return all
}
