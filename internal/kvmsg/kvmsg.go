package kvmsg

import (
	"bytes"
	"encoding/binary"

	"clustermap/internal/buf"
)

// Origin is the kind of sender of a message. It decides which rules apply.
type Origin uint8

const (
	// FromClient: a KVSET. It is refused unless every part is valid, because it goes
	// to every replica. What only servers may say is removed: see PropertyCause.
	FromClient Origin = iota
	// FromServer: a KVPUB or KVSYNC. Refusing one would make the replica differ from
	// its server, so it is accepted if key, sequence and value are valid. A malformed
	// UUID is removed, and properties are not checked: the guide's servers send a ttl
	// that is an absolute time. The reserved keys are recognized.
	FromServer
	// FromRequest: an update of a request (see package txn). It has the rules of FromClient, and
	// may have PropertyMore and PropertyLease.
	FromRequest
)

// Kind is the kind of a message.
type Kind uint8

const (
	kindNone    Kind = iota // invalid
	KindUpdate              // a record that sets or deletes a key
	KindHUGZ                // heartbeat of a server
	KindKTHXBAI             // end of a snapshot
)

// Keys of the messages that are not updates.
const (
	KeyHUGZ    = "HUGZ"
	KeyKTHXBAI = "KTHXBAI"
)

// Inspect validates msg, the wire bytes of one whole message, and makes it canonical in
// place, which never makes it longer. It returns the size of the record at the start of
// msg, and its tag. The kind is KindUpdate or, from a server, also KindHUGZ or
// KindKTHXBAI. maxValue bounds the value in bytes; 0 or less means no bound. An error
// is a *MessageError; the content of msg is then undefined, unless it was canonical.
//
// It runs in the goroutine that read the message, so that the sequencer need not check
// it again.
func Inspect(msg []byte, from Origin, maxValue int) (size int, tag uint64, k Kind, err error) {
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
	if maxValue > 0 && valueSize > maxValue && k == KindUpdate {
		return 0, 0, kindNone, ErrValueTooLarge
	}
	if from != FromServer && p.propsEnd > p.props {
		props := msg[p.props:p.propsEnd]
		if err := CheckProperties(props); err != nil {
			return 0, 0, kindNone, err
		}
		if hasForgery(props, from, valueSize == 0) {
			stripForgeries(msg, &p, from)
		}
	}
	if IsHidden(key) && !mayHide(key, msg[p.props:p.propsEnd], msg[p.value:p.end], from) {
		return 0, 0, kindNone, ErrKeyLease
	}
	return p.end, HashKey(key) | flagsOf(p.propsEnd-p.props, valueSize), k, nil
}

// parts are offsets in a record.
type parts struct {
	keyEnd, props, propsEnd, value, end int
}

// sequenceHeader is the header of the sequence frame, 01 08, as a little-endian number.
const sequenceHeader = FlagMore | SequenceSize<<8

// scan returns the parts of m if it is in canonical form, as senders of this package
// and libzmq send it. It never reads beyond m.
func scan(m []byte) (p parts, ok bool) {
	p, ok = scanFirst(m)
	return p, ok && p.end == len(m)
}

// scanFirst is scan for the first of several messages. p.end may be beyond the end of
// m.
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

// SpansOf finds the canonical records in wire and hashes their keys. It returns false
// if wire has anything else.
func SpansOf(wire []byte, spans []buf.Span) ([]buf.Span, bool) {
	for at := 0; at < len(wire); {
		m := wire[at:]
		p, ok := scanFirst(m)
		if !ok || p.end > len(m) {
			return spans, false
		}
		spans = append(spans, buf.Span{Start: uint32(at), End: uint32(at + p.end), Tag: HashKey(m[2:p.keyEnd]) | flagsOf(p.propsEnd-p.props, p.end-p.value)})
		at += p.end
	}
	return spans, true
}

