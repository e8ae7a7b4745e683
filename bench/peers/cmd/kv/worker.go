package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// workerVariable is the environment variable that makes a process a worker. Its value is
// the task.
const workerVariable = "KV_WORKER"

// role is the role of a worker.
type role string

const (
	roleServer    role = "server"
	rolePublisher role = "publisher"
	roleReplica   role = "replica"
)

// task is the task of a worker.
type task struct {
	System   string
	Role     role
	Workload workload
	Servers  []string      // to connect to
	Rate     float64       // updates a second, or 0 for as many as go; if set, updates carry their time
	Patience time.Duration // how long a worker waits without progress
}

// event is a line that a worker writes.
type event struct {
	Kind    kind
	Servers []string      `json:",omitempty"` // ready
	First   int64         `json:",omitempty"` // sent: when the first measured update was sent, by now
	Elapsed time.Duration `json:",omitempty"` // sent: how long the publisher sent
	Report  *report       `json:",omitempty"` // done
	Error   string        `json:",omitempty"` // failed
	Missing bool          `json:",omitempty"` // failed: the system is not installed
}

// kind is the kind of an event.
type kind string

const (
	ready  kind = "ready"  // server, replica: others may start
	warmed kind = "warmed" // publisher: each key was sent; replica: each key has arrived
	sent   kind = "sent"   // publisher: the server has taken every update
	done   kind = "done"   // replica: every update has arrived, or none for a long time
	failed kind = "failed"
)

// goLine is the line that lets a publisher begin its measured updates.
const goLine = "go"

// worker is the inside of a worker process.
type worker struct {
	task
	sys      *system
	mu       sync.Mutex // guards standard output
	commands chan string
}

// say writes an event.
func (w *worker) say(e event) {
	text, err := json.Marshal(e)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		_, err = fmt.Printf("%s\n", text)
	}
	if err != nil {
		os.Exit(1) // the parent is gone
	}
}

// runWorker is the whole of a worker process. It returns the exit code when its parent
// has closed its standard input or is gone.
func runWorker(text string) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w := &worker{commands: make(chan string, 1)}
	if err := json.Unmarshal([]byte(text), &w.task); err != nil {
		w.say(event{Kind: failed, Error: err.Error()})
		return 1
	}
	if w.sys = systemOf(w.System); w.sys == nil {
		w.say(event{Kind: failed, Error: "there is no such system"})
		return 1
	}
	go func() {
		defer cancel()
		lines := bufio.NewScanner(os.Stdin)
		for lines.Scan() {
			w.commands <- lines.Text()
		}
	}()
	err := w.run(ctx)
	if err != nil && ctx.Err() == nil {
		w.say(event{Kind: failed, Error: err.Error(), Missing: errors.Is(err, errMissing)})
	}
	<-ctx.Done()
	return 0
}

func (w *worker) run(ctx context.Context) error {
	switch w.Role {
	case roleServer:
		return w.sys.serve(ctx, func(servers ...string) { w.say(event{Kind: ready, Servers: servers}) })
	case rolePublisher:
		return w.publish(ctx)
	case roleReplica:
		return w.follow(ctx)
	}
	return fmt.Errorf("there is no role %q", w.Role)
}

// follow is the role of a replica.
func (w *worker) follow(ctx context.Context) error {
	c := newChecker(w.Workload, w.sys.conflates, func() { w.say(event{Kind: warmed}) })
	r, err := w.sys.follow(ctx, w.Servers, c.see)
	if err != nil {
		return err
	}
	w.say(event{Kind: ready})
	running, stop := context.WithCancel(ctx)
	defer stop()
	go watch(running, &c.count, w.Patience, stop)
	err = r.run(running)
	if err != nil && running.Err() == nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	report := c.conclude(r.get)
	w.say(event{Kind: done, Report: &report})
	<-ctx.Done()
	return nil
}

// watch calls stalled when count has not changed for so long.
func watch(ctx context.Context, count *atomic.Int64, patience time.Duration, stalled func()) {
	last := int64(-1)
	tick := time.NewTicker(patience)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if n := count.Load(); n != last {
				last = n
				continue
			}
			stalled()
			return
		}
	}
}

// publish is the role of the publisher.
func (w *worker) publish(ctx context.Context) error {
	p, err := w.sys.publish(ctx, w.Servers, w.Workload)
	if err != nil {
		return err
	}
	s := &source{w: w.Workload, names: w.Workload.names(), to: p}
	go watch(ctx, &s.count, w.Patience, func() {
		if s.finished.Load() {
			return
		}
		w.say(event{Kind: failed, Error: fmt.Sprintf("no progress for %v", w.Patience)})
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	})
	if err := s.send(w.Workload.Keys, 0); err != nil {
		return err
	}
	if err := p.settle(ctx); err != nil {
		return err
	}
	w.say(event{Kind: warmed})
	select {
	case <-w.commands:
	case <-ctx.Done():
		return ctx.Err()
	}
	s.count.Add(1)
	first := now()
	if w.Rate > 0 {
		err = s.pace(ctx, w.Workload.Updates, w.Rate)
	} else {
		err = s.send(w.Workload.Updates, 0)
	}
	elapsed := time.Duration(now() - first)
	if err == nil {
		err = p.settle(ctx)
	}
	if err != nil {
		return err
	}
	s.finished.Store(true)
	w.say(event{Kind: sent, First: first, Elapsed: elapsed})
	<-ctx.Done()
	return nil
}
