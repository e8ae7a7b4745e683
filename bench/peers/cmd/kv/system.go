package main

import (
	"context"
	"errors"
)

// system is one way to replicate a map. Each of its functions runs in a process of its
// own.
type system struct {
	name string
	// share divides --updates, so that slow systems do not take all the time.
	share int
	// perKey, if not 0, bounds the measured updates of each key.
	perKey int
	// lanes, if above 1, is how many updates are under way in no order.
	lanes int
	// conflates says that a replica may miss values that others have replaced.
	conflates bool

	// serve runs the server until ctx ends. ready is called with the addresses that
	// clients connect to.
	serve func(ctx context.Context, ready func(servers ...string)) error
	// publish returns a publisher that is connected.
	publish func(ctx context.Context, servers []string, w workload) (publisher, error)
	// follow returns a replica that misses nothing from now on. It calls see from one
	// goroutine at a time, for each update in the order in which it applies them, until
	// see returns false.
	follow func(ctx context.Context, servers []string, see func(key, value []byte) bool) (replica, error)
}

// update is an update as a publisher is given it.
type update struct {
	lane  int
	index int // of the key
	key   string
	value []byte // lent for the call
}

// publisher sends updates. One goroutine uses it.
type publisher interface {
	// set sends an update, or buffers it.
	set(u update) error
	// push sends the buffered updates.
	push() error
	// settle waits until the server has taken every update.
	settle(ctx context.Context) error
}

// replica holds the map.
type replica interface {
	// run receives updates until see has returned false. It returns soon after ctx ends.
	run(ctx context.Context) error
	// get returns a value, after run has returned. It is lent until the next call.
	get(key string) ([]byte, bool)
}

// errMissing is the error of a system that is not installed.
var errMissing = errors.New("is not installed")

// systems lists all of them. The first is ours.
var systems = []*system{&chpSystem, &bareSystem, &cloneSystem, &guideSystem, &redisSystem, &trackingSystem, &natsSystem, &natsKeysSystem, &jetstreamSystem, &etcdSystem}

func systemOf(name string) *system {
	for _, s := range systems {
		if s.name == name {
			return s
		}
	}
	return nil
}

// workload returns the system's share of the updates.
func (s *system) workload(keys, updates int) workload {
	w := workload{Keys: keys, Updates: max(updates/max(s.share, 1), min(updates, leastUpdates)), Lanes: min(max(s.lanes, 1), keys)}
	if s.perKey > 0 {
		w.Updates = min(w.Updates, keys*s.perKey)
	}
	return w
}

// leastUpdates is the number of updates that no share goes below.
const leastUpdates = 10_000
