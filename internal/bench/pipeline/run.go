package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"clustermap/internal/bench/link"
	"clustermap/internal/bench/workload"
)

// finishTime is the time that replicas have to report after a stall.
const finishTime = 10 * time.Second

// Run is one run of a pipeline, from the start of its processes, which call worker.Main with
// its Workers, to their end.
type Run struct {
	Pipeline string
	Label    string // in front of the processes' names in errors and names of profiles
	Spec     workload.Spec

	// Servers are the endpoints of a server that exists, whose keys are deleted in the
	// end. Without them each of ServerArgs starts one.
	Servers    []string
	ServerArgs []any // link.Task.Args of each
	ClientArgs any   // link.Task.Args of publishers and replicas

	Publishers int // processes; each sends for as many publishers of Spec
	Replicas   int
	Rate       float64 // updates per second of all publishers together; 0 means no limit
	Patience   time.Duration
	ProfileDir string // if not "", where the processes write CPU profiles

	// OnProgress is called with the number of updates that the slowest replica has
	// received.
	OnProgress func(uint64)
	// Order, if not nil, returns the endpoints of servers that are ready in the order in which
	// clients use them.
	Order func(ctx context.Context, servers []string) ([]string, error)
	// Check, if not nil, returns why the state of the servers is not valid in the end.
	Check func(ctx context.Context, servers []string) error
}

// Outcome is the result of a run.
type Outcome struct {
	First   int64             // when the first measured update was sent, by workload.Now
	Sent    time.Duration     // how long the slowest publisher sent
	Reports []workload.Report // of the replicas that have one
	Fault   error             // of the servers
}

// Seconds is the time from the first send to the last arrival.
func (o *Outcome) Seconds() float64 {
	last := o.First
	for _, r := range o.Reports {
		last = max(last, r.Last)
	}
	return time.Duration(last - o.First).Seconds()
}

// processes are those of a run.
type processes struct {
	*Run
	group                *link.Group
	endpoints            []string
	servers              []*link.Child
	publishers, replicas []*link.Child
}

