package kvmsg

import (
	"bytes"
	"encoding/binary"

	"clustermap/internal/buf"
)

// What comes from the wire is inspected once, in the goroutine that has read it:
// here. From then on it is a [Record].

// Origin says who sent a message, and so which rules apply to it.
type Origin uint8

const (
	// FromClient: a KVSET. It is refused unless it is right in every part, for
	// what is accepted here goes to every replica.
	FromClient Origin = iota
	// FromServer: a KVPUB or KVSYNC, of our server or another. Refusing one
	// would let this replica differ from its server, so it is taken if only the
	// key, the sequence and the value can be read: a UUID or properties of
	// wrong form are left out (the guide's servers send a ttl that is an
	// absolute time, PROTOCOLS 4.4). The reserved keys are recognised.
	FromServer
)

// Kind is what a message turned out to be.
type Kind uint8

const (
	kindNone    Kind = iota // not one of ours
	KindUpdate              // a record that sets or deletes a key
	KindHUGZ                // heartbeat of a server
	KindKTHXBAI             // end of a snapshot
)

// The keys of the messages that set no key.
const (
	KeyHUGZ    = "HUGZ"
	KeyKTHXBAI = "KTHXBAI"
)

// Inspect validates msg, the wire bytes of one whole message, and makes it
// canonical in place, which can only make it shorter. It returns the size of the
// record that msg now begins with, and its tag: the hash of the key with the tag
// flags. The kind is KindUpdate, or from a server KindHUGZ or KindKTHXBAI.
// maxValue bounds the bytes of the value; 0 or less is no bound. The error is a
// *MessageError, and msg is then in an undefined state.
//
// It runs in the goroutine that read the message, so that the sequencer has
// nothing left to check.
func Inspect(msg []byte, from Origin, maxValue int) (size int, tag uint64, k Kind, err error) {
	p, ok := scan(msg)
	if !ok {
		if p, err = rewrite(msg, from); err != nil {
			return 0, 0, kindNone, err
		}
		msg = msg[:p.end]
	}
	key := msg[2:p.keyEnd]
	k, err = CheckKey(key, from)
	if err != nil {
		return 0, 0, kindNone, err
	}
	valueSize := p.end - p.value
	if maxValue > 0 && valueSize > maxValue && k == KindUpdate {
		return 0, 0, kindNone, ErrValueTooLarge
	}
	tag = HashKey(key)
	if p.propsEnd > p.props {
		if from == FromClient {
			if err := CheckProperties(msg[p.props:p.propsEnd]); err != nil {
				return 0, 0, kindNone, err
			}
		}
		tag |= TagProperties
	}
	if valueSize == 0 {
		tag |= TagDelete
	}
	return p.end, tag, k, nil
}

// parts are the offsets of a record which Inspect looks at.
type parts struct {
	keyEnd, props, propsEnd, value, end int
}

// sequenceHeader is the header of the sequence frame, 01 08, read little-endian.
const sequenceHeader = FlagMore | SequenceSize<<8

// scan finds the parts of m if m is canonical already, as everything is that a
// sender of our kind or libzmq's puts on the wire. It never reads beyond m.
func scan(m []byte) (p parts, ok bool) {
	p, ok = scanFirst(m)
	return p, ok && p.end == len(m)
}

