//go:build unix

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// fault is a planned fault. All choices are made beforehand, from the seed.
type fault struct {
	after     time.Duration // since the one before
	kind      string
	server    int
	replica   int
	port      int // or ports: all
	direction int // or directions: both
	n         int
	lasts     time.Duration
	then      time.Duration
}

func (f fault) String() string {
	return fmt.Sprintf("%s server=%d replica=%d port=%s direction=%s n=%d lasts=%v then=%v", f.kind, f.server, f.replica,
		[]string{"snapshot", "publisher", "collector", "all"}[f.port], []string{"to-server", "to-client", "both"}[f.direction], f.n,
		f.lasts.Round(time.Millisecond), f.then.Round(time.Millisecond))
}

// Faults of connections, of one replica or of all.
const (
	faultReset    = "reset"     // connections are reset
	faultClose    = "close"     // connections end after the bytes in flight
	faultHold     = "hold"      // nothing is carried for a while
	faultDelay    = "delay"     // everything comes late
	faultRefuse   = "refuse"    // connections are reset, also new ones
	faultLate     = "late"      // the client's side is reset, and bytes that it had sent arrive later
	faultHalfOpen = "half-open" // the server's side is reset, and the client does not learn of it
	faultLag      = "lag"       // a client takes a new snapshot while its updates come late
	faultFlood    = "flood"     // a client reads nothing while much is written
	faultDrop     = "drop"      // updates are left out
	faultOutage   = "outage"    // all connections to a server are reset
	faultRejoin   = "rejoin"    // a replica is closed and made anew
)

// Faults of servers.
const (
	faultKill     = "kill"      // SIGKILL, then a new start
	faultForget   = "forget"    // the same, and the data are removed
	faultFull     = "full"      // the same while much is written
	faultStop     = "stop"      // SIGSTOP, then SIGCONT
	faultStopKill = "stop-kill" // SIGSTOP, SIGKILL, then a new start
	faultTerm     = "term"      // SIGTERM, then a new start
	faultSplit    = "split"     // the servers do not reach each other
)

// plan makes the faults for a cluster.
func (c *cluster) plan(n int, seed uint64, longest time.Duration) (faults []fault) {
	rng := rand.New(rand.NewPCG(seed, 1))
	connection := []string{
		faultReset, faultReset, faultClose, faultHold, faultHold, faultDelay, faultDelay, faultRefuse,
		faultLate, faultLate, faultHalfOpen, faultLag, faultLag, faultFlood, faultDrop, faultDrop, faultDrop, faultOutage, faultRejoin,
	}
	process := []string{faultKill, faultKill, faultFull, faultFull, faultStop, faultStop, faultStopKill, faultTerm}
	if c.shape.data && !c.shape.raft { // a node must not forget for whom it has voted
		process = append(process, faultForget)
	}
	often := 10 // one of so many faults is of a server
	if c.shape.raft {
		process, often = append(process, nodeFaults...), 5
	}
	if c.shape.splits {
		process = append(process, faultSplit, faultSplit, faultSplit)
	}
	keep := func(kinds []string) []string {
		if *only == "" {
			return kinds
		}
		return slices.DeleteFunc(kinds, func(k string) bool { return !slices.Contains(strings.Split(*only, ","), k) })
	}
	connection, process = keep(connection), keep(process)
	if len(connection)+len(process) == 0 {
		return nil
	}
	var each []int // a cluster meets each kind of fault of its nodes
	met := 0
	if c.shape.raft {
		each = rng.Perm(len(process))
	}
	for i := range n {
		f := fault{
			after:     time.Duration(rng.ExpFloat64() * float64(*pace)),
			server:    rng.IntN(len(c.servers)),
			replica:   rng.IntN(len(c.replicas)),
			port:      rng.IntN(ports + 1),
			direction: rng.IntN(directions + 1),
			n:         1 + rng.IntN(4),
			lasts:     time.Duration(float64(longest) * rng.Float64() * rng.Float64()),
			then:      time.Duration(float64(longest) * rng.Float64() * rng.Float64()),
		}
		if i%often == often-1 && len(process) > 0 || len(connection) == 0 {
			f.kind = process[rng.IntN(len(process))]
			if each != nil {
				f.kind = process[each[met%len(each)]]
				met++
			}
		} else {
			f.kind = connection[rng.IntN(len(connection))]
		}
		switch f.kind { // those that only some replicas notice
		case faultDrop:
			f.replica = c.counting[rng.IntN(len(c.counting))]
		case faultLate:
			f.replica = rng.IntN(min(*writerCount, len(c.replicas)))
		}
		faults = append(faults, f)
	}
	return faults
}

// inject injects faults one after the other, without waiting for the end of one
// before the next begins, but that one server at a time is in trouble. It returns
// when all are over.
func (c *cluster) inject(ctx context.Context, faults []fault) {
	var running sync.WaitGroup
	trouble := make(chan struct{}, 1) // holds a token while a server is
	for _, f := range faults {
		if !sleep(ctx, f.after) {
			break
		}
		switch f.kind {
		case faultKill, faultFull, faultForget, faultStop, faultStopKill, faultTerm, faultSplit, faultMany, faultFreeze, faultApart, faultDamage, faultReplace:
			trouble <- struct{}{}
			running.Go(func() {
				c.doServer(ctx, f)
				c.recover(ctx)
				<-trouble
			})
		default:
			running.Go(func() { c.do(ctx, f) })
		}
	}
	running.Wait()
}

