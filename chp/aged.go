package chp

import (
	"bytes"
	"time"
)

// agedGrowth bounds the bytes that appendAged appends beyond the record's size:
// a fraction of a second, and a longer frame header.
const agedGrowth = 16

// appendAged appends r with the time to live that is left, in milliseconds
// rounded up, in the place of the one it was given. If ttl is 0, r is appended as it
// is.
func appendAged(dst []byte, r record, ttl time.Duration) []byte {
	r = r[:r.size()]
	props := r.props()
	start, end := propertyLine(props, "ttl")
	if ttl == 0 || start == end {
		return append(dst, r...)
	}
	var space [32]byte
	line := appendTTL(space[:0], (ttl + time.Millisecond - 1).Truncate(time.Millisecond))
	at := r.propsAt()
	_, value := frameBounds(r, at)
	dst = append(dst, r[:at]...)
	dst = appendHeader(dst, len(props)-(end-start)+len(line), flagMore)
	dst = append(dst, props[:start]...)
	dst = append(dst, line...)
	dst = append(dst, props[end:]...)
	return append(dst, r[value:]...)
}

// propertyLine returns the bounds of the first line of the property called name,
// with its newline, or two equal numbers if there is none.
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

// appendBare appends r without its UUID and its properties.
func appendBare(dst []byte, r record) []byte {
	size := r.size()
	dst = append(dst, r[:r.keyEnd()+2+sequenceSize]...)
	dst = append(dst, flagMore, 0, flagMore, 0)
	return append(dst, r[size-frameSize(len(r.value())):size]...)
}
