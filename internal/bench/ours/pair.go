package ours

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"strconv"
	"time"

	"clustermap/chp"
	"clustermap/sockets"
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
	host := ownAddress()
	first, err := freePorts(host, 2*portsOfServer)
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

// ownAddress returns a loopback address that other programs hardly use. The two servers
// must know each other's ports before they start, so the ports are chosen first and
// must still be free then. On Linux all of 127.0.0.0/8 is loopback.
func ownAddress() string {
	if runtime.GOOS != "linux" {
		return "127.0.0.1"
	}
	return fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), 1+rand.IntN(254), 1+rand.IntN(254))
}

// freePorts returns the first of n consecutive ports that are free.
func freePorts(host string, n int) (first int, err error) {
	for range 100 {
		if first, err = tryPorts(host, n); err == nil {
			return first, nil
		}
	}
	return 0, fmt.Errorf("no %d free ports in a row: %w", n, err)
}

func tryPorts(host string, n int) (first int, err error) {
	for i := range n {
		port := 0
		if i > 0 {
			port = first + i
		}
		l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err != nil {
			return 0, err
		}
		defer l.Close() // keep all of them until the last one is found
		if i == 0 {
			first = l.Addr().(*net.TCPAddr).Port
		}
	}
	return first, nil
}

// ComparePair waits until both servers of a pair have the same content, or returns an
// error that tells how they differ. The passive one may be a moment behind.
func ComparePair(ctx context.Context, servers []string, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := differPair(ctx, servers)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}

// differPair returns an error if the servers are not a pair in sync.
func differPair(ctx context.Context, servers []string) error {
	var active, passive *chp.Status
	for _, s := range servers {
		st, err := chp.ServerStatus(ctx, s, sockets.Security{})
		if err != nil {
			return fmt.Errorf("the server %s does not say how it is: %w", s, err)
		}
		switch st.State {
		case chp.ServerActive:
			active = &st
		case chp.ServerPassive:
			passive = &st
		}
	}
	return pairFault(active, passive)
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