// scanFirst is scan for the first of several messages. p.end may be beyond m.
func scanFirst(m []byte) (p parts, ok bool) {
	if len(m) < MinRecord || m[0] != FlagMore || m[1] == 0 {
		return p, false
	}
	p.keyEnd = 2 + int(m[1])
	at := p.keyEnd + 2 + SequenceSize
	if at+6 > len(m) || binary.LittleEndian.Uint16(m[p.keyEnd:]) != sequenceHeader {
		return p, false
	}
	if m[at] != FlagMore || m[at+1]&^UUIDSize != 0 {
		return p, false
	}
	at += 2 + int(m[at+1])
	if at+4 > len(m) {
		return p, false
	}
	switch m[at] {
	case FlagMore:
		p.props = at + 2
		p.propsEnd = p.props + int(m[at+1])
	case FlagMore | flagLong:
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
	return p, true
}

// SpansOf finds the records in wire, which are in canonical form, and hashes their
// keys. It reports false if something else is in it.
func SpansOf(wire []byte, spans []buf.Span) ([]buf.Span, bool) {
	for at := 0; at < len(wire); {
		m := wire[at:]
		p, ok := scanFirst(m)
		if !ok || p.end > len(m) {
			return spans, false
		}
		tag := HashKey(m[2:p.keyEnd])
		if p.propsEnd > p.props {
			tag |= TagProperties
		}
		if p.end == p.value {
			tag |= TagDelete
		}
		spans = append(spans, buf.Span{Start: uint32(at), End: uint32(at + p.end), Tag: tag})
		at += p.end
	}
	return spans, true
}

// IsCanonical reports whether m is one whole message in canonical form, as far as
// its frames go.
func IsCanonical(m []byte) bool {
	_, ok := scan(m)
	return ok
}

// longBody returns the bounds of the body of the long frame at byte at, and
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
func rewrite(m []byte, from Origin) (p parts, err error) {
	var bounds [5][2]int
	at := 0
	for i := range bounds {
		more := byte(FlagMore)
		if i == len(bounds)-1 {
			more = 0
		}
		start, end, ok := FrameAt(m, at)
		if !ok || m[at]&FlagMore != more {
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
		return p, ErrKeyEmpty
	case length(0) > MaxKey:
		return p, ErrKeyLong
	case length(1) != SequenceSize:
		return p, ErrSequence
	}
	if n := length(2); n != 0 && n != UUIDSize {
		if from == FromClient {
			return p, errUUID
		}
		bounds[2][1] = bounds[2][0]
	}

	out := m[:0]
	for i, b := range bounds {
		more := byte(FlagMore)
		if i == len(bounds)-1 {
			more = 0
		}
		out = AppendFrame(out, m[b[0]:b[1]], more)
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

// FrameAt is FrameBounds for bytes nobody has checked.
func FrameAt(m []byte, at int) (start, end int, ok bool) {
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

// CheckKey says what kind of message has this key, which is not empty and not too
// long, or why none has.
func CheckKey(key []byte, from Origin) (Kind, error) {
	if hasNUL(key) {
		return kindNone, errKeyNUL
	}
	switch key[0] {
	case 'H':
		if len(key) < len(KeyHUGZ) || string(key[:len(KeyHUGZ)]) != KeyHUGZ {
			break
		}
		if len(key) == len(KeyHUGZ) && from == FromServer {
			return KindHUGZ, nil
		}
		// Also any longer key: it would match the subscription to HUGZ which
		// every client has, whatever subtree it asked for.
		return kindNone, ErrKeyReserved
	case 'K':
		if string(key) != KeyKTHXBAI {
			break
		}
		if from == FromServer {
			return KindKTHXBAI, nil
		}
		return kindNone, ErrKeyReserved
	}
	return KindUpdate, nil
}

// hasNUL says whether a zero byte is in key. It looks at eight bytes at a time:
// v-lows borrows into the highest bit of a byte if that, or one below it, is
// zero, and &^v leaves out those whose highest bit was set anyway. Keys are short,
// so this costs less than the call of a vectorised search.
func hasNUL(key []byte) bool {
	const word, lows, highs = 8, 0x0101010101010101, 0x8080808080808080
	if len(key) < word {
		return bytes.IndexByte(key, 0) >= 0
	}
	var found uint64
	for i := 0; i+word < len(key); i += word {
		v := binary.LittleEndian.Uint64(key[i:])
		found |= (v - lows) &^ v
	}
	v := binary.LittleEndian.Uint64(key[len(key)-word:])
	found |= (v - lows) &^ v
	return found&highs != 0
}
