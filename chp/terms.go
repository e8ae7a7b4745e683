package chp

import (
	"cmp"
	"encoding/binary"
	"math/rand/v2"
	"slices"
)

// A reign is a server's time as the active one of a pair, and the last update of it that
// a server has. Its id differs from those of all other reigns of the map, and is greater
// than those of all earlier ones: it begins with the term, which rises by one whenever a
// server accepts the first update of a client in a reign. So the order of two servers'
// last updates that clients have made, by term and sequence, tells which map continues
// the other one, as in Raft. If neither does, both servers have accepted updates without
// the other one.
//
// What a server does by itself counts for nothing: how often it has started, and the keys
// that it has expired. Until it accepts an update of a client, its reign is an interim:
// the term is that of the reign before.
type reign struct {
	id   uint64 // the term, and reignBits that identify the reign
	last int64
}

const (
	// maxReigns bounds the reigns that are remembered, including the newest. Reigns without
	// an update are not remembered.
	maxReigns = 256

	reignSize = 8 + 8

	// reignBits is the size of the part after the term. Two servers that do not hear each
	// other can begin the same term, and their reigns must differ. The first bit says that
	// the server took over: it had followed the last active server, and the other one has
	// just started, perhaps with old data. The next one is 0, so that interims can follow.
	// If it took over, tookBits with the lowest bits of its epoch come after that: they tell
	// who took over from whom. The others are random.
	reignBits   = 24
	reignLow    = 1<<reignBits - 1
	reignTook   = 1 << (reignBits - 1)
	reignRandom = 1<<(reignBits-2) - 1
	tookBits    = 12
	tookShift   = reignBits - 2 - tookBits
	tookRandom  = 1<<tookShift - 1

	// interimStep bounds the distance of an interim to the reign before, which is random.
	interimStep = 1 << 16

	// maxTerm and maxSequence bound what another server may say: terms rise by one, and
	// sequences count from the time (firstSequence), so higher ones are damaged or forged.
	// There is as much room above.
	maxTerm     = 1 << 39
	maxSequence = 1 << 62
)

// termOf returns the term of a reign.
func termOf(id uint64) uint64 { return id >> reignBits }

// reignAfter returns the id of a new reign in which a client's update is accepted, given the id of the
// one before. took is the epoch of a server that took over, else 0.
func reignAfter(before, took uint64) uint64 {
	id := (termOf(before) + 1) << reignBits
	if took == 0 {
		return id | rand.Uint64()&reignRandom
	}
	return id | reignTook | took<<tookShift&reignRandom | rand.Uint64()&tookRandom
}

// interimAfter returns the id of a new reign in which no client's update was accepted yet.
func interimAfter(before, took uint64) uint64 {
	room := reignLow - before&reignLow
	if room == 0 {
		return reignAfter(before, took) // after more interims than anybody sees
	}
	return before + 1 + rand.Uint64N(min(room, interimStep))
}

// compareReigns compares the last updates of clients that two servers have. The result
// is above 0 if the first server has updates that the other one lacks, below 0 if it is
// the opposite, and 0 if both have the same. If both lack some of the other's, the later
// term decides; of the same term, the server that took over, and of two that did, the one
// that took over later: it had followed the other one, which may have told no client of an
// update since. Then who began first, because the other one has lost what it had.
func compareReigns(a, b reign) int {
	switch {
	case a.id == b.id, a.last == 0, b.last == 0:
		return cmp.Compare(a.last, b.last)
	case termOf(a.id) != termOf(b.id):
		return cmp.Compare(a.id, b.id)
	case (a.id^b.id)&reignTook != 0:
		return cmp.Compare(a.id&reignTook, b.id&reignTook)
	}
	return cmp.Or(tookLater(a.id, b.id), cmp.Compare(b.last, a.last), cmp.Compare(a.id, b.id))
}

// tookLater compares the epochs with which two servers took over, of two reigns of one
// term. Their difference says which is the later one, though the bits in an id begin
// again at 0. The result is 0 unless both took over.
func tookLater(a, b uint64) int {
	const all = 1<<tookBits - 1
	later := (a>>tookShift - b>>tookShift) & all
	if a&b&reignTook == 0 || later == 0 {
		return 0
	}
	return cmp.Compare(1<<(tookBits-1), later)
}

// reigns are the reigns of a map, and the present one. The sequencer's mutex guards them.
type reigns struct {
	earlier []reign // with updates, oldest first
	newest  reign   // of the last update

	present uint64 // the id that the next update gets
	interim bool   // no client's update was accepted in the present reign
	took    uint64 // the epoch of the present reign if the server was passive before it, else 0
}

// begin begins a reign of this server. took is its epoch if it takes over, having been
// passive, else 0.
func (r *reigns) begin(took uint64) {
	r.present, r.interim, r.took = interimAfter(r.newest.id, took), true, took
}

// count makes the present reign one that counts. It must be called before a client's
// update is accepted.
func (r *reigns) count() {
	if r.interim {
		r.present, r.interim = reignAfter(r.newest.id, r.took), false
	}
}

// accepted returns the last reign in which a client's update was accepted: of the reigns
// with the newest term, the one that is not an interim.
func (r *reigns) accepted() reign {
	last := r.newest
	for _, before := range slices.Backward(r.earlier) {
		if termOf(before.id) != termOf(last.id) {
			break
		}
		last = before
	}
	return last
}

// advance sets the last update and its reign, which is the present one from then on.
func (r *reigns) advance(id uint64, last int64) {
	if id != r.present {
		r.present, r.interim = id, false
	}
	if id != r.newest.id && r.newest.last > 0 {
		if len(r.earlier) >= maxReigns-1 {
			r.earlier = slices.Delete(r.earlier, 0, len(r.earlier)-(maxReigns-2))
		}
		r.earlier = append(r.earlier, r.newest)
	}
	r.newest = reign{id, last}
}

// history returns the reigns, oldest first.
func (r *reigns) history() []reign { return append(slices.Clone(r.earlier), r.newest) }

// set sets the reigns. There must be at least one.
func (r *reigns) set(h []reign) {
	n := len(h) - 1
	r.earlier, r.newest = slices.Clone(h[:n]), h[n]
	r.present, r.interim = r.newest.id, false
}

// common returns the sequence of the last update that two histories of one map have in
// common, or 0 if it is not known.
func common(a, b []reign) int64 {
	for _, mine := range slices.Backward(a) {
		for _, other := range slices.Backward(b) {
			if mine.id == other.id {
				return min(mine.last, other.last)
			}
		}
	}
	return 0
}

// appendReigns appends the wire form of a history.
func appendReigns(dst []byte, h []reign) []byte {
	for _, r := range h {
		dst = binary.BigEndian.AppendUint64(dst, r.id)
		dst = binary.BigEndian.AppendUint64(dst, uint64(r.last))
	}
	return dst
}

// parseReigns parses a history of at least one reign. It refuses terms and sequences that
// cannot be.
func parseReigns(b []byte) (h []reign, ok bool) {
	n := len(b) / reignSize
	if len(b)%reignSize != 0 || n == 0 || n > maxReigns {
		return nil, false
	}
	h = make([]reign, n)
	for i := range h {
		h[i] = reign{binary.BigEndian.Uint64(b[i*reignSize:]), int64(binary.BigEndian.Uint64(b[i*reignSize+8:]))}
		if !h[i].possible() {
			return nil, false
		}
	}
	return h, true
}

func (r reign) possible() bool {
	return r.last >= 0 && r.last <= maxSequence && termOf(r.id) <= maxTerm
}
