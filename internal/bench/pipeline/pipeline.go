// Package pipeline runs the same work through different systems that replicate a map:
// publishers send the updates of a workload, a server passes them on, and replicas check
// every one of them. All are processes of their own, which start, warm up, send and report
// in the same way whatever the system is.
package pipeline

import (
	"context"
	"time"

	"clustermap/internal/bench/link"
	"clustermap/internal/bench/worker"
	"clustermap/internal/bench/workload"
	"clustermap/internal/pace"
)

// Pipeline is a system. Its functions run in processes of their own, and what they return
// ends with the context of the peer.
type Pipeline struct {
	Name string

	// Serve runs a server until the peer's context ends. It calls ready with the
	// endpoints for clients when these may connect.
	Serve func(p *link.Peer, ready func(servers ...string)) error
	// Publish returns a publisher that is connected.
	Publish func(p *link.Peer) (Publisher, error)
	// Follow returns a replica that misses nothing from now on.
	Follow func(p *link.Peer, r *Receiver) (Replica, error)
}

// Publisher sends updates. One goroutine uses it.
type Publisher interface {
	// Set sends an update, or buffers it. The updates of a lane keep their order. The
	// value is lent for the call.
	Set(lane int, key string, value []byte) error
	// Push sends what is buffered.
	Push() error
	// Settle waits until the server has taken every update, if it answers at all.
	Settle(ctx context.Context) error
}

// cleaner is a publisher that can delete its keys.
type cleaner interface {
	Clean(ctx context.Context, keys []string) error
}

// Replica holds the map.
type Replica interface {
	// Run gives every update to the receiver, in the order in which it applies them and
	// from one goroutine at a time, until See has returned false. It returns soon after
	// ctx ends.
	Run(ctx context.Context) error
	// Content returns the fingerprint of the map, after Run has returned.
	Content() workload.Content
}

// The roles of the processes. A peer's role is the name of its pipeline and one of these.
const (
	roleServer    = "server"
	rolePublisher = "publisher"
	roleReplica   = "replica"
)

// Workers returns the roles of the processes of pipelines.
func Workers(pipelines ...*Pipeline) map[string]worker.Role {
	roles := map[string]worker.Role{}
	add := func(name string, role link.Role) { roles[name] = role.Worker() }
	for _, line := range pipelines {
		add(line.Name+" "+roleServer, func(p *link.Peer) error {
			return line.Serve(p, func(servers ...string) { p.Send(link.Event{Kind: link.Ready, Servers: servers}) })
		})
		add(line.Name+" "+rolePublisher, line.publish)
		add(line.Name+" "+roleReplica, line.follow)
	}
	return roles
}

// sender is the inside of a publisher's process.
type sender struct {
	peer    *link.Peer
	to      Publisher
	sources []*workload.Source // by lane
}

func (line *Pipeline) publish(p *link.Peer) error {
	ctx := p.Context()
	s := &sender{peer: p}
	warmup, measured := 0, 0
	for i := range p.Lanes {
		s.sources = append(s.sources, workload.NewSource(p.Spec, p.Publisher+i))
		warmup += p.Spec.Warmed(p.Publisher + i)
		measured += p.Spec.Measured(p.Publisher + i)
	}
	var err error
	if s.to, err = line.Publish(p); err != nil {
		return err
	}
	p.Send(link.Event{Kind: link.Ready})
	if err := p.Await(link.Warm); err != nil {
		return err
	}
	if err := s.send(ctx, warmup, 0); err != nil {
		return err
	}
	p.Send(link.Event{Kind: link.Warmed})
	if err := p.Await(link.Go); err != nil {
		return err
	}
	sent := link.Event{Kind: link.Sent, First: workload.Now()}
	if err := s.send(ctx, measured, p.Rate); err != nil {
		return err
	}
	sent.Took = time.Duration(workload.Now() - sent.First)
	p.Send(sent)

	if err := p.Await(link.Clean); err != nil {
		return nil // not needed: the server belongs to this run and ends
	}
	var keys []string
	for _, source := range s.sources {
		keys = append(keys, source.Keys()...)
	}
	if err := s.to.(cleaner).Clean(ctx, keys); err != nil {
		return err
	}
	p.Send(link.Event{Kind: link.Cleaned})
	<-ctx.Done()
	return nil
}

