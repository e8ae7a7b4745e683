package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// members are the members of a cluster at an index of its log.
type members struct {
	Index     uint64            `json:"index"` // of the last change
	Conf      raftpb.ConfState  `json:"conf"`
	Addresses map[uint64]string `json:"addresses"`
	// Gone has the last nodes that were removed. A number is not used again: a node that comes under it has forgotten for whom the
	// one before has voted.
	Gone []uint64 `json:"gone,omitempty"`
}

// A Member is a node of a cluster.
type Member struct {
	Node    uint64
	Address string
	Learner bool // has no vote
	Active  bool // has answered of late; known by the leader alone
	Heard   bool // it has run: the node that was asked has had a message of it, now or in an earlier run
	// Silence is how long ago the node that was asked had the last message of it, or -1 if it had none in this run.
	Silence time.Duration
	// Match is up to which index it is known to have the log on its disk; known by the leader
	// alone.
	Match uint64
}

// clone returns a copy that shares nothing.
func (m *members) clone() members {
	c := *m
	c.Addresses = maps.Clone(m.Addresses)
	c.Conf.Voters = slices.Clone(m.Conf.Voters)
	c.Conf.Learners = slices.Clone(m.Conf.Learners)
	c.Conf.VotersOutgoing = slices.Clone(m.Conf.VotersOutgoing)
	c.Conf.LearnersNext = slices.Clone(m.Conf.LearnersNext)
	c.Gone = slices.Clone(m.Gone)
	return c
}

// voter reports whether a node has a vote, now or in the half of a change under way.
func (m *members) voter(id uint64) bool {
	return slices.Contains(m.Conf.Voters, id) || slices.Contains(m.Conf.VotersOutgoing, id)
}

// alone reports whether a node is a majority by itself.
func (m *members) alone(id uint64) bool {
	return len(m.Conf.Voters) == 1 && m.Conf.Voters[0] == id && len(m.Conf.VotersOutgoing) == 0
}

// all returns the ids of all members in order.
func (m *members) all() []uint64 {
	ids := slices.Concat(m.Conf.Voters, m.Conf.Learners, m.Conf.VotersOutgoing, m.Conf.LearnersNext)
	slices.Sort(ids)
	return slices.Compact(ids)
}

// prune removes the addresses of those that are no members any more, and remembers them.
func (m *members) prune(before *members) {
	all := m.all()
	maps.DeleteFunc(m.Addresses, func(id uint64, _ string) bool { return !slices.Contains(all, id) })
	for _, id := range before.all() {
		if !slices.Contains(all, id) {
			m.Gone = append(m.Gone, id)
		}
	}
	m.Gone = m.Gone[max(0, len(m.Gone)-maxGone):]
}

func (m *members) encode() []byte {
	b, err := json.Marshal(m)
	if err != nil {
		panic(err) // of numbers and strings
	}
	return b
}

var errMembers = errors.New("cluster: invalid members")

func decodeMembers(b []byte) (m members, err error) {
	if len(b) > memberBytes {
		return m, errMembers
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return m, fmt.Errorf("%w: %w", errMembers, err)
	}
	return m, nil
}
