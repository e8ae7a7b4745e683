package chp

import (
	"bytes"
	"encoding/binary"
)

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
	if len(old) < n || !equal(r[:n], old[:n]) {
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

// equal compares a and b, of the same length, eight octets at a time: for keys
// that costs less than the call which a comparison of strings compiles to.
func equal(a, b []byte) bool {
	const word = 8
	if len(a) < word || len(a) != len(b) {
		return string(a) == string(b)
	}
	for i := 0; i+word < len(a); i += word {
		if binary.LittleEndian.Uint64(a[i:]) != binary.LittleEndian.Uint64(b[i:]) {
			return false
		}
	}
	end := len(a) - word
	return binary.LittleEndian.Uint64(a[end:]) == binary.LittleEndian.Uint64(b[end:])
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

// origin says who sent a message, and so which rules apply to it.
type origin uint8

const (
	// fromClient: a KVSET. It is refused unless it is right in every part, for
	// what is accepted here goes to every replica.
	fromClient origin = iota
	// fromServer: a KVPUB or KVSYNC, of our server or another. Refusing one
	// would let this replica differ from its server, so it is taken if only the
	// key, the sequence and the value can be read: a UUID or properties of
	// wrong form are left out (the guide's servers send a ttl that is an
	// absolute time, PROTOCOLS 4.4). The reserved keys are recognised.
	fromServer
)

// kind is what a message turned out to be.
type kind uint8

const (
	kindNone    kind = iota // not one of ours
	kindUpdate              // a record that sets or deletes a key
	kindHUGZ                // heartbeat of a server
	kindKTHXBAI             // end of a snapshot
)

const (
	keyHUGZ    = "HUGZ"
	keyKTHXBAI = "KTHXBAI"
)

// inspect validates msg, the wire octets of one whole message, and makes it
// canonical in place, which can only make it shorter. It returns the size of the
// record that msg now begins with, and its tag: the hash of the key with the tag
// flags. The kind is kindUpdate, or from a server kindHUGZ or kindKTHXBAI.
// maxValue bounds the octets of the value; 0 or less is no bound. The error is a
// *MessageError, and msg is then in an undefined state.
//
// It runs in the goroutine that read the message, so that the sequencer has
// nothing left to check.
func inspect(msg []byte, from origin, maxValue int) (size int, tag uint64, k kind, err error) {
	p, ok := scan(msg)
	if !ok {
		if p, err = rewrite(msg, from); err != nil {
			return 0, 0, kindNone, err
		}
		msg = msg[:p.end]
	}
	key := msg[2:p.keyEnd]
	k, err = checkKey(key, from)
	if err != nil {
		return 0, 0, kindNone, err
	}
	valueSize := p.end - p.value
	if maxValue > 0 && valueSize > maxValue && k == kindUpdate {
		return 0, 0, kindNone, errValueTooLarge
	}
	tag = hashKey(key)
	if p.propsEnd > p.props {
		if from == fromClient {
			if err := checkProperties(msg[p.props:p.propsEnd]); err != nil {
				return 0, 0, kindNone, err
			}
		}
		tag |= tagProperties
	}
	if valueSize == 0 {
		tag |= tagDelete
	}
	return p.end, tag, k, nil
}

// parts are the offsets of a record which inspect looks at.
type parts struct {
	keyEnd, props, propsEnd, value, end int
}

// sequenceHeader is the header of the sequence frame, 01 08, read little-endian.
const sequenceHeader = flagMore | sequenceSize<<8

// scan finds the parts of m if m is canonical already, as everything is that a
// sender of our kind or libzmq's puts on the wire. It never reads beyond m.
func scan(m []byte) (p parts, ok bool) {
	if len(m) < minRecord || m[0] != flagMore || m[1] == 0 {
		return p, false
	}
	p.keyEnd = 2 + int(m[1])
	at := p.keyEnd + 2 + sequenceSize
	if at+6 > len(m) || binary.LittleEndian.Uint16(m[p.keyEnd:]) != sequenceHeader {
		return p, false
	}
	if m[at] != flagMore || m[at+1]&^uuidSize != 0 {
		return p, false
	}
	at += 2 + int(m[at+1])
	if at+4 > len(m) {
		return p, false
	}
	switch m[at] {
	case flagMore:
		p.props = at + 2
		p.propsEnd = p.props + int(m[at+1])
	case flagMore | flagLong:
		if p.props, p.propsEnd, ok = longBody(m, at); !ok {
			return p, false
		}
	default:
		return p, false
	}
	at = p.propsEnd
	if at+2 > len(m) {
		return p, false
	}
	switch m[at] {
	case 0:
		p.value = at + 2
		p.end = p.value + int(m[at+1])
	case flagLong:
		if p.value, p.end, ok = longBody(m, at); !ok {
			return p, false
		}
	default:
		return p, false
	}
	return p, p.end == len(m)
}

// longBody returns the bounds of the body of the long frame at octet at, and
// whether it lies in m and is too long for a short frame.
func longBody(m []byte, at int) (start, end int, ok bool) {
	start = at + 9
	if start > len(m) {
		return 0, 0, false
	}
	size := binary.BigEndian.Uint64(m[at+1:])
	if size <= 255 || size > uint64(len(m)-start) {
		return 0, 0, false
	}
	return start, start + int(size), true
}

// rewrite makes m canonical: the bodies move towards its start, each behind a
// header that is never longer than the one it had, so that no body is
// overwritten before it has been moved.
func rewrite(m []byte, from origin) (p parts, err error) {
	var bounds [5][2]int
	at := 0
	for i := range bounds {
		more := byte(flagMore)
		if i == len(bounds)-1 {
			more = 0
		}
		start, end, ok := frameAt(m, at)
		if !ok || m[at]&flagMore != more {
			return p, errFrameCount
		}
		bounds[i] = [2]int{start, end}
		at = end
	}
	if at != len(m) {
		return p, errFrameCount
	}
	length := func(i int) int { return bounds[i][1] - bounds[i][0] }
	switch {
	case length(0) == 0:
		return p, errKeyEmpty
	case length(0) > maxKey:
		return p, errKeyLong
	case length(1) != sequenceSize:
		return p, errSequence
	}
	if n := length(2); n != 0 && n != uuidSize {
		if from == fromClient {
			return p, errUUID
		}
		bounds[2][1] = bounds[2][0]
	}

	out := m[:0]
	for i, b := range bounds {
		more := byte(flagMore)
		if i == len(bounds)-1 {
			more = 0
		}
		out = appendFrame(out, m[b[0]:b[1]], more)
		start, end := len(out)-length(i), len(out)
		switch i {
		case 0:
			p.keyEnd = end
		case 3:
			p.props, p.propsEnd = start, end
		case 4:
			p.value, p.end = start, end
		}
	}
	return p, nil
}

// frameAt is frameBounds for octets nobody has checked.
func frameAt(m []byte, at int) (start, end int, ok bool) {
	if at+2 > len(m) {
		return 0, 0, false
	}
	if m[at]&flagLong == 0 {
		start, end = at+2, at+2+int(m[at+1])
		return start, end, end <= len(m)
	}
	start = at + 9
	if start > len(m) {
		return 0, 0, false
	}
	size := binary.BigEndian.Uint64(m[at+1:])
	if size > uint64(len(m)-start) {
		return 0, 0, false
	}
	return start, start + int(size), true
}

// checkKey says what kind of message has this key, which is not empty and not too
// long, or why none has.
func checkKey(key []byte, from origin) (kind, error) {
	if bytes.IndexByte(key, 0) >= 0 {
		return kindNone, errKeyNUL
	}
	switch key[0] {
	case 'H':
		if len(key) < len(keyHUGZ) || string(key[:len(keyHUGZ)]) != keyHUGZ {
			break
		}
		if len(key) == len(keyHUGZ) && from == fromServer {
			return kindHUGZ, nil
		}
		// Also any longer key: it would match the subscription to HUGZ which
		// every client has, whatever subtree it asked for.
		return kindNone, errKeyReserved
	case 'K':
		if string(key) != keyKTHXBAI {
			break
		}
		if from == fromServer {
			return kindKTHXBAI, nil
		}
		return kindNone, errKeyReserved
	}
	return kindUpdate, nil
}
