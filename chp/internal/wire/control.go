package wire

import (
	"clustermap/internal/kvmsg"
	"clustermap/zmtp"
)

// Questions that a peer of this module may ask on the snapshot port, one frame each unless they
// say more, and the first frame of the answers. The second frame of an answer is a JSON object
// for the status, about clients and for who the peer is; for the others it is the reason why it
// failed, or empty.
const (
	AskStatus    = "STATUS?"
	AnswerStatus = "STATUS"

	AskHandover    = "FAILOVER?"
	AnswerHandover = "FAILOVER"

	AskWho    = "WHOAMI?"
	AnswerWho = "WHOAMI"

	AskReload    = "RELOAD?"
	AnswerReload = "RELOAD"

	AskPromote    = "PROMOTE?"
	AnswerPromote = "PROMOTE"

	// AskClients has a second frame: the number, in decimal, above which the clients are wanted.
	AskClients    = "CLIENTS?"
	AnswerClients = "CLIENTS"

	// AskKick has a second frame: which clients.
	AskKick    = "KICK?"
	AnswerKick = "KICK"

	// AskHot has a second frame: how many keys are wanted, in decimal.
	AskHot    = "HOT?"
	AnswerHot = "HOT"

	// AskCluster has a second frame, a JSON object that says what is to be done with the cluster; the answer is as that to a
	// handover.
	AskCluster    = "CLUSTER?"
	AnswerCluster = "CLUSTER"
)

// standby is the only frame of the message with which a server of a pair answers a
// snapshot request while it is not active. The server counts the request as a vote; the
// client should try the other server. The message can also follow later, when the server
// stops being active.
const standby = "STANDBY"

var standbyWire = string(zmtp.AppendMessage(nil, []byte(standby)))

// AppendStandby appends the message STANDBY.
func AppendStandby(dst []byte) []byte { return append(dst, standbyWire...) }

// IsStandby reports whether m is the message STANDBY.
func IsStandby(m []byte) bool { return string(m) == standbyWire }

// keyRefused is the first frame of a refusal.
const keyRefused = "REFUSED"

// AppendRefusal appends the message that reports a refused update: REFUSED, the update's
// UUID, and one byte, the reason.
func AppendRefusal(dst, uuid []byte, reason kvmsg.Reason) []byte {
	return zmtp.AppendMessage(dst, []byte(keyRefused), uuid, []byte{byte(reason)})
}

// ParseRefusal parses a refusal. For any other message ok is false.
func ParseRefusal(m zmtp.WireMessage) (uuid []byte, reason kvmsg.Reason, ok bool) {
	if m.Len() != 3 {
		return nil, 0, false
	}
	key, m := m.Next()
	uuid, m = m.Next()
	code, _ := m.Next()
	if string(key) != keyRefused || len(uuid) != kvmsg.UUIDSize || len(code) != 1 {
		return nil, 0, false
	}
	return uuid, kvmsg.Reason(code[0]), true
}
