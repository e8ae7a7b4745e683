package txn

import (
	"encoding/binary"
	"iter"
	"strconv"

	"clustermap/internal/kvmsg"
	"clustermap/zmtp"
)

// keyRequest is the first frame of a request, which a client sends to the collector of a
// server that announces transactions. Frames:
//
//	TXN
//	head        17 bytes: the number (see Mark), the sequence of the client's map when it
//	            sent the request first, and one byte, the flags
//	conditions  see Condition
//	updates     records, one after the other, without sequences
const keyRequest = "TXN"

const headSize = 8 + 8 + 1

// Flags of a request.
const (
	// FlagValue asks for the value of the key whose condition does not hold, unless it is longer
	// than MaxAnswerValue.
	FlagValue = 1 << iota
	// FlagAgain says that the request was sent before.
	FlagAgain
)

// Request is a request of a client.
type Request struct {
	Number     uint64
	Since      int64
	Flags      byte
	Conditions []byte
	Updates    []byte
}

// Size returns the size of a request in wire form.
func (r *Request) Size() int { return RequestSize(len(r.Conditions), len(r.Updates)) }

// RequestSize is Request.Size for conditions and updates of a size.
func RequestSize(conditions, updates int) int {
	return kvmsg.FrameSize(len(keyRequest)) + kvmsg.FrameSize(headSize) + kvmsg.FrameSize(conditions) + kvmsg.FrameSize(updates)
}

// Append appends a request in wire form.
func (r *Request) Append(dst []byte) []byte {
	dst = append(zmtp.AppendHeader(dst, zmtp.FlagMore, len(keyRequest)), keyRequest...)
	dst = zmtp.AppendHeader(dst, zmtp.FlagMore, headSize)
	dst = binary.BigEndian.AppendUint64(dst, r.Number)
	dst = append(binary.BigEndian.AppendUint64(dst, uint64(r.Since)), r.Flags)
	dst = kvmsg.AppendFrame(dst, r.Conditions, kvmsg.FlagMore)
	return kvmsg.AppendFrame(dst, r.Updates, 0)
}

// AppendHead appends what is before the conditions in a request in wire form that Stamp completes. The caller
// appends them, and the frame with the updates.
func AppendHead(dst []byte, flags byte, conditions int) []byte {
	dst = append(dst, prefix...)
	dst = append(dst, make([]byte, headSize-1)...)
	return zmtp.AppendHeader(append(dst, flags), zmtp.FlagMore, conditions)
}

// Stamp completes a request in wire form that was not sent yet: it gets a number, which its updates get,
// too, and says which sequence the client's map has. The updates have UUIDs, whatever they are.
func Stamp(m []byte, mark Mark, number uint64, since int64) {
	head := m[len(prefix):]
	binary.BigEndian.PutUint64(head, number)
	binary.BigEndian.PutUint64(head[8:], uint64(since))
	head[headSize-1] &^= FlagAgain
	id := mark.UUID(number)
	var r Request
	if r.Parse(m) {
		for _, one := range r.Records() {
			copy(one.UUID(), id[:])
		}
	}
}

// prefix is what a request begins with: a short frame, and the header of the next one. A KVSET with
// such a key has another size in its second frame.
const prefix = "\x01\x03" + keyRequest + "\x01\x11"

// IsRequest reports whether a message begins as a request does.
func IsRequest(m []byte) bool { return len(m) > len(prefix) && string(m[:len(prefix)]) == prefix }

// frames are where the last two frames are in a request in wire form.
type frames struct{ conditions, conditionsEnd, updates, end int }

// framesOf finds the frames in a request at the start of b, which may have more messages or a part
// of one behind it. ok is false if there is no whole one.
func framesOf(b []byte) (f frames, ok bool) {
	if !IsRequest(b) {
		return f, false
	}
	const at = len(prefix) + headSize
	if f.conditions, f.conditionsEnd, ok = kvmsg.FrameAt(b, at); !ok || b[at]&kvmsg.FlagMore == 0 {
		return f, false
	}
	f.updates, f.end, ok = kvmsg.FrameAt(b, f.conditionsEnd)
	return f, ok && b[f.conditionsEnd]&kvmsg.FlagMore == 0
}

