package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"clustermap/cmd/chp/internal/bench/link"
	"clustermap/cmd/chp/internal/bench/workload"
)

// finishTime is the time that replicas have to report after a stall.
const finishTime = 10 * time.Second

// run is the run of one pipeline, from the start of its processes to their end.
type run struct {
	*Config
	prefix   string // prefix of the roles' names
	expected workload.Content
	spec     workload.Spec
	group    *link.Group

	servers    []*link.Child // empty for an existing server
	data       string        // directory of the server's log
	publishers []*link.Child
	replicas   []*link.Child
}

// outcome is the result of a run.
type outcome struct {
	seconds float64 // from the first send to the last arrival
	reports []workload.Report
	fault   error // of the servers
}

// do runs the pipeline. It calls onProgress with the number of updates that the slowest
// replica has received.
func (r *run) do(ctx context.Context, onProgress func(uint64)) (outcome, error) {
	if r.prefix == dataPrefix {
		dir, err := os.MkdirTemp(r.Data, "chp-bench-")
		if err != nil {
			return outcome{}, err
		}
		defer os.RemoveAll(dir) // only this run uses it, and its processes have ended by then
		r.data = dir
	}
	r.group = &link.Group{Command: r.Command, Patience: r.Patience, OnProgress: r.progress(onProgress)}
	defer r.group.Stop()

	err := r.measure(ctx)
	if errors.Is(err, link.ErrStalled) && len(r.replicas) > 0 {
		// An error that names the missing updates says more than a timeout.
		err = errors.Join(err, r.finish(ctx))
		if o := r.outcome(); len(o.reports) > 0 {
			return o, nil
		}
	}
	if err != nil {
		return outcome{}, err
	}
	o := r.outcome()
	if r.prefix == pairPrefix {
		if o.fault = r.comparePair(ctx); ctx.Err() != nil {
			return outcome{}, ctx.Err()
		}
	}
	return o, r.clean(ctx)
}

// measure runs the pipeline until every replica has reported.
func (r *run) measure(ctx context.Context) error {
	if err := r.start(ctx); err != nil {
		return err
	}
	everyone := append(append([]*link.Child{}, r.publishers...), r.replicas...)
	if err := r.group.Tell(link.Warm, r.publishers...); err != nil {
		return err
	}
	if err := r.group.Await(ctx, link.Warmed, everyone...); err != nil {
		return err
	}
	if err := r.group.Tell(link.Go, r.publishers...); err != nil {
		return err
	}
	if err := r.group.Await(ctx, link.Sent, r.publishers...); err != nil {
		return err
	}
	return r.group.Await(ctx, link.Done, r.replicas...)
}

// start starts the processes, servers before the clients that connect to them.
func (r *run) start(ctx context.Context) error {
	client := link.Task{Servers: []string{r.Server}}
	if r.Server == "" || r.prefix != "" {
		servers, err := r.startServers(ctx)
		if err != nil {
			return err
		}
		client.Servers = servers
	}
	if !r.Security.CurveServerKey.IsZero() {
		client.CurveKey, client.CurveServerKey = r.Security.CurveSecretKey.Z85(), r.Security.CurveServerKey.String()
	}
	for i := range r.Replicas {
		c, err := r.peer(roleReplica, i, client)
		if err != nil {
			return err
		}
		r.replicas = append(r.replicas, c)
	}
	for i := range r.Publishers {
		task := client
		task.Publisher, task.Rate = i, r.Rate/float64(r.Publishers)
		c, err := r.peer(rolePublisher, i, task)
		if err != nil {
			return err
		}
		r.publishers = append(r.publishers, c)
	}
	return r.group.Await(ctx, link.Ready, append(append([]*link.Child{}, r.replicas...), r.publishers...)...)
}

// startServers starts the server, or both servers of a pair, and returns the endpoints
// for clients.
func (r *run) startServers(ctx context.Context) ([]string, error) {
	tasks := []link.Task{{}}
	var err error
	switch r.prefix {
	case dataPrefix:
		tasks[0].Data, tasks[0].Sync = r.data, r.Sync.String()
	case pairPrefix:
		tasks, err = pairTasks(r.Patience)
	}
	if err != nil {
		return nil, err
	}
	for i, task := range tasks {
		server, err := r.peer(roleServer, i, task)
		if err != nil {
			return nil, err
		}
		r.servers = append(r.servers, server)
	}
	if err := r.group.Await(ctx, link.Ready, r.servers...); err != nil {
		return nil, err
	}
	var endpoints []string
	for _, server := range r.servers {
		endpoints = append(endpoints, server.Event(link.Ready).Servers...)
	}
	return endpoints, nil
}

// peer starts process number i of a role.
func (r *run) peer(role string, i int, t link.Task) (*link.Child, error) {
	t.Role, t.Spec = r.prefix+role, r.spec
	name := fmt.Sprintf("%s %d", t.Role, i+1)
	if r.ProfileDir != "" {
		t.Profile = filepath.Join(r.ProfileDir, strings.ReplaceAll(name, " ", "-")+".prof")
	}
	return r.group.Start(name, t)
}

// progress returns a function that passes the count of the slowest replica to f.
func (r *run) progress(f func(uint64)) func(*link.Child, uint64) {
	counts := map[*link.Child]uint64{}
	return func(c *link.Child, count uint64) {
		counts[c] = count
		slowest := counts[r.replicas[0]]
		for _, replica := range r.replicas {
			slowest = min(slowest, counts[replica])
		}
		f(slowest)
	}
}

// finish asks every replica for its report.
func (r *run) finish(ctx context.Context) error {
	r.group.Patience = finishTime
	if err := r.group.Tell(link.Finish, r.replicas...); err != nil {
		return err
	}
	return r.group.Await(ctx, link.Done, r.replicas...)
}

// outcome collects the reports.
func (r *run) outcome() outcome {
	var o outcome
	var first, last int64
	for _, p := range r.publishers {
		if f := p.Event(link.Sent).First; first == 0 || f != 0 && f < first {
			first = f
		}
	}
	for _, c := range r.replicas {
		report := c.Event(link.Done).Report
		if report == nil {
			continue
		}
		last = max(last, report.Last)
		o.reports = append(o.reports, *report)
	}
	o.seconds = time.Duration(last - first).Seconds()
	return o
}

// clean deletes the keys of the run from an existing server.
func (r *run) clean(ctx context.Context) error {
	if len(r.servers) > 0 {
		return nil
	}
	if err := r.group.Tell(link.Clean, r.publishers...); err != nil {
		return err
	}
	return r.group.Await(ctx, link.Cleaned, r.publishers...)
}

// newPrefix returns the prefix of a run's keys: a fixed one if the run has its own
// server, otherwise a unique one.
func newPrefix(existing bool) string {
	if !existing {
		return "/bench/"
	}
	return "/bench-" + strings.ToLower(rand.Text()[:8]) + "/"
}
