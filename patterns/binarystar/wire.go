package binarystar

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strconv"

	"clustermap/internal/election"
	"clustermap/zmtp"
)

// property identifies nodes of this package to each other: both sockets of a node
// announce it in their handshake.
const property = "X-BSTAR"

const (
	version  = 1
	longMark = 'B' // first byte of a long message, but never of a short one
	header   = 12  // bytes before the payload: mark, version, state, role, epoch
)

var errMessage = errors.New("binarystar: invalid message")

// appendShort appends a message in the form of the guide's programs: the state as a
// decimal digit.
func appendShort(b []byte, s State) []byte { return strconv.AppendUint(b, uint64(s), 10) }

// appendLong appends a message in the form for nodes of this package.
func appendLong(b []byte, c election.Candidate) []byte {
	b = append(b, longMark, version, byte(c.State), byte(c.Role))
	b = binary.BigEndian.AppendUint64(b, c.Epoch)
	return append(b, c.Payload...)
}

// parse decodes a message to a node of role own. The result does not refer to m.
func parse(m zmtp.WireMessage, own Role) (election.Candidate, error) {
	if m.Len() != 1 {
		return election.Candidate{}, errMessage
	}
	b, _ := m.Next()
	if len(b) == 0 || b[0] != longMark {
		n, err := strconv.ParseUint(string(bytes.TrimSpace(b)), 10, 8)
		s := State(n)
		if err != nil || s < StatePrimary || s > StatePassive {
			return election.Candidate{}, errMessage
		}
		c := election.Candidate{State: s, Role: own.Other(), Guide: true}
		if s == own.Waiting() {
			c.Role = own
		}
		return c, nil
	}
	if len(b) < header || b[1] != version || len(b) > header+MaxPayload {
		return election.Candidate{}, errMessage
	}
	c := election.Candidate{
		State:   State(b[2]),
		Role:    Role(b[3]),
		Epoch:   binary.BigEndian.Uint64(b[4:]),
		Payload: bytes.Clone(b[header:]),
	}
	switch {
	case c.State < StatePrimary || c.State > StateYielding,
		c.Role != RolePrimary && c.Role != RoleBackup,
		c.State <= StateBackup && c.State != c.Role.Waiting(),
		c.Epoch > MaxEpoch:
		return election.Candidate{}, errMessage
	}
	return c, nil
}

// topics returns the topics for a peer's subscription: a peer of this package gets long
// messages, any other the short ones to which it subscribes.
func topics(ours bool, asked string) []string {
	switch {
	case ours:
		return []string{string(rune(longMark))}
	case asked == "":
		return []string{"1", "2", "3", "4"}
	case asked[0] >= '1' && asked[0] <= '4':
		return []string{asked}
	}
	return nil
}
