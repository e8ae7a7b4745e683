package binarystar

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strconv"

	"clustermap/sockets"
)

// property identifies nodes of this package to each other: both sockets of a node
// announce it in their handshake.
const property = "X-BSTAR"

const (
	version  = 1
	longMark = 'B' // first byte of a long message, but never of a short one
	header   = 12  // bytes before the payload: mark, version, state, role, epoch
)

// MaxPayload is the limit of a payload, in bytes.
const MaxPayload = 1024

// errMessage is the error for an invalid message.
var errMessage = errors.New("binarystar: invalid message")

// appendShort appends a message in the form of the guide's programs: the state as a
// decimal digit.
func appendShort(b []byte, s State) []byte { return strconv.AppendUint(b, uint64(s), 10) }

// appendLong appends a message in the form for nodes of this package.
func appendLong(b []byte, c candidate) []byte {
	b = append(b, longMark, version, byte(c.state), byte(c.role))
	b = binary.BigEndian.AppendUint64(b, c.epoch)
	return append(b, c.payload...)
}

// parse decodes a message to a node of role own. The result does not refer to m.
func parse(m sockets.Message, own Role) (candidate, error) {
	if len(m) != 1 {
		return candidate{}, errMessage
	}
	b := m[0]
	if len(b) == 0 || b[0] != longMark {
		n, err := strconv.ParseUint(string(bytes.TrimSpace(b)), 10, 8)
		s := State(n)
		if err != nil || s < StatePrimary || s > StatePassive {
			return candidate{}, errMessage
		}
		c := candidate{state: s, role: own.other(), guide: true}
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
