package binarystar

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strconv"

	"clustermap/sockets"
)

// property identifies nodes of this package to one another: both sockets of a node
// announce it in their handshake.
const property = "X-BSTAR"

const (
	version = 1
	long    = 'B' // a long message begins with it; a short one never does
	header  = 12  // long, version, state, role, epoch
)

// MaxPayload is the largest payload, in bytes.
const MaxPayload = 1024

// errMessage is for a message that tells no state.
var errMessage = errors.New("binarystar: message tells no state")

// appendShort appends the message of the guide's programs: the state as a
// decimal digit.
func appendShort(b []byte, s State) []byte { return strconv.AppendUint(b, uint64(s), 10) }

// appendLong appends the message for nodes of this package.
func appendLong(b []byte, c candidate) []byte {
	b = append(b, long, version, byte(c.state), byte(c.role))
	b = binary.BigEndian.AppendUint64(b, c.epoch)
	return append(b, c.payload...)
}

// parse reads what a node of role own was told. The result does not refer to m.
func parse(m sockets.Message, own Role) (candidate, error) {
	if len(m) != 1 {
		return candidate{}, errMessage
	}
	b := m[0]
	if len(b) == 0 || b[0] != long {
		n, err := strconv.ParseUint(string(bytes.TrimSpace(b)), 10, 8)
		s := State(n)
		if err != nil || s < StatePrimary || s > StatePassive {
			return candidate{}, errMessage
		}
		c := candidate{state: s, role: own.other(), foreign: true}
		if s == own.waiting() {
			c.role = own
		}
		return c, nil
	}
	if len(b) < header || b[1] != version || len(b) > header+MaxPayload {
		return candidate{}, errMessage
	}
	c := candidate{
		state:   State(b[2]),
		role:    Role(b[3]),
		epoch:   binary.BigEndian.Uint64(b[4:]),
		payload: bytes.Clone(b[header:]),
	}
	switch {
	case c.state < StatePrimary || c.state > StateYielding,
		c.role != RolePrimary && c.role != RoleBackup,
		c.state <= StateBackup && c.state != c.role.waiting(),
		c.epoch > MaxEpoch:
		return candidate{}, errMessage
	}
	return c, nil
}

// topics returns the topics to subscribe a peer to when it asks for one: a peer of
// this package gets long messages, any other the short ones that it asked for.
func topics(ours bool, asked string) []string {
	switch {
	case ours:
		return []string{string(rune(long))}
	case asked == "":
		return []string{"1", "2", "3", "4"}
	case asked[0] >= '1' && asked[0] <= '4':
		return []string{asked}
	}
	return nil
}
