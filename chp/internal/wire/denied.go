package wire

import (
	"encoding/binary"

	"clustermap/internal/kvmsg"
	"clustermap/zmtp"
)

// A server answers what a peer of this module may not ask, on the snapshot connection:
//
//	DENIED
//	question  the first frame of what was asked, such as ICANHAZ?
//	number    8 bytes: of the question, or 0
//	verb      1 byte: what the peer may not do
//	key       or the subtree
//	name      as which the server knows the peer
const denied = "DENIED"

// Denial says which question a server does not answer, and why.
type Denial struct {
	Question string
	Number   uint64
	Why      kvmsg.AccessError
}

// AppendDenial appends the message.
func AppendDenial(dst []byte, d *Denial) []byte {
	return zmtp.AppendMessage(dst, []byte(denied), []byte(d.Question), binary.BigEndian.AppendUint64(nil, d.Number),
		[]byte{byte(d.Why.Verb)}, []byte(d.Why.Key), []byte(d.Why.Name))
}

// ParseDenial parses the message. For any other one ok is false.
func ParseDenial(m zmtp.WireMessage) (d Denial, ok bool) {
	if !begins(m, denied) || m.Len() != 6 {
		return d, false
	}
	_, m = m.Next()
	question, m := m.Next()
	number, m := m.Next()
	verb, m := m.Next()
	key, m := m.Next()
	name, _ := m.Next()
	if len(number) != 8 || len(verb) != 1 {
		return d, false
	}
	return Denial{string(question), binary.BigEndian.Uint64(number), kvmsg.AccessError{Name: string(name), Verb: kvmsg.Verb(verb[0]), Key: string(key)}}, true
}

// QuestionOf returns the first frame of a message.
func QuestionOf(m zmtp.WireMessage) string {
	first, _ := m.Next()
	return string(first)
}
