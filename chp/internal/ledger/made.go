package ledger

import (
	"cmp"
	"encoding/binary"
	"slices"
	"sort"
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
	p.newest = max(p.newest, number)
	if !p.askable(number) {
		return
	}
	before := len(p.made)
	p.make(made{number, number, seq})
	if o.runs += len(p.made) - before; len(p.made) > mostMade {
		o.runs -= p.trim()
	}
	if o.runs > maxMade {
		o.level()
	}
}

// askable reports whether the client may still ask for a request, given its newest one.
func (p *Progress) askable(number uint64) bool { return p.newest < Window || number > p.newest-Window }

// after returns the index of the first run that does not end before a number.
func (p *Progress) after(number uint64) int {
	if n := len(p.made); n == 0 || p.made[n-1].last < number {
		return n // nearly always
	}
	return sort.Search(len(p.made), func(i int) bool { return p.made[i].last >= number })
}

// make adds a run, and returns false if some of its numbers are there already.
func (p *Progress) make(m made) bool {
	i := p.after(m.first)
	if i < len(p.made) && p.made[i].first <= m.last {
		return false
	}
	if i > 0 {
		if before := &p.made[i-1]; before.last+1 == m.first && before.seq+int64(m.last-m.first)+1 == m.seq {
			before.last, before.seq = m.last, m.seq
			return true
		}
	}
	p.made = slices.Insert(p.made, i, m) // in between only if it was sent again after later ones
	return true
}

// trim forgets what the client cannot ask for any more, and returns the number of runs.
func (p *Progress) trim() (n int) {
	for n < len(p.made)-1 && !p.askable(p.made[n].last) {
		n++
	}
	p.made = slices.Delete(p.made, 0, n)
	return n
}

// level forgets the oldest runs of those clients that have most, so that there is room again. No
// client loses any for what others do, as long as it has no more than an equal share. It costs
// a walk over all clients, and then as many requests as a quarter of maxMade may come.
func (o *Clients) level() {
	var having [mostMade + 2]int // clients by the number of their runs
	for p := range o.used.Backward() {
		o.runs -= p.trim()
		having[len(p.made)]++
	}
	most, all, above := 0, 0, len(o.ByID) // the clients with more than most runs
	for ; most < mostMade; most++ {
		above -= having[most]
		if all += above; all > maxMade-maxMade/4 {
			break
		}
	}
	for p := range o.used.Backward() {
		n := max(0, len(p.made)-most)
		for _, m := range p.made[:n] {
			p.lost = max(p.lost, m.seq)
		}
		p.made = slices.Delete(p.made, 0, n)
		o.runs -= n
	}
}

// Forgot reports whether a request that a client sent first when the map had a sequence, or later,
// may have been made and forgotten since.
func (o *Clients) Forgot(id ID, since int64) bool {
	p := o.ByID[id]
	return forgotSince(o.forgotten, since) || p != nil && p.lost > since
}

// MadeAt returns the sequence of the last update of a client's request. ok is false if it is
// not in the map.
func (o *Clients) MadeAt(id ID, number uint64) (seq int64, ok bool) {
	p := o.ByID[id]
	if p == nil {
		return 0, false
	}
	if i := p.after(number); i < len(p.made) && p.made[i].first <= number {
		return p.made[i].seq - int64(p.made[i].last-number), true
	}
	return 0, false
}

// Requests in wire form: portions of
//
//	id        16 bytes: the client
//	runs      4 bytes, their number, then 24 bytes each: first, last and seq of made, by seq.
//	          If first is 0, runs up to seq were forgotten (Progress.lost)
//
// Numbers are big-endian.

const madeSize = 8 + 8 + 8

// MadePortions returns the requests of all clients in wire form.
func (o *Clients) MadePortions() (all [][]byte) {
	var dst []byte
	for p := range o.used.Backward() {
		runs := slices.Clone(p.made)
		if p.lost > 0 {
			runs = append(runs, made{seq: p.lost})
		}
		if len(runs) == 0 {
			continue
		}
		slices.SortFunc(runs, func(a, b made) int { return cmp.Compare(a.seq, b.seq) })
		dst = append(dst, p.id[:]...)
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(runs)))
		for _, m := range runs {
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
		for before := int64(0); n > 0; n, b = n-1, b[madeSize:] {
			m := made{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:]), int64(binary.BigEndian.Uint64(b[16:]))}
			if m.first > m.last || m.seq <= before {
				return false
			}
			if before = m.seq; m.first == 0 {
				p.lost = max(p.lost, m.seq)
				continue
			}
			runs := len(p.made)
			if !p.make(m) {
				return false
			}
			p.newest = max(p.newest, m.last)
			o.runs += len(p.made) - runs
		}
		if o.runs -= p.trim(); o.runs > maxMade {
			o.level()
		}
	}
	return true
}
