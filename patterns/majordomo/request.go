package majordomo

import (
	"clustermap/internal/list"
	"clustermap/zmtp"
)

// backlog holds the requests of a broker: the bound on them all, the lanes in which they
// wait, and when they expire. Broker.mu protects it.
type backlog struct {
	opts      *BrokerOptions
	bytes     int            // of all requests
	deadlines list.List[job] // all requests, in the order in which they came
	lanes     map[laneKey]*lane

	accounts map[any]*account // of the clients that have connections, by hooks.Client

	spareJobs  []*job
	spareBytes int // of their buffers
	spareLanes []*lane
}

// account is what one client has in the broker over all its connections: who has the same
// key, user or address.
type account struct {
	key   any // in backlog.accounts
	conns int
	bytes int // of its requests
}

// join enters a new connection of the client with a key.
func (b *backlog) join(c *conn, key any) {
	a := b.accounts[key]
	if a == nil {
		a = &account{key: key}
		b.accounts[key] = a
	}
	a.conns++
	c.account = a
}

// leave is the end of join. Requests of the connection that workers have still count.
func (b *backlog) leave(c *conn) {
	if c.account.conns--; c.account.conns == 0 {
		delete(b.accounts, c.account.key)
	}
}

// count adds to the bytes of a connection's requests.
func (b *backlog) count(c *conn, bytes int) {
	b.bytes += bytes
	c.bytes += bytes
	c.account.bytes += bytes
}

// job is a request in the broker: it waits in a lane, or a worker has it.
type job struct {
	client  *conn
	version Version // the client's
	service *service
	worker  *worker           // the worker that has it, or nil
	lane    *lane             // the lane in which it waits, or nil
	place   list.Element[job] // in the lane or in the worker's jobs
	inTime  list.Element[job] // in backlog.deadlines
	data    []byte            // the envelope of the reply, and the body
	split   int               // where the body begins in data
	expiry  int64             // when it is dropped if it still waits
	sent    int64             // when it was sent to the worker
	kept    []byte            // frames of partial replies for a client of 0.1, in wire form

	deliveries int    // number of workers that were lost with it
	lostBy     string // the instance of the last one
	lostAt     int64  // when it was counted
	returned   bool   // a worker was lost that had it, so it is not sent ahead any more
	begun      bool   // a part of the reply was sent to the client
}

func (j *job) envelope() []byte       { return j.data[:j.split] }
func (j *job) body() zmtp.WireMessage { return zmtp.WireMessage(j.data[j.split:]) }
func (j *job) size() int              { return len(j.data) + jobCost }

// take removes a request from its worker.
func (j *job) take() {
	j.place.Remove()
	j.worker.bytes -= j.size()
	j.worker = nil
	j.service.given--
}

// lane holds the requests of one client that wait for one service. The lanes of a
// service take turns, so that a client with many requests does not delay the others by
// all of them.
type lane struct {
	client    *conn
	service   *service
	jobs      list.List[job]
	bytes     int
	inService list.Element[lane] // in service.lanes
	inClient  list.Element[lane] // in conn.lanes
}

type laneKey struct {
	client  *conn
	service *service
}

// newJob returns a job for a request of a client that has come now.
func (b *backlog) newJob(c *conn, s *service, p *packet, now int64) *job {
	var j *job
	if n := len(b.spareJobs); n > 0 {
		j = b.spareJobs[n-1]
		b.spareJobs = b.spareJobs[:n-1]
		b.spareBytes -= cap(j.data)
	} else {
		j = &job{}
		j.place.Of, j.inTime.Of = j, j
	}
	j.client, j.version, j.service = c, p.version, s
	j.data = append(append(j.data[:0], p.envelope...), p.body...)
	j.split = len(p.envelope)
	b.count(c, j.size())
	if b.opts.Expiry > 0 {
		j.expiry = now + int64(b.opts.Expiry)
		b.deadlines.PushBack(&j.inTime)
	}
	return j
}

