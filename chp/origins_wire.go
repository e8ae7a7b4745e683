package chp

import "encoding/binary"

// The origins in wire form, for the log and for the other server of a pair: in
// portions, each of which begins with
//
//	forgotten   8 bytes: see origins
//
// followed by clients, the least recently used first:
//
//	id          16 bytes
//	counter     8 bytes
//	at          8 bytes: sequence
//	skips       1 byte, their number, then 17 bytes each, as in APPLIED
//
// Numbers are big-endian.

// originsPortion is the approximate size of a portion, in bytes.
const originsPortion = 64 << 10

// portions returns the origins in wire form. There is at least one portion.
func (o *origins) portions() (all [][]byte) {
	begin := func() []byte {
		return binary.BigEndian.AppendUint64(make([]byte, 0, originsPortion+2048), uint64(o.forgotten))
	}
	dst := begin()
	if o.byID != nil {
		for p := o.used.prev; p != &o.used; p = p.prev {
			dst = append(dst, p.id[:]...)
			dst = binary.BigEndian.AppendUint64(dst, p.counter)
			dst = binary.BigEndian.AppendUint64(dst, uint64(p.at))
			dst = append(dst, byte(len(p.skips)))
			dst = appendSkips(dst, p.skips)
			if len(dst) > originsPortion {
				all = append(all, dst)
				dst = begin()
			}
		}
	}
	return append(all, dst)
}

// add adds the clients of a portion, and returns false if the portion is malformed.
func (o *origins) add(b []byte) bool {
	if len(b) < 8 {
		return false
	}
	o.forgotten = max(o.forgotten, int64(binary.BigEndian.Uint64(b)))
	for b = b[8:]; len(b) > 0; {
		const fixed = len(clientID{}) + 8 + 8 + 1
		if len(b) < fixed {
			return false
		}
		n := int(b[fixed-1])
		if n > maxSkips || len(b) < fixed+n*skipSize {
			return false
		}
		p := o.use(clientID(b))
		p.counter = binary.BigEndian.Uint64(b[16:])
		p.at = int64(binary.BigEndian.Uint64(b[24:]))
		p.skips = nil
		for s := b[fixed : fixed+n*skipSize]; len(s) > 0; s = s[skipSize:] {
			p.skips = append(p.skips, skip{binary.BigEndian.Uint64(s), binary.BigEndian.Uint64(s[8:]), Reason(s[16])})
		}
		b = b[fixed+n*skipSize:]
	}
	return true
}
