package state

import (
	"cmp"
	"encoding/binary"
	"math/rand/v2"
	"slices"

	"clustermap/internal/mutate"
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
//
// Terms are of a map that both servers have had. One that only one server ever had, because
// it was the first one or has lost its data, is of term 0, however often that server has
// started: so it does not replace the other one, with which it has nothing in common. Its
// stints take the place of terms; of two such maps, the one that was written first counts.
type Reign struct {
	ID   uint64 // the term, and ReignBits that identify the reign
	Last int64
}

const (
	ReignSize = 8 + 8

	// ReignBits is the size of the part after the term. Two servers that do not hear each
	// other can begin the same term, and their reigns must differ. The first bit says that
	// the server took over: it had followed the last active server, and the other one has
	// just started, perhaps with old data. The next one is 0, so that interims can follow.
	// If it took over, tookBits with the lowest bits of its epoch come after that: they tell
	// who took over from whom. The others are random.
	ReignBits   = 24
	reignLow    = 1<<ReignBits - 1
	ReignTook   = 1 << (ReignBits - 1)
	reignRandom = 1<<(ReignBits-2) - 1
	tookBits    = 12
	tookShift   = ReignBits - 2 - tookBits
	tookRandom  = 1<<tookShift - 1

	// In term 0 the first bit is 0, and the next ones are the stint. The last one does not
	// end before both servers have the map. Then come random bits that tell the stints of a map from those of
	// others, and stintLow that identify the reign; the first of those is 0, so that interims
	// can follow.
	stintLow    = 1<<10 - 1
	stintRandom = 1<<9 - 1
	firstStint  = 1 << 18
	stintMap    = firstStint - 1 - stintLow
	lastStint   = ReignTook - firstStint
)

// TermOf returns the term of a reign.
func TermOf(id uint64) uint64 { return id >> ReignBits }

// line returns the part of an id that rises with each reign that is not an interim: the term
// and, in term 0, the stint.
func line(id uint64) uint64 { return id &^ lowBits(id) }

// lowBits returns the bits of an id that identify the reign within its line.
func lowBits(id uint64) uint64 {
	if TermOf(id) == 0 {
		return stintLow
	}
	return reignLow
}

// stintAfter returns the id of a new reign of a map that only one server ever had.
func stintAfter(before uint64) uint64 {
	id := before&^(firstStint-1) + firstStint | rand.Uint64()&stintRandom
	if before < firstStint {
		return id | rand.Uint64()&stintMap
	}
	return id | before&stintMap
}

// isStint reports whether a reign is a stint of a map that only one server has had.
func isStint(id uint64) bool { return id >= firstStint && TermOf(id) == 0 }

// inLastStint reports whether a reign is one of the last stint: all later ones are, until both
// servers have the map, and the sequence tells which one continues the other.
func inLastStint(id uint64) bool { return id >= lastStint && TermOf(id) == 0 }

// reignAfter returns the id of a new reign in which a client's update is accepted, given the id of the
// one before. took is the epoch of a server that took over, else 0. The first term is that of
// the reign in which both servers got the map, also if that begins with a stint.
func reignAfter(before, took uint64) uint64 {
	id := (TermOf(before) + 1) << ReignBits
	if isStint(before) {
		id = 2 << ReignBits
	}
	if took == 0 {
		return id | rand.Uint64()&reignRandom
	}
	return id | ReignTook | took<<tookShift&reignRandom | rand.Uint64()&tookRandom
}

// interimAfter returns the id of a new reign in which no client's update was accepted yet.
func interimAfter(before, took uint64) uint64 {
	room := lowBits(before) &^ before
	switch {
	case room > 0:
	case TermOf(before) > 0:
		return reignAfter(before, took) // after more interims than anybody sees
	case before < lastStint:
		return stintAfter(before)
	default:
		return before
	}
	return before + 1 + rand.Uint64N(max(room/interimShare, 1))
}

// Compare compares the last updates of clients that two servers have. The result
// is above 0 if the first server has updates that the other one lacks, below 0 if it is
// the opposite, and 0 if both have the same. If both lack some of the other's, the later
// term decides; of the same term, the server that took over, and of two that did, the one
// that took over later: it had followed the other one, which may have told no client of an
// update since. Then who began first, because the other one has lost what it had; so it is
// for stints of different maps.
func Compare(a, b Reign) int {
	switch {
	case a.ID == b.ID, a.Last == 0, b.Last == 0:
		return cmp.Compare(a.Last, b.Last)
	case isStint(a.ID) && isStint(b.ID) && (a.ID^b.ID)&stintMap != 0: // different maps
	case line(a.ID) != line(b.ID):
		return cmp.Compare(a.ID, b.ID)
	case inLastStint(a.ID):
		return cmp.Or(cmp.Compare(a.Last, b.Last), cmp.Compare(a.ID, b.ID))
	case (a.ID^b.ID)&ReignTook != 0:
		return cmp.Compare(a.ID&ReignTook, b.ID&ReignTook)
	}
	return cmp.Or(tookLater(a.ID, b.ID), cmp.Compare(b.Last, a.Last), cmp.Compare(a.ID, b.ID))
}

// tookLater compares the epochs with which two servers took over, of two reigns of one
// term. Their difference says which is the later one, though the bits in an id begin
// again at 0. The result is 0 unless both took over.
func tookLater(a, b uint64) int {
	const all = 1<<tookBits - 1
	later := (a>>tookShift - b>>tookShift) & all
	if a&b&ReignTook == 0 || later == 0 {
		return 0
	}
	return cmp.Compare(1<<(tookBits-1), later)
}

// Reigns are the reigns of a map, and the present one. The sequencer's mutex guards them.
type Reigns struct {
	Earlier []Reign // with updates, oldest first
	Newest  Reign   // of the last update

	Present uint64 // the id that the next update gets
	Interim bool   // no client's update was accepted in the present reign
	Shared  bool   // the other server has had this map, as far as this run of the server knows
	took    uint64 // the epoch of the present reign if the server was passive before it, else 0
}

// Begin begins a reign of this server. took is its epoch if it takes over, having been
// passive, else 0.
func (r *Reigns) Begin(took uint64) {
	r.Present, r.Interim, r.took = interimAfter(r.Newest.ID, took), true, took
	if mutate.CountStarts {
		r.Present, r.Interim = took<<ReignBits|rand.Uint64()&reignRandom, false
	}
}

// Count makes the present reign one that counts. It must be called before a client's
// update is accepted.
func (r *Reigns) Count() {
	switch {
	case r.Interim && !r.Shared && TermOf(r.Newest.ID) == 0:
		if r.Newest.ID < lastStint {
			r.Present = stintAfter(r.Newest.ID)
		}
	case r.Interim:
		r.Present = reignAfter(r.Newest.ID, r.took)
	case r.Shared && TermOf(r.Present) == 0: // the other server has got the map since it began
		r.Present = reignAfter(0, r.took)
	}
	r.Interim = false
}

// Accepted returns the last reign in which a client's update was accepted: of the reigns
// with the newest term or stint, the one that is not an interim.
func (r *Reigns) Accepted() Reign {
	last := r.Newest
	if inLastStint(last.ID) {
		return last // an interim cannot be told from others
	}
	for _, before := range slices.Backward(r.Earlier) {
		if line(before.ID) != line(last.ID) {
			break
		}
		last = before
	}
	return last
}

// Advance sets the last update and its reign, which is the present one from then on.
func (r *Reigns) Advance(id uint64, last int64) {
	if id != r.Present {
		r.Present, r.Interim = id, false
	}
	if id != r.Newest.ID && r.Newest.Last > 0 {
		if len(r.Earlier) >= MaxReigns-1 {
			oldest := 0
			if line(r.Earlier[0].ID) == line(id) {
				oldest = 1 // the rest are interims, and this one decides
			}
			r.Earlier = slices.Delete(r.Earlier, oldest, oldest+len(r.Earlier)-(MaxReigns-2))
		}
		r.Earlier = append(r.Earlier, r.Newest)
	}
	r.Newest = Reign{id, last}
}

// History returns the reigns, oldest first.
func (r *Reigns) History() []Reign { return append(slices.Clone(r.Earlier), r.Newest) }

// Set sets the reigns. There must be at least one.
func (r *Reigns) Set(h []Reign) {
	n := len(h) - 1
	r.Earlier, r.Newest = slices.Clone(h[:n]), h[n]
	r.Present, r.Interim = r.Newest.ID, false
}

// Common returns the sequence of the last update that two histories of one map have in
// common, or 0 if it is not known.
func Common(a, b []Reign) int64 {
	for _, mine := range slices.Backward(a) {
		for _, other := range slices.Backward(b) {
			if mine.ID == other.ID {
				return min(mine.Last, other.Last)
			}
		}
	}
	return 0
}

// AppendReigns appends the wire form of a history.
func AppendReigns(dst []byte, h []Reign) []byte {
	for _, r := range h {
		dst = binary.BigEndian.AppendUint64(dst, r.ID)
		dst = binary.BigEndian.AppendUint64(dst, uint64(r.Last))
	}
	return dst
}

// ParseReigns parses a history of at least one reign. It refuses terms and sequences that
// cannot be.
func ParseReigns(b []byte) (h []Reign, ok bool) {
	n := len(b) / ReignSize
	if len(b)%ReignSize != 0 || n == 0 || n > MaxReigns {
		return nil, false
	}
	h = make([]Reign, n)
	for i := range h {
		h[i] = Reign{binary.BigEndian.Uint64(b[i*ReignSize:]), int64(binary.BigEndian.Uint64(b[i*ReignSize+8:]))}
		if !h[i].possible() {
			return nil, false
		}
	}
	return h, true
}

func (r Reign) possible() bool {
	return r.Last >= 0 && r.Last <= maxSequence && TermOf(r.ID) <= maxTerm
}
