package wire

import (
	"encoding/binary"
	"time"

	"clustermap/internal/kvmsg"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// A client renews leases of a server that has announced them, or asks what time they have left, on the
// snapshot connection:
//
//	LEASES?
//	head    9 bytes: a number of the client's choice, and a LeaseKind
//	leases  16 bytes for each: their identities, 1 to MaxLeases
//
// The server answers
//
//	LEASES
//	number  8 bytes: of the question
//	left    8 bytes for each, in the same order: the time that the lease has left now, in nanoseconds;
//	        LeaseEnding or LeaseGone
//
// Numbers are big-endian. A server that cannot know does not answer; the client asks again.
const (
	askLeases    = "LEASES?"
	answerLeases = "LEASES"
)

// LeaseKind is what a question does.
type LeaseKind byte

// The values of LeaseKind.
const (
	LeaseLook   LeaseKind = iota // nothing
	LeaseRenew                   // leases that have time left get all of it again
	LeaseRevoke                  // they end
	leaseKinds
)

// Answers for a lease that has no time left.
const (
	LeaseDenied time.Duration = -2 // the client may not do that with it
	LeaseGone   time.Duration = 0  // it is not in the map, nor are its keys
	LeaseEnding time.Duration = -1 // soon they are not
)

// propertyLeases announces that the server knows leases.
const propertyLeases = "X-CHP-Leases"

// KnowsLeases reports whether a server knows leases, and answers LEASES?.
func KnowsLeases(server *sockets.Peer) bool { return announces(server, propertyLeases) }

const leaseHead = 8 + 1

// AppendLeaseQuestion appends the question in wire form.
func AppendLeaseQuestion(dst []byte, number uint64, kind LeaseKind, ids []kvmsg.LeaseID) []byte {
	dst = kvmsg.AppendFrame(dst, []byte(askLeases), kvmsg.FlagMore)
	dst = zmtp.AppendHeader(dst, kvmsg.FlagMore, leaseHead)
	dst = append(binary.BigEndian.AppendUint64(dst, number), byte(kind))
	dst = zmtp.AppendHeader(dst, 0, len(ids)*len(kvmsg.LeaseID{}))
	for i := range ids {
		dst = append(dst, ids[i][:]...)
	}
	return dst
}

// ParseLeaseQuestion parses the question, and appends the identities to ids. For any other message ok is
// false.
func ParseLeaseQuestion(m zmtp.WireMessage, ids []kvmsg.LeaseID) (number uint64, kind LeaseKind, _ []kvmsg.LeaseID, ok bool) {
	if !begins(m, askLeases) || m.Len() != 3 {
		return 0, 0, ids, false
	}
	_, m = m.Next()
	head, m := m.Next()
	body, _ := m.Next()
	const size = len(kvmsg.LeaseID{})
	if len(head) != leaseHead || len(body) == 0 || len(body)%size != 0 || len(body)/size > MaxLeases {
		return 0, 0, ids, false
	}
	if kind = LeaseKind(head[8]); kind >= leaseKinds {
		return 0, 0, ids, false
	}
	for ; len(body) > 0; body = body[size:] {
		ids = append(ids, kvmsg.LeaseID(body))
	}
	return binary.BigEndian.Uint64(head), kind, ids, true
}

// AppendLeases appends the answer in wire form.
func AppendLeases(dst []byte, number uint64, left []time.Duration) []byte {
	dst = kvmsg.AppendFrame(dst, []byte(answerLeases), kvmsg.FlagMore)
	dst = appendNumber(dst, number, kvmsg.FlagMore)
	dst = zmtp.AppendHeader(dst, 0, 8*len(left))
	for _, d := range left {
		dst = binary.BigEndian.AppendUint64(dst, uint64(d))
	}
	return dst
}

// IsLeases reports whether a message begins as the answer does.
func IsLeases(m zmtp.WireMessage) bool { return begins(m, answerLeases) }

// ParseLeases parses the answer, and appends the times to left. For any other message ok is false.
func ParseLeases(m zmtp.WireMessage, left []time.Duration) (number uint64, _ []time.Duration, ok bool) {
	if !begins(m, answerLeases) || m.Len() != 3 {
		return 0, left, false
	}
	_, m = m.Next()
	n, m := m.Next()
	body, _ := m.Next()
	if len(n) != 8 || len(body)%8 != 0 || len(body)/8 > MaxLeases {
		return 0, left, false
	}
	for ; len(body) > 0; body = body[8:] {
		left = append(left, time.Duration(binary.BigEndian.Uint64(body)))
	}
	return binary.BigEndian.Uint64(n), left, true
}
