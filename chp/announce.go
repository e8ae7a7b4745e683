package chp

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"

	"clustermap/internal/kvmsg"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// Properties of the READY command with which servers and clients of this package
// announce what they support beyond RFC 12. Other peers ignore them.
const (
	// propertyCHP identifies a peer of this package.
	propertyCHP = "X-CHP"

	// propertyMaxValue is the largest value that a server takes: bytes, in decimal.
	propertyMaxValue = "X-CHP-Max-Value"

	// propertyRefusals says that a server tells a client on its snapshot
	// connection of every update that it refuses (see appendRefusal).
	propertyRefusals = "X-CHP-Refusals"

	// propertyModel is the Clone model of a server, in decimal, if that is not 6:
	// such a server announces nothing else.
	propertyModel = "X-CHP-Model"

	// propertyClient identifies a client on all of its connections: 32 hexadecimal
	// digits. It is the same for all servers, so that one which takes over the map
	// of another knows the client's updates. propertyGeneration is a number in
	// decimal that rises from session to session: once a server has taken an update
	// of one session, it refuses those of earlier sessions, and within a session
	// those of earlier connections.
	propertyClient     = "X-CHP-Client"
	propertyGeneration = "X-CHP-Generation"

	// propertyOrder says that a client numbers its updates in their sequence field,
	// from 1, 0 being no number (see origins). Its value is in decimal: after so many
	// bytes of updates the server tells how far they have come (see keyApplied), and
	// with 0 only at the beginning of a session.
	propertyOrder = "X-CHP-Order"
)

// announcement is our value of propertyCHP.
const announcement = "clustermap/1"

// clientIDSize is the size of propertyClient.
const clientIDSize = 32

// newClientID returns a value for propertyClient.
func newClientID() string {
	var id [clientIDSize / 2]byte
	rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}

// announcedLimit returns the most bytes of a value that a server takes, or 0 if
// it does not say.
func announcedLimit(server *sockets.Peer) int {
	n, err := strconv.ParseUint(server.Property(propertyMaxValue), 10, 31)
	if err != nil {
		return 0
	}
	return int(min(n, math.MaxInt32))
}

// keyRefused is the first frame of a refusal.
const keyRefused = "REFUSED"

// appendRefusal appends the message by which a server tells that it refused an
// update: REFUSED, the update's UUID, and one byte, the Reason.
func appendRefusal(dst, uuid []byte, reason Reason) []byte {
	return zmtp.AppendMessage(dst, []byte(keyRefused), uuid, []byte{byte(reason)})
}

// parseRefusal reads a refusal.
func parseRefusal(m zmtp.Message) (uuid []byte, reason Reason, ok bool) {
	if m.Len() != 3 {
		return nil, 0, false
	}
	key, m := m.Next()
	uuid, m = m.Next()
	code, _ := m.Next()
	if string(key) != keyRefused || len(uuid) != kvmsg.UUIDSize || len(code) != 1 {
		return nil, 0, false
	}
	return uuid, Reason(code[0]), true
}

// errOverServerLimit returns the error for a value that is not sent because the
// server would refuse it.
func errOverServerLimit(limit int) error {
	return fmt.Errorf("%w: %w", ErrRefused, &MessageError{Reason: ReasonValueTooLarge, Detail: fmt.Sprintf("over the server's limit of %d bytes", limit)})
}
