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
	p, ok := scanUsual(b)
	if !ok {
		if p, ok = scanFirst(b); !ok {
			return 0, 0
		}
	}
	if p.end > len(b) {
		return 0, 0
	}
	key := b[2:p.keyEnd]
	if k, err := CheckKey(key, from); err != nil || k != KindUpdate {
		return 0, 0
	}
	valueSize := p.end - p.value
	if maxValue > 0 && valueSize > maxValue {
		return 0, 0
	}
	tag = HashKey(key)
	if p.propsEnd > p.props {
		if from == FromClient && CheckProperties(b[p.props:p.propsEnd]) != nil {
			return 0, 0
		}
		tag |= TagProperties
	}
	if valueSize == 0 {
		tag |= TagDelete
	}
	return p.end, tag
}

// scanUsual is scanFirst for a message with a UUID or none, no properties, and a short
// value. It compares headers, so that the processor predicts the outcome and goes on,
// where scanFirst has to wait for each size before it finds the next one. props and
// propsEnd are equal and have no other meaning.
func scanUsual(m []byte) (p parts, ok bool) {
	const (
		none = FlagMore               // header of an empty frame, as a little-endian number
		id   = FlagMore | UUIDSize<<8 // header of a UUID
	)
	if len(m) < 2 || m[0] != FlagMore || m[1] == 0 {
		return p, false
	}
	at := 2 + int(m[1])
	p.keyEnd = at
	if at+2+SequenceSize+2+UUIDSize+4 > len(m) {
		return p, false
	}
	head := m[at:][:2+SequenceSize+2+UUIDSize+4]
	if binary.LittleEndian.Uint16(head) != sequenceHeader {
		return p, false
	}
	switch binary.LittleEndian.Uint16(head[2+SequenceSize:]) {
	case id:
		if binary.LittleEndian.Uint32(head[2+SequenceSize+2+UUIDSize:])&0xffffff != none {
			return p, false
		}
		at += 2 + SequenceSize + 2 + UUIDSize
	case none:
		if binary.LittleEndian.Uint32(head[2+SequenceSize+2:])&0xffffff != none {
			return p, false
		}
		at += 2 + SequenceSize + 2
	default:
		return p, false
	}
	p.value = at + 4
	p.end = p.value + int(m[at+3])
	return p, true
}
