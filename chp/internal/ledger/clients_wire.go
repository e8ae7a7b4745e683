package ledger

import "encoding/binary"

// The clients in wire form, for the log and for the other server of a pair: in
// portions, each of which begins with
//
//	forgotten   8 bytes: see Clients
//
// followed by clients, the least recently used first:
//
//	id          16 bytes
//	counter     8 bytes
//	at          8 bytes: sequence
//	skips       1 byte, their number, then 17 bytes each, as in APPLIED
//
// Numbers are big-endian.

// Portions returns the clients in wire form. There is at least one portion.
func (o *Clients) Portions() (all [][]byte) {
	begin := func() []byte {
		return binary.BigEndian.AppendUint64(make([]byte, 0, originsPortion+2048), uint64(o.forgotten))
	}
	dst := begin()
	for p := range o.used.Backward() {
		dst = append(dst, p.id[:]...)
		dst = binary.BigEndian.AppendUint64(dst, p.counter)
		dst = binary.BigEndian.AppendUint64(dst, uint64(p.at))
		skips := p.settled()
		dst = append(dst, byte(len(skips)))
		dst = appendSkips(dst, skips)
		if len(dst) > originsPortion {
			all = append(all, dst)
			dst = begin()
		}
	}
	return append(all, dst)
}

// Add adds the clients of a portion, and returns false if the portion is malformed.
func (o *Clients) Add(b []byte) bool {
	if len(b) < 8 {
		return false
	}
	o.forgotten = max(o.forgotten, int64(binary.BigEndian.Uint64(b)))
	for b = b[8:]; len(b) > 0; {
		const fixed = len(ID{}) + 8 + 8 + 1
		if len(b) < fixed {
			return false
		}
		n := int(b[fixed-1])
		if n > maxSkips || len(b) < fixed+n*skipSize {
			return false
		}
		p := o.use(ID(b))
		p.counter = binary.BigEndian.Uint64(b[16:])
		p.ordered = max(p.ordered, p.counter)
		p.at = int64(binary.BigEndian.Uint64(b[24:]))
		p.Skips, _ = parseSkips(nil, b[fixed:fixed+n*skipSize]) // it is as long as it should be
		b = b[fixed+n*skipSize:]
	}
	return true
}
