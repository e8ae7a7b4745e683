package chp

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"

	"clustermap/sockets"
	"clustermap/zmtp"
)

// Properties of READY by which servers and clients of this package tell each
// other what goes beyond RFC 12. Plain peers never see anything else of it.
const (
	// propertyCHP is how they know each other.
	propertyCHP = "X-CHP"

	// propertyMaxValue is the most bytes of a value that a server takes, in
	// decimal.
	propertyMaxValue = "X-CHP-Max-Value"

	// propertyRefusals says that a server tells a client on its snapshot
	// connection of every update that it refuses (see appendRefusal).
	propertyRefusals = "X-CHP-Refusals"

	// propertyClient is who a client is on all of its connections to one server:
	// 32 hexadecimal digits, of which only that server knows, so that nobody can
	// speak for the client. propertyGeneration is a number in decimal that rises
	// from session to session: once an update of one session was taken, those of
	// earlier ones are refused, and within a session those of earlier connections.
	propertyClient     = "X-CHP-Client"
	propertyGeneration = "X-CHP-Generation"
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
	if string(key) != keyRefused || len(uuid) != uuidSize || len(code) != 1 {
		return nil, 0, false
	}
	return uuid, Reason(code[0]), true
}

// errOverServerLimit is why a value is not sent to a server that would refuse it.
func errOverServerLimit(limit int) error {
	return fmt.Errorf("%w: %w", ErrRefused, &MessageError{ReasonValueTooLarge, fmt.Sprintf("over the server's limit of %d bytes", limit)})
}
