package main

import (
	"clustermap/bench/peers/internal/systems"
	"clustermap/internal/bench/bare"
	"clustermap/internal/bench/ours"
)

var (
	// chpSystem is our own server and client, through their public API.
	chpSystem = systems.System{Pipeline: ours.Pipeline}
	// bareSystem is the least that the work takes.
	bareSystem = systems.System{Pipeline: bare.Pipeline}
)

// all lists all systems. The first is ours.
var all = []*systems.System{&chpSystem, &bareSystem, &cloneSystem, &guideSystem, &redisSystem, &trackingSystem, &natsSystem, &natsKeysSystem, &jetstreamSystem, &etcdSystem}

func systemOf(name string) *systems.System {
	for _, s := range all {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// loopback is an address of this machine alone, with a port that the system chooses.
const loopback = "127.0.0.1:0"
