package ledger

import (
	"encoding/binary"
	"slices"
)

// made is where requests of a client are in the map: those with the numbers from first to last.
// The last update of the last one has the sequence seq, that of the one before the sequence
// before it, and so on. Requests are numbered apart from updates (see package txn).
type made struct {
	first, last uint64
	seq         int64
}

// Make records that a client's request is in the map, its last update with a sequence.
// Requests are recorded in the order of their sequences.
func (o *Clients) Make(id ID, number uint64, seq int64) {
	p := o.use(id)
	p.at = max(p.at, seq-1)
	if n := len(p.made); n > 0 && p.made[n-1].last+1 == number && p.made[n-1].seq+1 == seq {
		p.made[n-1].last, p.made[n-1].seq = number, seq
	} else {
		p.made = append(p.made, made{number, number, seq})
		o.runs++
	}
	o.forgetMade(p)
}

// forgetMade forgets what the client cannot ask for any more, and the least recently used
// clients if there is too much of all.
func (o *Clients) forgetMade(p *Progress) {
	p.newest = max(p.newest, p.made[len(p.made)-1].last)
	i := max(0, len(p.made)-2*Window) // an honest client has at most Window of them
	for i < len(p.made)-1 && p.made[i].last+Window <= p.newest {
		i++
	}
	if i > 0 {
		p.made = slices.Delete(p.made, 0, i)
		o.runs -= i
	}
	for o.runs > maxMade && o.used.Back() != p {
		o.forget(o.used.Back())
	}
}

// Forgot reports whether a client that sent a request when the map had a sequence, or later, may
// have been forgotten since.
func (o *Clients) Forgot(since int64) bool { return o.forgotten >= since }

// MadeAt returns the sequence of the last update of a client's request. ok is false if it is
// not in the map.
func (o *Clients) MadeAt(id ID, number uint64) (seq int64, ok bool) {
	p := o.ByID[id]
	if p == nil {
		return 0, false
	}
	// Numbers rise, but for requests that were sent again after later ones.
	for _, m := range slices.Backward(p.made) {
		if number >= m.first && number <= m.last {
			return m.seq - int64(m.last-number), true
		}
	}
	return 0, false
}

// Requests in wire form: portions of
//
//	id        16 bytes: the client
//	runs      4 bytes, their number, then 24 bytes each: first, last and seq of made
//
// Numbers are big-endian.

const madeSize = 8 + 8 + 8

// MadePortions returns the requests of all clients in wire form.
func (o *Clients) MadePortions() (all [][]byte) {
	var dst []byte
	for p := range o.used.Backward() {
		if len(p.made) == 0 {
			continue
		}
		dst = append(dst, p.id[:]...)
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(p.made)))
		for _, m := range p.made {
			dst = binary.BigEndian.AppendUint64(dst, m.first)
			dst = binary.BigEndian.AppendUint64(dst, m.last)
			dst = binary.BigEndian.AppendUint64(dst, uint64(m.seq))
		}
		if len(dst) > originsPortion {
			all = append(all, dst)
			dst = nil
		}
	}
	if len(dst) > 0 {
		all = append(all, dst)
	}
	return all
}

// AddMade adds the requests of a portion, and returns false
// if it is malformed.
func (o *Clients) AddMade(b []byte) bool {
	for len(b) > 0 {
		const fixed = len(ID{}) + 4
		if len(b) < fixed {
			return false
		}
		n := uint64(binary.BigEndian.Uint32(b[len(ID{}):]))
		p := o.ByID[ID(b)]
		if p == nil {
			p = o.use(ID(b))
		}
		if b = b[fixed:]; n == 0 || uint64(len(b)) < n*madeSize {
			return false
		}
		for ; n > 0; n, b = n-1, b[madeSize:] {
			m := made{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:]), int64(binary.BigEndian.Uint64(b[16:]))}
			if m.first == 0 || m.first > m.last || len(p.made) > 0 && m.seq <= p.made[len(p.made)-1].seq {
				return false
			}
			p.made, p.newest = append(p.made, m), max(p.newest, m.last)
			o.runs++
		}
	}
	return true
}
