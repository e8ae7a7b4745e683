package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// manner is how a system is measured.
type manner struct {
	workload workload
	replicas int
	rate     float64
	patience time.Duration
}

// figure is the result of one measurement.
type figure struct {
	rate float64 // updates that the slowest replica saw, a second
	seen float64 // share of the updates that it saw
	sent float64 // updates that the publisher sent, a second

	p50, p99, p999 time.Duration // of the worst replica
}

// measure starts the processes of a system and runs the workload through them once.
func measure(ctx context.Context, s *system, m manner) (f figure, err error) {
	g := &group{events: make(chan arrival)}
	defer g.stop()
	t := task{System: s.name, Workload: m.workload, Rate: m.rate, Patience: m.patience}

	server, err := g.start(t, roleServer)
	if err != nil {
		return f, err
	}
	if err := g.await(ctx, ready, server); err != nil {
		return f, err
	}
	t.Servers = server.got[ready].Servers
	var replicas []*child
	for range m.replicas {
		r, err := g.start(t, roleReplica)
		if err != nil {
			return f, err
		}
		replicas = append(replicas, r)
	}
	if err := g.await(ctx, ready, replicas...); err != nil {
		return f, err
	}
	p, err := g.start(t, rolePublisher)
	if err != nil {
		return f, err
	}
	if err := g.await(ctx, warmed, append(replicas, p)...); err != nil {
		return f, err
	}
	if _, err := fmt.Fprintln(p.in, goLine); err != nil {
		return f, err
	}
	if err := g.await(ctx, done, replicas...); err != nil {
		return f, err
	}
	if err := replicaFaults(s, m, replicas); err != nil {
		return f, err // says more than that the publisher waits
	}
	if err := g.await(ctx, sent, p); err != nil {
		return f, err
	}

	first := p.got[sent].First
	f.sent = float64(m.workload.Updates) / p.got[sent].Elapsed.Seconds()
	for i, c := range replicas {
		r := c.got[done].Report
		rate := float64(r.Seen) / time.Duration(r.Last-first).Seconds()
		if i == 0 || rate < f.rate {
			f.rate, f.seen = rate, float64(r.Seen)/float64(m.workload.Updates)
		}
		f.p50, f.p99 = max(f.p50, time.Duration(r.P50)), max(f.p99, time.Duration(r.P99))
		f.p999 = max(f.p999, time.Duration(r.P999))
	}
	return f, nil
}

func replicaFaults(s *system, m manner, replicas []*child) error {
	var errs []error
	for _, c := range replicas {
		errs = append(errs, c.got[done].Report.fault(m.workload, s.conflates))
	}
	return errors.Join(errs...)
}

// group is the processes of a measurement. One goroutine uses it.
type group struct {
	children []*child
	events   chan arrival
	readers  sync.WaitGroup
}

// child is a worker process.
type child struct {
	role role
	cmd  *exec.Cmd
	in   io.WriteCloser
	got  map[kind]event
}

// arrival is an event of a child, or its end.
type arrival struct {
	from *child
	e    event
	end  error
}

func (g *group) start(t task, r role) (*child, error) {
	t.Role = r
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	c := &child{role: r, cmd: exec.Command(self), got: map[kind]event{}}
	c.cmd.Env = append(os.Environ(), workerVariable+"="+string(text))
	c.cmd.Stderr = os.Stderr
	// A worker ends when its input does, so none outlives this process.
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	g.children = append(g.children, c)
	g.readers.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var e event
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				e = event{Kind: failed, Error: err.Error()}
			}
			g.events <- arrival{from: c, e: e}
		}
		err := c.cmd.Wait()
		if err == nil {
			err = errors.New("exit status 0")
		}
		g.events <- arrival{from: c, end: err}
	})
	return c, nil
}

// await waits until each of the children has sent the event, now or before. It returns an
// error if any child fails.
func (g *group) await(ctx context.Context, want kind, from ...*child) error {
	for {
		all := true
		for _, c := range from {
			_, ok := c.got[want]
			all = all && ok
		}
		if all {
			return nil
		}
		select {
		case a := <-g.events:
			switch {
			case a.end != nil:
				return fmt.Errorf("the %s ended: %w", a.from.role, a.end)
			case a.e.Kind == failed && a.e.Missing:
				return fmt.Errorf("%s%w", a.e.Error[:max(0, len(a.e.Error)-len(errMissing.Error()))], errMissing)
			case a.e.Kind == failed:
				return fmt.Errorf("the %s failed: %s", a.from.role, a.e.Error)
			}
			a.from.got[a.e.Kind] = a.e
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// grace is how long workers have to end after their input has.
const grace = 10 * time.Second

// stop ends every child and waits for it.
func (g *group) stop() {
	finished := make(chan struct{})
	go func() {
		g.readers.Wait()
		close(finished)
	}()
	for _, c := range g.children {
		_ = c.in.Close()
	}
	force := time.AfterFunc(grace, func() {
		for _, c := range g.children {
			_ = c.cmd.Process.Kill() // of those that are left
		}
	})
	defer force.Stop()
	for {
		select {
		case <-g.events:
		case <-finished:
			return
		}
	}
}
