package txn

import (
	"bytes"
	"encoding/binary"

	"clustermap/internal/kvmsg"
)

// Kind is the kind of a condition.
type Kind byte

// Kinds of conditions.
const (
	KindAbsent   Kind = iota + 1 // the key does not exist
	KindPresent                  // it exists
	KindSequence                 // its last update has a sequence; 0 means that it does not exist
	KindValue                    // it has a value
)

// Condition is a condition on a key.
//
// In wire form it is the kind, one byte; the size of the key, one byte; the key; and for
// KindSequence 8 bytes, for KindValue 4 bytes with its size and the value. Numbers are big-endian.
type Condition struct {
	Kind     Kind
	Key      []byte
	Sequence int64
	Value    []byte
}

// Append appends a condition in wire form.
func (c *Condition) Append(dst []byte) []byte {
	dst = append(dst, byte(c.Kind), byte(len(c.Key)))
	dst = append(dst, c.Key...)
	switch c.Kind {
	case KindSequence:
		dst = binary.BigEndian.AppendUint64(dst, uint64(c.Sequence))
	case KindValue:
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(c.Value)))
		dst = append(dst, c.Value...)
	}
	return dst
}

// Size returns the size of a condition in wire form.
func (c *Condition) Size() int {
	switch n := 2 + len(c.Key); c.Kind {
	case KindSequence:
		return n + 8
	case KindValue:
		return n + 4 + len(c.Value)
	default:
		return n
	}
}

// Next sets c to the condition at the start of b, of which it then is a part, and returns the
// rest. ok is false if there is none.
func (c *Condition) Next(b []byte) (rest []byte, ok bool) {
	*c = Condition{}
	if len(b) < 2 || len(b) < 2+int(b[1]) {
		return nil, false
	}
	end := 2 + int(b[1])
	c.Kind, c.Key = Kind(b[0]), b[2:end]
	b = b[end:]
	switch c.Kind {
	case KindAbsent, KindPresent:
		return b, true
	case KindSequence:
		if len(b) < 8 {
			return nil, false
		}
		c.Sequence = int64(binary.BigEndian.Uint64(b))
		return b[8:], true
	case KindValue:
		if len(b) < 4 {
			return nil, false
		}
		size := binary.BigEndian.Uint32(b)
		if b = b[4:]; uint64(len(b)) < uint64(size) {
			return nil, false
		}
		c.Value = b[:size]
		return b[size:], true
	}
	return nil, false
}

// Now is the newest update of a key. The zero Now means that the key does not exist.
type Now struct {
	Record   kvmsg.Record // nil if it does not exist
	Sequence int64
}

// Holds reports whether a condition holds.
func (c *Condition) Holds(now Now) bool {
	switch c.Kind {
	case KindAbsent:
		return now.Record == nil
	case KindPresent:
		return now.Record != nil
	case KindSequence:
		return now.Sequence == c.Sequence
	default:
		return now.Record != nil && bytes.Equal(now.Record.Value(), c.Value)
	}
}
