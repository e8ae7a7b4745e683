package kvmsg

import "encoding/binary"

// A key-value message has five frames: key, sequence, UUID, properties, value (RFC 12).
// KVSET, KVPUB and KVSYNC differ only in the meaning of the sequence. So a server can
// store and publish the bytes that it received after it has set the sequence.
//
// A Record is such a message in its canonical wire form: every frame that can be short
// is short. A message has one canonical form. All offsets follow from the lengths of
// the frames, and the sequence is always eight bytes at an offset that follows from the
// length of the key:
//
//	01 klen key | 01 08 seq | 01 ulen uuid | 01 plen props | 00 vlen value
//	                                         03 plen8        02 vlen8
//
// The Map of package chp does not limit keys to 255 bytes, so the accessors also accept
// a long key frame. Records from the wire have none.
type Record []byte

// Frame flags of ZMTP (RFC 37, framing).
const (
	FlagMore = 0x01
	flagLong = 0x02
)

const (
	UUIDSize     = 16
	SequenceSize = 8

	// MinRecord is the size of the smallest record: a key of one byte, no UUID, no
	// properties, no value.
	MinRecord = 3 + 2 + SequenceSize + 2 + 2 + 2
)

// FrameBounds returns the bounds of the body of the frame at offset at.
func FrameBounds(b []byte, at int) (start, end int) {
	if b[at]&flagLong == 0 {
		return at + 2, at + 2 + int(b[at+1])
	}
	return at + 9, at + 9 + int(binary.BigEndian.Uint64(b[at+1:]))
}

// KeyEnd returns the offset of the sequence frame.
func (r Record) KeyEnd() int {
	_, end := FrameBounds(r, 0)
	return end
}

// Key returns the key. Like the other accessors it returns a part of r.
func (r Record) Key() []byte {
	start, end := FrameBounds(r, 0)
	return r[start:end:end]
}

// Seq returns the sequence.
func (r Record) Seq() int64 {
	return int64(binary.BigEndian.Uint64(r[r.KeyEnd()+2:]))
}

// SetSeq overwrites the sequence.
func (r Record) SetSeq(seq int64) {
	binary.BigEndian.PutUint64(r[r.KeyEnd()+2:], uint64(seq))
}

// UUID returns the UUID, which may be empty.
func (r Record) UUID() []byte {
	start, end := FrameBounds(r, r.KeyEnd()+2+SequenceSize)
	return r[start:end:end]
}

// propsAt returns the offset of the properties frame.
func (r Record) propsAt() int {
	at := r.KeyEnd() + 2 + SequenceSize
	return at + 2 + int(r[at+1])
}

// Props returns the properties; see Property.
func (r Record) Props() []byte {
	start, end := FrameBounds(r, r.propsAt())
	return r[start:end:end]
}

// Value returns the value, which is empty in a deletion.
func (r Record) Value() []byte {
	_, at := FrameBounds(r, r.propsAt())
	start, end := FrameBounds(r, at)
	return r[start:end:end]
}

// HasKey reports whether the key of r is key.
func (r Record) HasKey(key []byte) bool {
	if r[0] != FlagMore {
		return string(r.Key()) == string(key)
	}
	return int(r[1]) == len(key) && string(r[2:2+len(key)]) == string(key)
}

// ValueBehind is Value for a record whose key has n bytes. It compares headers instead
// of following lengths: with the usual headers, the offset of the value does not depend
// on a chain of loads.
func (r Record) ValueBehind(n int) []byte {
	const none, id = FlagMore, FlagMore | UUIDSize<<8 // header of an empty frame, of a UUID
	if n > MaxKey {
		return r.Value()
	}
	at := 2 + n + 2 + SequenceSize
	if binary.LittleEndian.Uint16(r[at:]) == id {
		at += UUIDSize
	} else if binary.LittleEndian.Uint16(r[at:]) != none {
		return r.Value()
	}
	at += 2
	if binary.LittleEndian.Uint32(r[at:])&0xffffff != none {
		return r.Value() // properties, or a long value
	}
	start, end := at+4, at+4+int(r[at+3])
	return r[start:end:end]
}

