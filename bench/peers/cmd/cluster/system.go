package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"clustermap/bench/peers/internal/systems"
	"clustermap/internal/wake"
)

// nodes is how many nodes a cluster has.
const nodes = 3

// system is a cluster of nodes, and clients of it.
type system struct {
	name string
	systems.System
	// servers returns the arguments of the nodes, with directories in dir. election, if not 0, replaces
	// the default election time-out.
	servers func(dir string, election time.Duration) ([]any, error)
	// order returns the endpoints with the leader's first, as soon as one leads.
	order func(ctx context.Context, servers []string, patience time.Duration) ([]string, error)
	// check, if not nil, returns an error if the nodes differ in the end.
	check func(ctx context.Context, servers []string, patience time.Duration) error
	// dial connects to the first of the servers that answers.
	dial func(ctx context.Context, servers []string) (caller, error)
	// only, if not "", is the only mode in which the system takes part.
	only string
	// without has the modes in which the system is not measured, and why.
	without map[string]string
}

// caller is a client whose calls wait for the answer. Several goroutines may use it.
type caller interface {
	// put returns when the value is acknowledged.
	put(ctx context.Context, key string, value []byte) error
	// get reads a key that exists. The read is linearizable.
	get(ctx context.Context, key string) error
	close()
}

// all lists all systems. The first is ours.
var all = []*system{&chpSystem, &chpSoonSystem, &etcdSystem, &jetstreamSystem}

func systemOf(name string) *system {
	for _, s := range all {
		if s.name == name {
			return s
		}
	}
	return nil
}

// leaderFirst returns the servers with the first one that leads in front, as soon as one does.
func leaderFirst(ctx context.Context, servers []string, patience time.Duration, leads func(ctx context.Context, server string) (bool, error)) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		var why error
		for i, s := range servers {
			ok, err := leads(ctx, s)
			if ok {
				return append([]string{s}, slices.Delete(slices.Clone(servers), i, i+1)...), nil
			}
			why = errors.Join(why, err)
		}
		if !wake.Pause(ctx, leadsAgain) {
			return nil, fmt.Errorf("no node leads: %w", errors.Join(why, ctx.Err()))
		}
	}
}

// leadsAgain is the pause before nodes are asked again.
const leadsAgain = 50 * time.Millisecond

var errNoValue = errors.New("the key has no value")
