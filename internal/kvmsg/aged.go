package kvmsg

import (
	"bytes"
	"time"
)

// AgedGrowth bounds the bytes that AppendAged appends beyond the size of the record: eight
// more digits of seconds, since up to MaxTTL can remain of any time to live (a server's
// grace may be longer than it), a fraction of a second, a newline, and a longer frame
// header.
const AgedGrowth = 8 + 4 + 1 + 7

// AppendAged appends r with the remaining time to live, in milliseconds rounded up,
// instead of the one in its properties. If ttl is 0, it appends r unchanged. ttl is at
// most MaxTTL.
func AppendAged(dst []byte, r Record, ttl time.Duration) []byte {
	r = r[:r.Size()]
	props := r.Props()
	start, end := propertyLine(props, "ttl")
	if ttl == 0 || start == end {
		return append(dst, r...)
	}
	var space [32]byte
	line := AppendTTL(space[:0], (ttl + time.Millisecond - 1).Truncate(time.Millisecond))
	at := r.propsAt()
	_, value := FrameBounds(r, at)
	dst = append(dst, r[:at]...)
	dst = appendHeader(dst, len(props)-(end-start)+len(line), FlagMore)
	dst = append(dst, props[:start]...)
	dst = append(dst, line...)
	dst = append(dst, props[end:]...)
	return append(dst, r[value:]...)
}

// propertyLine returns the bounds of the first line of a property, including its
// newline, or 0, 0 if there is none.
func propertyLine(props []byte, name string) (start, end int) {
	for start < len(props) {
		end = len(props)
		if i := bytes.IndexByte(props[start:], '\n'); i >= 0 {
			end = start + i + 1
		}
		if line := props[start:end]; len(line) > len(name) && line[len(name)] == '=' && string(line[:len(name)]) == name {
			return start, end
		}
		start = end
	}
	return 0, 0
}

// AppendBare appends r without UUID and properties.
func AppendBare(dst []byte, r Record) []byte {
	size := r.Size()
	dst = append(dst, r[:r.KeyEnd()+2+SequenceSize]...)
	dst = append(dst, FlagMore, 0, FlagMore, 0)
	return append(dst, r[size-FrameSize(len(r.Value())):size]...)
}