// ValueOf is HasKey and ValueBehind in one: the value of r, if its key is key. A map
// with many keys waits for memory in each Get, and the processor begins the next one
// meanwhile only if there are few instructions between them.
func (r Record) ValueOf(key []byte) (value []byte, same bool) {
	const none, id = FlagMore, FlagMore | UUIDSize<<8
	n := len(key)
	if n > MaxKey || len(r) < n+MinRecord || binary.LittleEndian.Uint16(r) != uint16(FlagMore|n<<8) {
		if !r.HasKey(key) {
			return nil, false
		}
		return r.ValueBehind(n), true
	}
	if string(r[2:2+n]) != string(key) {
		return nil, false
	}
	rest := r[2+n+2+SequenceSize:]
	switch binary.LittleEndian.Uint16(rest) {
	case id:
		rest = rest[2+UUIDSize:]
	case none:
		rest = rest[2:]
	default:
		return r.Value(), true
	}
	head := binary.LittleEndian.Uint32(rest)
	if head&0xffffff != none {
		return r.Value(), true // properties, or a long value
	}
	end := 4 + head>>24
	return rest[4:end:end], true
}

// Size returns the size of the record at the start of r, which may be longer.
func (r Record) Size() int {
	_, at := FrameBounds(r, r.propsAt())
	_, end := FrameBounds(r, at)
	return end
}

// SameKey reports whether r, a record from the wire, and old have the same key, and if
// so returns the size of old.
//
// Usually old has the same frames before its value as r. Comparing their headers,
// instead of following those of old, means that the addresses to read in old are known
// before any of it has been loaded from memory.
func (r Record) SameKey(old Record) (size int, ok bool) {
	n := 2 + int(r[1])
	if len(old) < n || string(r[:n]) != string(old[:n]) {
		return 0, false
	}
	at := n + 2 + SequenceSize
	if binary.LittleEndian.Uint16(old[at:]) == binary.LittleEndian.Uint16(r[at:]) {
		at += 2 + int(r[at+1])
		if binary.LittleEndian.Uint16(old[at:]) == FlagMore { // no properties
			if at += 2; old[at] == 0 {
				return at + 2 + int(old[at+1]), true
			}
		}
	}
	return old.Size(), true
}

// FrameSize returns the size on the wire of a frame with a body of n bytes.
func FrameSize(n int) int {
	if n > 255 {
		return n + 9
	}
	return n + 2
}

// RecordSize returns the size of the record that AppendRecord appends.
func RecordSize(key, uuid, props, value int) int {
	return FrameSize(key) + 2 + SequenceSize + 2 + uuid + FrameSize(props) + FrameSize(value)
}

// AppendRecord appends the canonical record with the given parts, which the caller has
// checked; uuid is empty or 16 bytes.
func AppendRecord(dst, key []byte, seq int64, uuid, props, value []byte) Record {
	dst = AppendFrame(dst, key, FlagMore)
	dst = append(dst, FlagMore, SequenceSize)
	dst = binary.BigEndian.AppendUint64(dst, uint64(seq))
	dst = append(dst, FlagMore, byte(len(uuid)))
	dst = append(dst, uuid...)
	dst = AppendFrame(dst, props, FlagMore)
	return AppendFrame(dst, value, 0)
}

// AppendUpdate is AppendRecord with a UUID given as two numbers, high first. It is faster
// for a usual update: a short key and value, without properties, for which dst has room.
func AppendUpdate(dst, key []byte, seq int64, high, low uint64, props, value []byte) Record {
	const between = 2 + SequenceSize + 2 + UUIDSize + 2 + 2 // bytes between key and value
	at := len(dst)
	end := at + 2 + len(key) + between + len(value)
	if len(key) > 255 || len(props) > 0 || len(value) > 255 || end > cap(dst) {
		var id [UUIDSize]byte
		binary.BigEndian.PutUint64(id[:], high)
		binary.BigEndian.PutUint64(id[8:], low)
		return AppendRecord(dst, key, seq, id[:], props, value)
	}
	dst = dst[:end]
	m := dst[at:]
	m[0], m[1] = FlagMore, byte(len(key))
	m = m[2:]
	copy(m, key)
	m = m[len(key):]
	copy(m[between:], value)
	m = m[:between]
	binary.LittleEndian.PutUint16(m, sequenceHeader)
	binary.BigEndian.PutUint64(m[2:], uint64(seq))
	binary.LittleEndian.PutUint16(m[10:], FlagMore|UUIDSize<<8)
	binary.BigEndian.PutUint64(m[12:], high)
	binary.BigEndian.PutUint64(m[20:], low)
	binary.LittleEndian.PutUint32(m[28:], FlagMore|uint32(len(value))<<24)
	return dst
}

// AppendFrame appends a frame.
func AppendFrame(dst, body []byte, flags byte) []byte {
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
