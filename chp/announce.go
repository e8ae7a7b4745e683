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
// announce their extensions of RFC 12. Other peers ignore them.
const (
	// propertyCHP marks a peer of this package.
	propertyCHP = "X-CHP"

	// propertyMaxValue is the largest value that a server takes: bytes, in decimal.
	propertyMaxValue = "X-CHP-Max-Value"

	// propertyRefusals announces that the server reports every update that it refuses, on
	// the client's snapshot connection (see appendRefusal).
	propertyRefusals = "X-CHP-Refusals"

	// propertyModel is the Clone model of a server, in decimal, if it is not 6. Such a
	// server announces only its instance besides.
	propertyModel = "X-CHP-Model"

	// propertyInstance identifies a server, from its start to its end, on all of its
	// ports: 32 hexadecimal digits. Behind one name there can be several servers, and each
	// connection of a client can reach another one; so a client compares what its
	// connections say (see session.recognize). A client that connects to the collector
	// when it follows a server announces the instance of that one, and another server
	// takes no updates from it.
	propertyInstance = "X-CHP-Instance"

	// propertyClient identifies a client on all of its connections: 32 hexadecimal
	// digits, the same for all servers, so that a server that takes over a map
	// recognizes the client. propertyGeneration is a decimal number that increases
	// with each session. Once a server has accepted an update of one session, it
	// refuses updates of earlier sessions, and of earlier connections of that session.
	propertyClient     = "X-CHP-Client"
	propertyGeneration = "X-CHP-Generation"

	// propertyOrder announces that the client numbers its updates from 1, in their
	// sequence field; 0 is no number (see origins). The value, in decimal, is the number
	// of bytes of updates after which the server reports the client's progress (see
	// keyApplied); with 0 it does so only at the start of a session.
	propertyOrder = "X-CHP-Order"
)

// announcement is our value of propertyCHP.
const announcement = "clustermap/1"

// clientIDSize is the size of propertyClient.
const clientIDSize = 32

func newClientID() string {
	var id [clientIDSize / 2]byte
	rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}

// newInstance returns a value of propertyInstance.
func newInstance() string { return newClientID() }

// instanceOf returns the instance that a peer announced, or "" if it announced none.
func instanceOf(p *sockets.Peer) string {
	id, _ := p.Property(propertyInstance)
	return id
}

// announces reports whether a peer announced a property.
func announces(p *sockets.Peer, name string) bool {
	_, ok := p.Property(name)
	return ok
}

// announcedLimit returns the largest value that a server accepts, in bytes, or 0 if the
// server does not announce it.
func announcedLimit(server *sockets.Peer) int {
	text, _ := server.Property(propertyMaxValue)
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0
	}
	return int(min(n, math.MaxInt32))
}

// keyRefused is the first frame of a refusal.
const keyRefused = "REFUSED"

// appendRefusal appends the message that reports a refused update: REFUSED, the
// update's UUID, and one byte, the Reason.
func appendRefusal(dst, uuid []byte, reason Reason) []byte {
	return zmtp.AppendMessage(dst, []byte(keyRefused), uuid, []byte{byte(reason)})
}

func parseRefusal(m zmtp.WireMessage) (uuid []byte, reason Reason, ok bool) {
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
