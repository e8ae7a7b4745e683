package kvmsg

import "encoding/binary"

// Scan finds the update at the start of b, which may have more messages or a part of one
// behind it, and returns its size and tag, as Inspect does. It returns 0 if there is
// no complete update, or one that is not canonical or not valid: then only Inspect can
// say more.
//
// It does the work of a frame decoder and of Inspect in one pass. Both follow the sizes
// of the same five frames, each of which has to be loaded before the next one is found.
func Scan(b []byte, from Origin, maxValue int) (size int, tag uint64) {
	keyEnd, value, end := scanUsual(b)
	if end == 0 {
		return scanOther(b, from, maxValue)
	}
	if end > len(b) {
		return 0, 0
	}
	key := b[2:keyEnd]
	if key[0] == 'H' || key[0] == 'K' || key[0] == LeasePrefix[0] || hasNUL(key) { // a reserved key, perhaps
		if k, err := checkKey(key, from); err != nil || k != KindUpdate {
			return 0, 0
		}
		if end <= len(b) && IsHidden(key) && !mayHide(key, nil, b[value:end], from) {
			return 0, 0
		}
	}
	if maxValue > 0 && end-value > maxValue {
		return 0, 0
	}
	tag = HashKey(key)
	if value == end {
		tag |= TagDelete
	}
	return end, tag
}

// WhyNot returns why Scan finds no update of a request at the start of b.
func WhyNot(b []byte, maxValue int) error {
	if p, ok := scanFirst(b); ok && p.end <= len(b) {
		b = b[:p.end]
	}
	// A copy, since Inspect changes what is not canonical.
	if _, _, _, err := Inspect(append([]byte(nil), b...), FromRequest, maxValue); err != nil {
		return err
	}
	return errFrameCount // not canonical
}

// scanOther is Scan for messages that scanUsual does not find.
func scanOther(b []byte, from Origin, maxValue int) (size int, tag uint64) {
	p, ok := scanFirst(b)
	if !ok || p.end > len(b) {
		return 0, 0
	}
	key := b[2:p.keyEnd]
	if k, err := checkKey(key, from); err != nil || k != KindUpdate {
		return 0, 0
	}
	valueSize := p.end - p.value
	if maxValue > 0 && valueSize > maxValue {
		return 0, 0
	}
	if props := b[p.props:p.propsEnd]; from != FromServer && (CheckProperties(props) != nil || hasForgery(props, from, valueSize == 0)) {
		return 0, 0
	}
	if IsHidden(key) && !mayHide(key, b[p.props:p.propsEnd], b[p.value:p.end], from) {
		return 0, 0
	}
	return p.end, HashKey(key) | flagsOf(p.propsEnd-p.props, valueSize)
}

// scanUsual is scanFirst for a message with a UUID or none, no properties, and a short
// value. It compares headers, so that the processor predicts the outcome and goes on,
// where scanFirst has to wait for each size before it finds the next one. It returns 0 if
// m does not begin with such a message; end may be beyond the end of m.
//
// The results are not a parts, because a struct of that size is kept in memory.
func scanUsual(m []byte) (keyEnd, value, end int) {
	const (
		none   = FlagMore               // header of an empty frame, as a little-endian number
		id     = FlagMore | UUIDSize<<8 // header of a UUID
		before = 2 + SequenceSize + 2   // bytes from the end of the key to the body of the UUID
	)
	if len(m) < 2 || m[0] != FlagMore || m[1] == 0 {
		return 0, 0, 0
	}
	keyEnd = 2 + int(m[1])
	if keyEnd+before+UUIDSize+4 > len(m) {
		return 0, 0, 0
	}
	head := m[keyEnd:][:before+UUIDSize+4]
	if binary.LittleEndian.Uint16(head) != sequenceHeader {
		return 0, 0, 0
	}
	// The headers of the properties and of the value, which has its size in the last byte.
	last, at := uint32(0), 0
	switch binary.LittleEndian.Uint16(head[2+SequenceSize:]) {
	case id:
		last, at = binary.LittleEndian.Uint32(head[before+UUIDSize:]), before+UUIDSize+4
	case none:
		last, at = binary.LittleEndian.Uint32(head[before:]), before+4
	default:
		return 0, 0, 0
	}
	if last&0xffffff != none {
		return 0, 0, 0
	}
	value = keyEnd + at
	return keyEnd, value, value + int(last>>24)
}