// SizeOf returns the size of the request at the start of b, which may have more messages or a
// part of one behind it, or 0 if there is no whole one.
func SizeOf(b []byte) (size int) {
	if f, ok := framesOf(b); ok {
		return f.end
	}
	return 0
}

// Again sets FlagAgain in a request in wire form.
func Again(m []byte) { m[len(prefix)+headSize-1] |= FlagAgain }

// Parse sets r to the request in m, of which it then is a part. ok is false if the frames of m
// are not those of a request. What is in them, Check finds out.
func (r *Request) Parse(m zmtp.WireMessage) (ok bool) {
	f, ok := framesOf(m)
	if !ok || f.end != len(m) {
		return false
	}
	head := m[len(prefix):]
	r.Number, r.Since, r.Flags = binary.BigEndian.Uint64(head), int64(binary.BigEndian.Uint64(head[8:])), head[headSize-1]
	r.Conditions, r.Updates = m[f.conditions:f.conditionsEnd:f.conditionsEnd], m[f.updates:f.end]
	return true
}

// Check returns a *kvmsg.MessageError for a request that a server does not judge: one that is
// malformed or too large. maxValue bounds each value, in bytes.
func (r *Request) Check(maxValue int) error {
	if r.Number == 0 || r.Number > numberMask {
		return errNumber
	}
	var c Condition
	n := 0
	for rest, ok := r.Conditions, true; len(rest) > 0; n++ {
		if rest, ok = c.Next(rest); !ok || n == MaxConditions {
			return errConditions
		}
		if err := kvmsg.ValidKey(c.Key); err != nil {
			return err
		}
	}
	updates := 0
	for rest := r.Updates; len(rest) > 0; updates++ {
		size, tag := kvmsg.Scan(rest, kvmsg.FromRequest, maxValue)
		if size == 0 {
			return kvmsg.WhyNot(rest, maxValue)
		}
		one := kvmsg.Record(rest[:size])
		rest = rest[size:]
		if updates == MaxUpdates {
			return errSize
		}
		if n, ok := NumberOf(one); !ok || n != r.Number {
			return errMark
		}
		// The number of those that follow is known at the end; here it must fall by one.
		if more := kvmsg.MoreOf(one, tag); len(rest) == 0 && more != 0 || len(rest) > 0 && (more == 0 || more != moreOf(rest)+1) {
			return errMore
		}
	}
	if updates > 1 && len(r.Updates) > MaxSize {
		return errSize
	}
	return nil
}

// moreOf is kvmsg.MoreOf for the record at the start of b, which was not checked.
func moreOf(b []byte) int {
	size, tag := kvmsg.Scan(b, kvmsg.FromRequest, 0)
	if size == 0 {
		return -1
	}
	return kvmsg.MoreOf(kvmsg.Record(b[:size]), tag)
}

// Records returns the updates of a request that was checked, with where they begin in
// r.Updates.
func (r *Request) Records() iter.Seq2[int, kvmsg.Record] {
	return func(yield func(int, kvmsg.Record) bool) {
		for at := 0; at < len(r.Updates); {
			one := kvmsg.Record(r.Updates[at:])
			size := one.Size()
			if !yield(at, one[:size:size]) {
				return
			}
			at += size
		}
	}
}

// AppendMore appends the property that says how many updates of a transaction follow, if some
// do.
func AppendMore(dst []byte, more int) []byte {
	if more == 0 {
		return dst
	}
	dst = append(append(dst, kvmsg.PropertyMore...), '=')
	return append(strconv.AppendInt(dst, int64(more), 10), '\n')
}

// Errors of Check.
var (
	errNumber     = &kvmsg.MessageError{Reason: kvmsg.ReasonSequence, Detail: "the number of a request is from 1 to 2^62-1"}
	errConditions = &kvmsg.MessageError{Reason: kvmsg.ReasonFrameCount, Detail: "malformed, or too many, conditions"}
	errMark       = &kvmsg.MessageError{Reason: kvmsg.ReasonUUID, Detail: "want the number of the request"}
	errMore       = &kvmsg.MessageError{Reason: kvmsg.ReasonProperties, Detail: "want the number of the updates that follow"}
	errSize       = &kvmsg.MessageError{Reason: kvmsg.ReasonValueTooLarge, Detail: "more than 1024 updates, or 2 MiB of several"}
)