// Do runs the pipeline.
func (r *Run) Do(ctx context.Context) (*Outcome, error) {
	p := &processes{Run: r, endpoints: r.Servers}
	p.group = &link.Group{Patience: r.Patience, OnProgress: p.progress()}
	defer p.group.Stop()

	err := p.measure(ctx)
	if errors.Is(err, link.ErrStalled) && len(p.replicas) > 0 {
		// An error that names the missing updates says more than a timeout.
		err = errors.Join(err, p.finish(ctx))
		if o := p.outcome(); len(o.Reports) > 0 {
			return o, nil
		}
	}
	if err != nil {
		return nil, err
	}
	o := p.outcome()
	if r.Check != nil {
		if o.Fault = r.Check(ctx, p.endpoints); ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return o, p.clean(ctx)
}

// Servers are those of a run, for work that is no pipeline.
type Servers struct {
	Endpoints []string // in the order of Run.Order
	of        *processes
}

// Serve starts the servers of the run, for the time of use.
func (r *Run) Serve(ctx context.Context, use func(s *Servers) error) error {
	p := &processes{Run: r, group: &link.Group{Patience: r.Patience}}
	defer p.group.Stop()
	if err := p.serve(ctx); err != nil {
		return err
	}
	return use(&Servers{p.endpoints, p})
}

// Kill kills the server with an endpoint, as kill -9 does, and returns when it has ended.
func (s *Servers) Kill(ctx context.Context, endpoint string) error {
	for _, c := range s.of.servers {
		if slices.Contains(c.Event(link.Ready).Servers, endpoint) {
			return s.of.group.Kill(ctx, c)
		}
	}
	return fmt.Errorf("no server is at %s", endpoint)
}

// measure runs the pipeline until every replica has reported.
func (p *processes) measure(ctx context.Context) error {
	if err := p.start(ctx); err != nil {
		return err
	}
	if err := p.group.Tell(link.Warm, p.publishers...); err != nil {
		return err
	}
	if err := p.group.Await(ctx, link.Warmed, p.clients()...); err != nil {
		return err
	}
	if err := p.group.Tell(link.Go, p.publishers...); err != nil {
		return err
	}
	if err := p.group.Await(ctx, link.Sent, p.publishers...); err != nil {
		return err
	}
	return p.group.Await(ctx, link.Done, p.replicas...)
}

// clients returns the processes that are not servers.
func (p *processes) clients() []*link.Child {
	return append(append([]*link.Child{}, p.publishers...), p.replicas...)
}

// serve starts the servers, and learns their endpoints.
func (p *processes) serve(ctx context.Context) error {
	for i, args := range p.ServerArgs {
		if err := p.peer(&p.servers, roleServer, i, link.Task{}, args); err != nil {
			return err
		}
	}
	if err := p.group.Await(ctx, link.Ready, p.servers...); err != nil {
		return err
	}
	for _, s := range p.servers {
		p.endpoints = append(p.endpoints, s.Event(link.Ready).Servers...)
	}
	if p.Order == nil {
		return nil
	}
	var err error
	p.endpoints, err = p.Order(ctx, p.endpoints)
	return err
}

// start starts the processes, servers before the clients that connect to them.
func (p *processes) start(ctx context.Context) error {
	if len(p.endpoints) == 0 {
		if err := p.serve(ctx); err != nil {
			return err
		}
	}
	client := link.Task{Servers: p.endpoints, Rate: p.Rate / float64(p.Publishers), Lanes: p.Spec.Publishers / p.Publishers}
	for i := range p.Replicas {
		if err := p.peer(&p.replicas, roleReplica, i, client, p.ClientArgs); err != nil {
			return err
		}
	}
	for i := range p.Publishers {
		client.Publisher = i * client.Lanes
		if err := p.peer(&p.publishers, rolePublisher, i, client, p.ClientArgs); err != nil {
			return err
		}
	}
	return p.group.Await(ctx, link.Ready, p.clients()...)
}

// peer starts process number i of a role and adds it to a list.
func (p *processes) peer(list *[]*link.Child, role string, i int, t link.Task, args any) (err error) {
	t.Role, t.Spec = p.Pipeline+" "+role, p.Spec
	if t.Args, err = json.Marshal(args); err != nil {
		return err
	}
	name := strings.TrimSpace(fmt.Sprintf("%s %s %d", p.Label, role, i+1))
	if p.ProfileDir != "" {
		t.Profile = filepath.Join(p.ProfileDir, strings.ReplaceAll(name, " ", "-")+".prof")
	}
	c, err := p.group.Start(name, t)
	if c != nil {
		*list = append(*list, c)
	}
	return err
}

// progress returns a function that passes on the count of the slowest replica.
func (p *processes) progress() func(*link.Child, uint64) {
	counts := map[*link.Child]uint64{}
	return func(c *link.Child, count uint64) {
		counts[c] = count
		if p.OnProgress == nil || len(p.replicas) == 0 {
			return
		}
		slowest := counts[p.replicas[0]]
		for _, replica := range p.replicas {
			slowest = min(slowest, counts[replica])
		}
		p.OnProgress(slowest)
	}
}

// finish asks every replica for its report.
func (p *processes) finish(ctx context.Context) error {
	p.group.Patience = finishTime
	if err := p.group.Tell(link.Finish, p.replicas...); err != nil {
		return err
	}
	return p.group.Await(ctx, link.Done, p.replicas...)
}

// outcome collects the reports.
func (p *processes) outcome() *Outcome {
	o := &Outcome{}
	for _, c := range p.publishers {
		sent := c.Event(link.Sent)
		if o.First == 0 || sent.First != 0 && sent.First < o.First {
			o.First = sent.First
		}
		o.Sent = max(o.Sent, sent.Took)
	}
	for _, c := range p.replicas {
		if report := c.Event(link.Done).Report; report != nil {
			o.Reports = append(o.Reports, *report)
		}
	}
	return o
}

// clean deletes the keys of the run from a server that existed.
func (p *processes) clean(ctx context.Context) error {
	if len(p.Servers) == 0 {
		return nil
	}
	if err := p.group.Tell(link.Clean, p.publishers...); err != nil {
		return err
	}
	return p.group.Await(ctx, link.Cleaned, p.publishers...)
}