// recover waits until the cluster works again: servers that are never up long
// enough to be written to show nothing.
func (c *cluster) recover(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for before := c.acknowledged(); c.acknowledged() < before+enough && sleep(ctx, 5*time.Millisecond); {
	}
}

// sleep waits, and returns false if the context has ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (c *cluster) do(ctx context.Context, f fault) {
	c.history.fault("%v", f)
	r := c.replicas[f.replica]
	route := r.routes[f.server]
	do := func(each func(*proxy)) {
		if f.port == ports {
			route.each(each)
		} else {
			each(route.ports[f.port])
		}
	}
	directed := func(each func(direction int)) {
		for d := range directions {
			if f.direction == d || f.direction == directions {
				each(d)
			}
		}
	}
	switch f.kind {
	case faultReset:
		do(func(p *proxy) { p.each((*pipe).reset) })
	case faultClose:
		do(func(p *proxy) { p.each((*pipe).finish) })
	case faultHold:
		do(func(p *proxy) { directed(func(d int) { p.hold(d, 1) }) })
		sleep(ctx, f.lasts)
		do(func(p *proxy) { directed(func(d int) { p.hold(d, -1) }) })
	case faultDelay:
		do(func(p *proxy) { directed(func(d int) { p.delay(d, f.then/4) }) })
		sleep(ctx, f.lasts)
		do(func(p *proxy) { directed(func(d int) { p.delay(d, -f.then/4) }) })
	case faultRefuse:
		do(func(p *proxy) {
			p.refuse(1)
			p.each((*pipe).reset)
		})
		sleep(ctx, f.lasts)
		do(func(p *proxy) { p.refuse(-1) })
	case faultLate:
		p := route.ports[portCollector]
		var old []*pipe
		p.each(func(c *pipe) { old = append(old, c) })
		for _, c := range old {
			c.hold(1)
		}
		sleep(ctx, f.lasts/4)
		for _, c := range old {
			c.forsake(toClient)
		}
		sleep(ctx, f.then)
		for _, c := range old {
			c.hold(-1)
		}
	case faultHalfOpen:
		var old []*pipe
		do(func(p *proxy) { p.each(func(c *pipe) { old = append(old, c) }) })
		for _, c := range old {
			c.hold(1)
			c.forsake(toServer)
		}
		sleep(ctx, f.lasts)
		for _, c := range old {
			c.hold(-1)
		}
	case faultLag:
		p := route.ports[portPublisher]
		p.delay(toClient, f.then/3)
		route.each(func(p *proxy) { p.each((*pipe).reset) })
		sleep(ctx, f.lasts)
		p.delay(toClient, -f.then/3)
	case faultFlood:
		p := route.ports[portPublisher]
		p.hold(toClient, 1)
		c.flood(ctx)
		p.hold(toClient, -1)
	case faultDrop:
		route.ports[portPublisher].leaveOut(f.n)
	case faultOutage:
		for _, r := range c.replicas {
			r.routes[f.server].each(func(p *proxy) { p.each((*pipe).reset) })
		}
	case faultRejoin:
		r.rejoin()
	}
}

// flood writes more than fits into the queue to a client that reads nothing, and
// into those of the system.
func (c *cluster) flood(ctx context.Context) {
	c.flooding.Lock()
	defer c.flooding.Unlock()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for range 2 {
		c.flooder.burst(ctx, c.observer.now(), len(c.keys), 48<<10)
	}
}

// doServer carries out a fault of a server.
func (c *cluster) doServer(ctx context.Context, f fault) {
	if !c.settled(ctx) {
		return
	}
	c.history.fault("%v", f)
	s := c.servers[f.server]
	began := c.history.now()
	defer func() { // one at a time is here
		if f.kind != faultSplit {
			c.troubles = append(c.troubles, trouble{f.server, began, c.history.now()})
		}
	}()
	var reset *op
	if slices.Contains(nodeFaults, f.kind) {
		c.doNodes(ctx, f)
		return
	}
	switch f.kind {
	case faultStop:
		s.signal(syscall.SIGSTOP)
		sleep(ctx, f.lasts)
		s.signal(syscall.SIGCONT)
		return
	case faultSplit:
		for _, between := range c.between {
			between.hold(toServer, 1)
			between.hold(toClient, 1)
		}
		sleep(ctx, f.lasts)
		for _, between := range c.between {
			between.hold(toServer, -1)
			between.hold(toClient, -1)
		}
		return
	}
	if f.kind == faultFull {
		var flood sync.WaitGroup
		flood.Go(func() { c.flood(ctx) })
		defer flood.Wait()
		sleep(ctx, f.lasts/10)
	}
	if f.kind == faultStopKill {
		s.signal(syscall.SIGSTOP)
		sleep(ctx, f.lasts)
	}
	lost := !c.shape.keeps || f.kind == faultForget && !c.shape.pair // the map
	if lost {
		reset = c.history.call(&op{Proc: -1, Kind: opReset})
	}
	if f.kind == faultTerm {
		s.end(syscall.SIGTERM)
	} else {
		s.kill()
	}
	away := f.then / 4
	if c.shape.pair {
		away = f.then // the other one has time to take over, as a rule
	}
	sleep(ctx, away)
	var err error
	if f.kind == faultForget {
		err = s.forget()
	}
	if err == nil {
		err = s.start(ctx)
	}
	if err != nil && ctx.Err() == nil {
		c.history.violate("start", "%v", err)
	}
	if lost {
		reset.Return, reset.Outcome = c.history.now(), acked
	}
}