// send sends the next n updates, at the given rate unless it is 0, and waits until the
// server has taken them.
func (s *sender) send(ctx context.Context, n int, rate float64) error {
	err := error(nil)
	if rate > 0 {
		err = s.pace(ctx, n, rate)
	} else {
		err = s.next(0, n, false)
	}
	if err == nil {
		err = s.to.Push()
	}
	if err == nil {
		err = s.to.Settle(ctx)
	}
	return err
}

// next sends updates number from to end, the lanes in turn. If stamp is true, each carries
// the time of its own sending.
func (s *sender) next(from, end int, stamp bool) error {
	lane := from % len(s.sources)
	for i := from; i < end; i++ {
		if stamp {
			s.sources[lane].Stamp()
		}
		key, value := s.sources[lane].Next()
		if err := s.to.Set(lane, key, value); err != nil {
			return err
		}
		if i%workload.StampInterval == 0 {
			s.peer.Count.Add(1) // shows that this process is alive; not a count
		}
		if lane++; lane == len(s.sources) {
			lane = 0
		}
	}
	return nil
}

// pace sends the updates that are due and then sleeps. Each update carries the time at
// which it was sent, so that how late the publisher itself was does not count.
func (s *sender) pace(ctx context.Context, n int, rate float64) error {
	start := time.Now()
	for sent := 0; sent < n; {
		due := 1
		if sent > 0 {
			due = min(n, 1+int(time.Since(start).Seconds()*rate))
		}
		if err := s.next(sent, due, true); err != nil {
			return err
		}
		if err := s.to.Push(); err != nil {
			return err
		}
		if sent == 0 {
			start = time.Now() // after the first stamp, so that no pause makes the run faster than its rate
		}
		sent = due
		s.peer.Count.Add(1)
		if err := pace.Sleep(ctx, start.Add(time.Duration(float64(sent)/rate*float64(time.Second)))); err != nil {
			return err
		}
	}
	return nil
}

func (line *Pipeline) follow(p *link.Peer) error {
	r := newReceiver(p)
	replica, err := line.Follow(p, r)
	if err != nil {
		return err
	}
	if r.checker.Warm() {
		r.warm() // there is no warm-up
	}
	p.Send(link.Event{Kind: link.Ready})
	// The parent has seen no progress and asks for a report.
	ctx, finish := context.WithCancel(p.Context())
	defer finish()
	go func() {
		if p.Await(link.Finish) == nil {
			finish()
		}
	}()
	if err := replica.Run(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	report := r.checker.Report(replica.Content())
	p.Send(link.Event{Kind: link.Done, Report: &report})
	<-p.Context().Done()
	return nil
}

// Receiver checks what a replica receives.
type Receiver struct {
	peer    *link.Peer
	checker *workload.Checker
	every   int // events that share one reading of the clock
	arrived int64
	since   int // events since that reading
	warmed  bool
}

// stampInterval is the number of events that share one reading of the clock. Checking
// that many takes a microsecond or two.
const stampInterval = 32

func newReceiver(p *link.Peer) *Receiver {
	r := &Receiver{peer: p, checker: workload.NewChecker(p.Spec), every: stampInterval}
	if p.Rate > 0 {
		r.every = 1
	}
	r.Waited()
	return r
}

// Waited says that the replica has waited, so that the next update is not as old as the one
// before. Without it the latency is right only in a run that has a rate.
func (r *Receiver) Waited() { r.since = r.every }

// See checks the next update, and reports whether more have to come.
func (r *Receiver) See(key, value []byte) (more bool) {
	if r.since++; r.since >= r.every {
		r.since, r.arrived = 0, workload.Now()
		r.peer.Count.Store(r.checker.Delivered())
	}
	return r.SeeAt(key, value, r.arrived)
}

// Batch returns the time for SeeAt of updates that all arrived now.
func (r *Receiver) Batch() (now int64) {
	r.peer.Count.Store(r.checker.Delivered())
	return workload.Now()
}

// SeeAt is See for an update that arrived at the time now.
func (r *Receiver) SeeAt(key, value []byte, now int64) (more bool) {
	r.checker.See(key, value, now)
	if !r.warmed && r.checker.Warm() {
		r.warm()
	}
	return !r.checker.Done()
}

func (r *Receiver) warm() {
	r.warmed = true
	r.peer.Send(link.Event{Kind: link.Warmed})
}