// SpanAt returns the span of the record at an offset, which is known to be one, and hashes
// its key.
func SpanAt(wire []byte, at uint32) buf.Span {
	m := wire[at:]
	if keyEnd, value, end := scanUsual(m); end > 0 {
		return buf.Span{Start: at, End: at + uint32(end), Tag: HashKey(m[2:keyEnd]) | flagsOf(0, end-value)}
	}
	p, _ := scanFirst(m)
	return buf.Span{Start: at, End: at + uint32(p.end), Tag: HashKey(m[2:p.keyEnd]) | flagsOf(p.propsEnd-p.props, p.end-p.value)}
}

// IsCanonical reports whether the frames of m are one whole message in canonical form.
func IsCanonical(m []byte) bool {
	_, ok := scan(m)
	return ok
}

// longBody returns the bounds of the body of the long frame at offset at. ok reports
// whether the body lies in m and is too long for a short frame.
func longBody(m []byte, at int) (start, end int, ok bool) {
	start, end, ok = FrameAt(m, at)
	return start, end, ok && end-start > 255
}

// rewrite makes m canonical. The bodies move towards its start, each after a header
// that is never longer than before, so no body is overwritten before it has moved.
func rewrite(m []byte, from Origin) (p parts, err error) {
	var bodies [5][]byte
	if !Split(m, bodies[:]) {
		return p, errFrameCount
	}
	switch {
	case len(bodies[0]) == 0:
		return p, ErrKeyEmpty
	case len(bodies[0]) > MaxKey:
		return p, errKeyLong
	case len(bodies[1]) != SequenceSize:
		return p, ErrSequence
	}
	if n := len(bodies[2]); n != 0 && n != UUIDSize {
		if from != FromServer {
			return p, errUUID
		}
		bodies[2] = nil
	}

	out := m[:0]
	for i, body := range bodies {
		more := byte(FlagMore)
		if i == len(bodies)-1 {
			more = 0
		}
		out = AppendFrame(out, body, more)
		start, end := len(out)-len(body), len(out)
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

// Split finds the bodies of the frames of m. It reports false unless m is one whole message
// of as many frames as there are bodies.
func Split(m []byte, bodies [][]byte) bool {
	at := 0
	for i := range bodies {
		start, end, ok := FrameAt(m, at)
		if last := i == len(bodies)-1; !ok || (m[at]&FlagMore == 0) != last {
			return false
		}
		bodies[i], at = m[start:end], end
	}
	return at == len(m)
}

// FrameAt is FrameBounds for bytes that were not checked.
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

// ValidKey returns a *MessageError for a key that servers refuse. Those of leases are valid: see ValidUpdate.
func ValidKey(key []byte) error {
	switch {
	case len(key) == 0:
		return ErrKeyEmpty
	case len(key) > MaxKey:
		return errKeyLong
	}
	_, err := checkKey(key, FromClient)
	return err
}

// checkKey returns the kind of the message with this key, or an error. key is not empty
// and at most MaxKey long.
func checkKey(key []byte, from Origin) (Kind, error) {
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
		// Longer keys too: they would match the subscription to HUGZ, which clients
		// of any subtree have.
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

// hasNUL reports whether key contains a zero byte. It checks eight bytes at a time, in
// usual keys without a loop. Keys are short, so this costs less than calling a vectorized
// search.
func hasNUL(key []byte) bool {
	if n := len(key); n >= word && n <= 2*word {
		return (zeros(binary.LittleEndian.Uint64(key))|zeros(binary.LittleEndian.Uint64(key[n-word:])))&highs != 0
	}
	return hasNULAny(key)
}

func hasNULAny(key []byte) bool {
	if len(key) < word {
		return bytes.IndexByte(key, 0) >= 0
	}
	var found uint64
	for i := 0; i+word < len(key); i += word {
		found |= zeros(binary.LittleEndian.Uint64(key[i:]))
	}
	return (found|zeros(binary.LittleEndian.Uint64(key[len(key)-word:])))&highs != 0
}

const word, lows, highs = 8, 0x0101010101010101, 0x8080808080808080

// zeros returns a value that has at least one of the bits in highs if v has a zero byte:
// v-lows borrows into the highest bit of a byte if that byte, or one below it, is zero,
// and &^v excludes bytes whose highest bit was set before.
func zeros(v uint64) uint64 { return (v - lows) &^ v }
