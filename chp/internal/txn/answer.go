package txn

import (
	"encoding/binary"

	"clustermap/internal/kvmsg"
	"clustermap/zmtp"
)

// keyAnswers is the first frame of the message with which a server answers requests, on the
// client's snapshot connection. The second frame has one answer or more, each
//
//	number     8 bytes
//	status     1 byte
//	sequence   8 bytes
//	condition  2 bytes: which one does not hold, from 0 on
//	value      4 bytes, its size and 1, or 0 if there is none; and the value
const keyAnswers = "OUTCOMES"

// Status is what has become of a request.
type Status byte

// The values of Status.
const (
	// StatusMade: the updates are in the map, and published. The last one has Answer.Sequence.
	StatusMade Status = iota
	// StatusConflict: a condition does not hold, and nothing is changed. Its key exists, and its last
	// update has Answer.Sequence.
	StatusConflict
	// StatusRefused: the server refuses the updates, and nothing is changed. Answer.Sequence is the
	// kvmsg.Reason.
	StatusRefused
	// StatusUnknown means that the server cannot know whether the request was made before.
	StatusUnknown
	// StatusAbsent: a condition does not hold, since its key does not exist, and nothing is changed.
	// Answer.Sequence is that of the last update before, of any key.
	StatusAbsent
)

// Answer is the answer to one request.
type Answer struct {
	Number    uint64
	Status    Status
	Sequence  int64
	Condition int
	Value     []byte // of the key whose condition does not hold, if it was asked for and is sent
	Has       bool   // Value is meant
}

// AllMade reports whether all answers in a second frame are that the updates were made.
func AllMade(b []byte) bool {
	for len(b) >= answerSize {
		if Status(b[8]) != StatusMade {
			return false
		}
		size := int(binary.BigEndian.Uint32(b[answerSize-4:]))
		b = b[min(len(b), answerSize+max(0, size-1)):]
	}
	return true
}

const answerSize = 8 + 1 + 8 + 2 + 4

// Append appends an answer to the second frame.
func (a *Answer) Append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, a.Number)
	dst = append(dst, byte(a.Status))
	dst = binary.BigEndian.AppendUint64(dst, uint64(a.Sequence))
	dst = binary.BigEndian.AppendUint16(dst, uint16(a.Condition))
	if !a.Has {
		return binary.BigEndian.AppendUint32(dst, 0)
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(a.Value))+1)
	return append(dst, a.Value...)
}

// Next sets a to the answer at the start of b, of which it then is a part, and returns the
// rest. ok is false if there is none.
func (a *Answer) Next(b []byte) (rest []byte, ok bool) {
	if len(b) < answerSize {
		return nil, false
	}
	*a = Answer{
		Number: binary.BigEndian.Uint64(b), Status: Status(b[8]), Sequence: int64(binary.BigEndian.Uint64(b[9:])),
		Condition: int(binary.BigEndian.Uint16(b[17:])),
	}
	size := uint64(binary.BigEndian.Uint32(b[19:]))
	b = b[answerSize:]
	if a.Has = size > 0; !a.Has {
		return b, true
	}
	if size--; size > uint64(len(b)) {
		return nil, false
	}
	a.Value = b[:size]
	return b[size:], true
}

// AppendAnswers appends the message with some answers.
func AppendAnswers(dst, answers []byte) []byte {
	return zmtp.AppendMessage(dst, []byte(keyAnswers), answers)
}

// ParseAnswers returns the answers in a message. ok is false for any other message.
func ParseAnswers(m zmtp.WireMessage) (answers []byte, ok bool) {
	const header = 2 + len(keyAnswers)
	if len(m) < header || m[0] != kvmsg.FlagMore || int(m[1]) != len(keyAnswers) || string(m[2:header]) != keyAnswers || m.Len() != 2 {
		return nil, false
	}
	_, m = m.Next()
	answers, _ = m.Next()
	return answers, true
}
