package chp

import "encoding/binary"

// A key-value message has five frames: key, sequence, UUID, properties, value
// (RFC 12). KVSET, KVPUB and KVSYNC differ in nothing else than what their
// sequence means, which is why a server can store and publish the octets that it
// received once it has put the sequence in.
//
// A record is such a message in its canonical wire form: every frame that can
// be short is short. One message has one canonical form, all its offsets follow
// from three length octets, and the sequence is always eight octets at a place
// known from the first length:
//
//	01 klen key | 01 08 seq | 01 ulen uuid | 01 plen props | 00 vlen value
//	                                         03 plen8        02 vlen8
//
// A [Map] has no limit of 255 octets for keys, so the accessors also read a key
// frame in long form; nothing that came from the wire has one.
type record []byte

// Frame flags of ZMTP (RFC 37, framing).
const (
	flagMore = 0x01
	flagLong = 0x02
)

const (
	maxKey       = 255
	uuidSize     = 16
	sequenceSize = 8

	// minRecord is the size of the smallest record: one octet of key, no UUID,
	// no properties, no value.
	minRecord = 3 + 2 + sequenceSize + 2 + 2 + 2
)

// frameBounds returns where the body of the frame that begins at octet at
// begins and ends.
func frameBounds(b []byte, at int) (start, end int) {
	if b[at]&flagLong == 0 {
		return at + 2, at + 2 + int(b[at+1])
	}
	return at + 9, at + 9 + int(binary.BigEndian.Uint64(b[at+1:]))
}

// keyEnd returns the offset of the sequence frame.
func (r record) keyEnd() int {
	_, end := frameBounds(r, 0)
	return end
}

func (r record) key() []byte {
	start, end := frameBounds(r, 0)
	return r[start:end:end]
}

func (r record) seq() int64 {
	return int64(binary.BigEndian.Uint64(r[r.keyEnd()+2:]))
}

func (r record) setSeq(seq int64) {
	binary.BigEndian.PutUint64(r[r.keyEnd()+2:], uint64(seq))
}

func (r record) uuid() []byte {
	start, end := frameBounds(r, r.keyEnd()+2+sequenceSize)
	return r[start:end:end]
}

// propsAt returns the offset of the properties frame.
func (r record) propsAt() int {
	at := r.keyEnd() + 2 + sequenceSize
	return at + 2 + int(r[at+1])
}

func (r record) props() []byte {
	start, end := frameBounds(r, r.propsAt())
	return r[start:end:end]
}

func (r record) value() []byte {
	_, at := frameBounds(r, r.propsAt())
	start, end := frameBounds(r, at)
	return r[start:end:end]
}

// hasKey reports whether the key of r is key.
func (r record) hasKey(key []byte) bool {
	if r[0] != flagMore {
		return string(r.key()) == string(key)
	}
	return int(r[1]) == len(key) && string(r[2:2+len(key)]) == string(key)
}

// valueBehind is value for a record whose key is known to have n octets. It
// compares where value follows: with the usual headers the place of the value is
// known without a chain of loads, each of which needs the one before.
func (r record) valueBehind(n int) []byte {
	const none, id = flagMore, flagMore | uuidSize<<8 // header of an empty frame, of a UUID
	if n > maxKey {
		return r.value()
	}
	at := 2 + n + 2 + sequenceSize
	if binary.LittleEndian.Uint16(r[at:]) == id {
		at += uuidSize
	} else if binary.LittleEndian.Uint16(r[at:]) != none {
		return r.value()
	}
	at += 2
	if binary.LittleEndian.Uint32(r[at:])&0xffffff != none {
		return r.value() // properties, or a long value
	}
	start, end := at+4, at+4+int(r[at+3])
	return r[start:end:end]
}

// size returns the octets of the record that begins r; r may be longer.
func (r record) size() int {
	_, at := frameBounds(r, r.propsAt())
	_, end := frameBounds(r, at)
	return end
}

// sameKey reports whether r, a record that came from the wire, and old have the
// same key, and returns the size of old if so.
//
// The usual case is that old has the same frames in front of its value as r. To
// compare their headers rather than to follow those of old makes the addresses of
// what is read from old known before any of it has come from memory.
func (r record) sameKey(old record) (size int, ok bool) {
	n := 2 + int(r[1])
	if len(old) < n || string(r[:n]) != string(old[:n]) {
		return 0, false
	}
	at := n + 2 + sequenceSize
	if binary.LittleEndian.Uint16(old[at:]) == binary.LittleEndian.Uint16(r[at:]) {
		at += 2 + int(r[at+1])
		if binary.LittleEndian.Uint16(old[at:]) == flagMore { // no properties
			if at += 2; old[at] == 0 {
				return at + 2 + int(old[at+1]), true
			}
		}
	}
	return old.size(), true
}

// frameSize returns the octets on the wire of a frame with a body of n octets.
func frameSize(n int) int {
	if n > 255 {
		return n + 9
	}
	return n + 2
}

// recordSize returns the octets of the record that appendRecord makes.
func recordSize(key, uuid, props, value int) int {
	return frameSize(key) + 2 + sequenceSize + 2 + uuid + frameSize(props) + frameSize(value)
}

// appendRecord appends the canonical record of the given parts. The caller has
// checked them; uuid is empty or 16 octets.
func appendRecord(dst, key []byte, seq int64, uuid, props, value []byte) record {
	dst = appendFrame(dst, key, flagMore)
	dst = append(dst, flagMore, sequenceSize)
	dst = binary.BigEndian.AppendUint64(dst, uint64(seq))
	dst = append(dst, flagMore, byte(len(uuid)))
	dst = append(dst, uuid...)
	dst = appendFrame(dst, props, flagMore)
	return appendFrame(dst, value, 0)
}

func appendFrame(dst, body []byte, flags byte) []byte {
	dst = appendHeader(dst, len(body), flags)
	return append(dst, body...)
}

func appendHeader(dst []byte, size int, flags byte) []byte {
	if size <= 255 {
		return append(dst, flags, byte(size))
	}
	dst = append(dst, flags|flagLong)
	return binary.BigEndian.AppendUint64(dst, uint64(size))
}
