package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"clustermap/bench/peers/internal/systems"
	"clustermap/chp"
	"clustermap/chp/commit"
	"clustermap/internal/bench/ours"
)

// chpSystem is a cluster of ours: the processes run what chp serve --cluster runs, with its defaults, so
// with --sync always. Updates are calls of Client.Set, puts of SetSync, reads of GetSync.
var chpSystem = system{
	name: "chp", System: systems.System{Pipeline: ours.Pipeline},
	servers: func(dir string, election time.Duration) ([]any, error) {
		return ours.ClusterServers(nodes, dir, commit.Always(), election)
	},
	order: ours.Leader, check: ours.CompareCluster, dial: dialCHP,
}

// chpSoonSystem is the same with --election-timeout 100ms, which makes a difference when the leader fails.
var chpSoonSystem = system{
	name: "chp-100ms", System: chpSystem.System,
	servers: func(dir string, _ time.Duration) ([]any, error) {
		return ours.ClusterServers(nodes, dir, commit.Always(), 100*time.Millisecond)
	},
	order: chpSystem.order, check: chpSystem.check, dial: dialCHP,
	only: modeFailover,
}

type chpCaller struct{ *chp.Client }

func dialCHP(ctx context.Context, servers []string) (caller, error) {
	c, err := chp.NewClient(chp.ClientOptions{Servers: servers, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	if err := c.WaitActive(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return chpCaller{c}, nil
}

func (c chpCaller) put(ctx context.Context, key string, value []byte) error {
	_, err := c.SetSync(ctx, key, value)
	return err
}

func (c chpCaller) get(ctx context.Context, key string) error {
	_, ok, err := c.GetSync(ctx, key)
	if err == nil && !ok {
		err = errNoValue
	}
	return err
}

func (c chpCaller) close() { c.Close() }
