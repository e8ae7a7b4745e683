package ours

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"clustermap/chp"
	"clustermap/internal/bench/ports"
)

// pairInterval is the interval at which the servers of a pair exchange their state. It
// is shorter than the default so that each run begins soon.
const pairInterval = 100 * time.Millisecond

// A server of a pair has the ports P to P+2, and P+3 for its state.
const (
	portsOfServer = 4
	statePort     = 3
)

// Pair configures a server of a pair.
type Pair struct {
	Backup    bool
	Host      string
	Port      int
	Peer      string // the other server
	State     string
	PeerState string
	Timeout   time.Duration // after which the other one counts as dead
}

// PairServers returns the arguments of the two servers of a pair. They wait for each other
// for half of the stall time, so that a run that fails reports their reason.
func PairServers(patience time.Duration) ([]any, error) {
	host := ports.Own()
	first, err := ports.Free(host, 2*portsOfServer)
	if err != nil {
		return nil, err
	}
	at := func(port int) string { return "tcp://" + net.JoinHostPort(host, strconv.Itoa(port)) }
	var servers []any
	for i := range 2 {
		port, peer := first+i*portsOfServer, first+(1-i)*portsOfServer
		servers = append(servers, ServerArgs{Pair: &Pair{
			Backup: i == 1, Host: host, Port: port, Peer: at(peer),
			State: at(port + statePort), PeerState: at(peer + statePort),
			Timeout: max(patience/2, 2*pairInterval),
		}})
	}
	return servers, nil
}

func (p *Pair) options() *chp.PairOptions {
	return &chp.PairOptions{
		Backup: p.Backup, Peer: p.Peer, State: p.State, PeerState: p.PeerState,
		Interval: pairInterval, Timeout: p.Timeout, Acks: 2,
	}
}

// ComparePair waits until both servers of a pair have the same content, or returns an
// error that tells how they differ. The passive one may be a moment behind.
func ComparePair(ctx context.Context, servers []string, patience time.Duration) error {
	return settled(ctx, patience, func(ctx context.Context) error {
		all, err := statuses(ctx, servers)
		if err != nil {
			return err
		}
		var active, passive *chp.Status
		for i := range all {
			switch st := &all[i]; st.State {
			case chp.ServerActive:
				active = st
			case chp.ServerPassive:
				passive = st
			}
		}
		return pairFault(active, passive)
	})
}

// pairFault returns an error if the pair is not in sync. Either server may be nil.
func pairFault(active, passive *chp.Status) error {
	switch {
	case active == nil || passive == nil:
		return errors.New("the servers of the pair are not one active and one passive")
	case !active.InSync:
		return errors.New("the passive server of the pair is not in sync")
	case active.Keys != passive.Keys || active.Sequence != passive.Sequence:
		return fmt.Errorf("the servers of the pair differ: the active one has %d keys at sequence %d, the passive one %d keys at sequence %d",
			active.Keys, active.Sequence, passive.Keys, passive.Sequence)
	}
	return nil
}