// forgetReply drops the parts of a reply that were kept for a client of 0.1.
func (b *backlog) forgetReply(j *job) {
	b.bytes -= len(j.kept)
	j.kept = nil
}

// drop frees a job that is in no lane and that no worker has.
func (b *backlog) drop(j *job) {
	b.forgetReply(j)
	b.count(j.client, -j.size())
	j.inTime.Remove()
	data := j.data
	if cap(data) > maxSpareData || b.spareBytes+cap(data) > maxSpareBytes {
		data = nil
	}
	*j = job{data: data}
	j.place.Of, j.inTime.Of = j, j
	if len(b.spareJobs) < maxSpareJobs {
		b.spareBytes += cap(data)
		b.spareJobs = append(b.spareJobs, j)
	}
}

// wait adds a job to its client's lane, at the end or at the front.
func (b *backlog) wait(j *job, first bool) {
	l := b.laneOf(j.client, j.service)
	if l == nil {
		l = b.newLane(j.client, j.service)
	}
	j.lane = l
	if first {
		l.jobs.PushFront(&j.place)
	} else {
		l.jobs.PushBack(&j.place)
	}
	l.bytes += j.size()
	l.service.waiting++
	l.service.waitingBytes += j.size()
}

// unwait removes a job from its lane.
func (b *backlog) unwait(j *job) {
	l := j.lane
	j.place.Remove()
	j.lane = nil
	l.bytes -= j.size()
	l.service.waiting--
	l.service.waitingBytes -= j.size()
	if l.jobs.Len() == 0 {
		b.endLane(l)
	}
}

func (b *backlog) laneOf(c *conn, s *service) *lane {
	if l := c.last; l != nil && l.service == s {
		return l
	}
	return b.lanes[laneKey{c, s}]
}

func (b *backlog) newLane(c *conn, s *service) *lane {
	var l *lane
	if n := len(b.spareLanes); n > 0 {
		l = b.spareLanes[n-1]
		b.spareLanes = b.spareLanes[:n-1]
	} else {
		l = &lane{}
		l.inService.Of, l.inClient.Of = l, l
	}
	l.client, l.service = c, s
	s.lanes.PushBack(&l.inService)
	c.lanes.PushBack(&l.inClient)
	b.lanes[laneKey{c, s}] = l
	c.last = l
	return l
}

func (b *backlog) endLane(l *lane) {
	l.inService.Remove()
	l.inClient.Remove()
	delete(b.lanes, laneKey{l.client, l.service})
	if l.client.last == l {
		l.client.last = nil
	}
	*l = lane{}
	l.inService.Of, l.inClient.Of = l, l
	if len(b.spareLanes) < maxSpareLanes {
		b.spareLanes = append(b.spareLanes, l)
	}
}

// hasRoom reports whether one more request of a connection may be executed at once or wait.
// A connection may have as much in the broker, and waiting for a service, as there is room
// left for all (a dynamic threshold), so none can fill it; and all connections of one client
// together all but a part of the broker.
func (b *backlog) hasRoom(c *conn, s *service, size int) bool {
	all := c.account.bytes
	if !fits(c.bytes, size, b.opts.MaxBytes-b.bytes) || all > 0 && all+size > b.opts.MaxBytes-b.opts.MaxBytes/clientPart {
		return false
	}
	if s.waiting == 0 && s.idle.Len()+s.ahead.Len() > 0 {
		return true // it does not wait
	}
	jobs, bytes := 0, 0
	if l := b.laneOf(c, s); l != nil {
		jobs, bytes = l.jobs.Len(), l.bytes
	}
	return jobs < b.opts.MaxWaiting-s.waiting && fits(bytes, size, b.opts.MaxWaitingBytes-s.waitingBytes)
}

// fits reports whether who holds some bytes may have more of the free ones: as many as
// remain for others, and if it holds none all of them.
func fits(held, more, free int) bool { return held+more <= free-more || held == 0 && more <= free }
