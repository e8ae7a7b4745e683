package follow

import (
	"fmt"
	"math"
	"slices"

	"clustermap/chp/internal/subtree"
	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
	"clustermap/internal/mutate"
)

// stream checks the order of the KVPUBs of one session: which to apply, and whether one
// is missing. Sequences are comparable within one session only, since a restarted or
// another server may count from anywhere.
//
// Two rules are from RFC 12: sequences increase, and a KVPUB that is not above the last
// KTHXBAI or KVPUB is discarded. With several subtrees each has its own KTHXBAI, and so
// its own cut.
//
// A server of this package numbers its updates without gaps and reports its sequence in
// each HUGZ. A client of the whole map detects a lost update from that: filter and join
// return a *GapError.
//
// The guide's servers number without gaps too, but libzmq drops messages for a slow
// subscriber. Because RFC 12 only requires that sequences increase, a jump at a server
// of another implementation may be its way of counting: the stream stores it in
// missing, and the session decides. Its HUGZ is used only after one had the sequence of
// the last update, since some servers put another number there.
//
// A client of subtrees cannot detect a lost update. A HUGZ of a server of this package says up to
// where it has got all that it wants.
type stream struct {
	requests *subtree.Set // one cut for each
	counted  bool         // the client gets all keys, so a jump is noticed
	ours     bool         // the server is of this package: a jump is a gap

	missing  *GapError // the first jump at a server of another implementation
	hugzTrue bool      // a HUGZ of such a server had the last sequence

	received bool  // a KVPUB has come
	first    int64 // sequence of the first KVPUB
	last     int64 // and of the last one
	hugz     int64 // highest sequence in a HUGZ of a server of this package

	cuts   []int64 // sequence of each request's KTHXBAI; nil until all have arrived
	newest int64   // the highest of cuts
	oldest int64   // the lowest
	behind bool    // cuts is set, and no KVPUB was above newest yet

	stale uint64 // KVPUBs discarded
	beats int    // HUGZs since apply last checked
}

// hugzTag and kthxbaiTag mark a span as a command. A key can have the same tag by
// chance, so the tags are hints only; the key decides.
const (
	hugzTag    = math.MaxUint64
	kthxbaiTag = math.MaxUint64 - 1
)

// isCommand reports whether m, in canonical form, is the command with this key.
func isCommand(m []byte, key string) bool { return string(kvmsg.Record(m).Key()) == key }

// GapError is chp.GapError.
type GapError struct {
	After int64 // the last sequence that arrived
	Next  int64 // the one that showed the gap
}

func (e *GapError) Error() string {
	return fmt.Sprintf("chp: updates between sequences %d and %d are missing", e.After, e.Next)
}

func newStream(requests *subtree.Set, ours bool) *stream {
	return &stream{requests: requests, counted: requests.All(), ours: ours, last: math.MinInt64, hugz: math.MinInt64}
}

// filter returns the spans to apply, in the memory of spans; wire has canonical KVPUBs
// and HUGZ. If it returns an error, it also returns the spans before the fault, and
// must not be called again.
func (s *stream) filter(wire []byte, spans []buf.Span) ([]buf.Span, error) {
	n := 0
	if s.received && !s.behind {
		n = s.inOrder(wire, spans)
	}
	kept := spans[:n]
	for _, span := range spans[n:] {
		m := wire[span.Start:span.End]
		if span.Tag == hugzTag && isCommand(m, kvmsg.KeyHUGZ) {
			s.beats++
			if err := s.heartbeat(m); err != nil {
				return kept, err
			}
			continue
		}
		seq := kvmsg.Record(m).Seq()
		switch {
		case seq <= s.last:
			s.stale++
			continue
		case s.counted && seq != s.last+1 && s.missing == nil:
			if err := s.missed(s.gap(seq)); err != nil {
				return kept, err
			}
		}
		if !s.received {
			s.received, s.first = true, seq
		}
		s.last = seq
		if s.behind {
			if seq > s.newest {
				s.behind = false
			} else if i := s.requests.Find(kvmsg.Record(m).Key()); i >= 0 && seq <= s.cuts[i] {
				s.stale++
				continue
			}
		}
		kept = append(kept, span)
	}
	return kept, nil
}

// inOrder returns the number of leading spans that are KVPUBs in sequence, which is
// nearly always all of them.
func (s *stream) inOrder(wire []byte, spans []buf.Span) int {
	last, n := s.last, 0
	for ; n < len(spans) && spans[n].Tag != hugzTag; n++ {
		seq := kvmsg.Record(wire[spans[n].Start:spans[n].End]).Seq()
		if seq <= last || s.counted && seq != last+1 && s.missing == nil {
			break
		}
		last = seq
	}
	s.last = last
	return n
}

// missed returns a gap at a server of this package, and stores a gap at another one.
func (s *stream) missed(gap *GapError) error {
	switch {
	case gap == nil:
		return nil
	case s.ours:
		return gap
	case s.missing == nil:
		s.missing = gap
	}
	return nil
}

// gap returns the gap that seq, a sequence that does not follow the last one, shows; or
// nil.
func (s *stream) gap(seq int64) *GapError {
	switch {
	case s.received:
		return &GapError{s.last, seq}
	case s.cuts == nil:
		return nil // the first KVPUB, and the cut is not known yet
	case seq > s.cuts[0]+1:
		// The subscription was in force when the snapshot was cut, so the
		// update after the cut should have come first.
		return &GapError{s.cuts[0], seq}
	}
	return nil
}

// heartbeat returns a gap if a HUGZ shows that updates are missing.
func (s *stream) heartbeat(m []byte) error {
	seq := kvmsg.Record(m).Seq()
	if s.ours {
		s.hugz = max(s.hugz, seq)
	}
	switch {
	case !s.counted:
		if s.ours && s.cuts != nil {
			s.last = max(s.last, seq) // the server has published nothing else up to there
			s.behind = s.behind && seq < s.newest
		}
		return nil
	case s.ours:
		return s.tail()
	case s.cuts == nil || seq <= 0:
		return nil
	}
	known := s.sequence()
	switch {
	case seq == known:
		s.hugzTrue = true
	case s.hugzTrue && seq > known:
		return s.missed(&GapError{known, seq})
	}
	return nil
}

// tail returns a gap if the highest HUGZ is above everything that has arrived.
func (s *stream) tail() error {
	known := s.last
	if s.cuts != nil {
		known = max(known, s.newest)
	} else if !s.received {
		return nil // compared when the cut is known
	}
	if s.hugz > known {
		return &GapError{known, s.hugz}
	}
	return nil
}

// known returns the highest sequence that a server of this package has named in a KVPUB or HUGZ.
func (s *stream) known() int64 { return max(s.last, s.hugz) }

// join sets the cuts of the snapshots, one for each request, and returns a gap if the
// KVPUBs received so far do not reach them.
func (s *stream) join(cuts []int64) error {
	s.cuts = cuts
	s.newest, s.oldest = slices.Max(cuts), slices.Min(cuts)
	if s.ours && !s.counted {
		s.last = max(s.last, s.hugz) // see heartbeat
	}
	s.behind = s.last <= s.newest
	if !s.counted {
		return nil
	}
	if s.received && s.first > s.newest+1 {
		return s.missed(&GapError{s.newest, s.first})
	}
	if s.ours {
		return s.tail()
	}
	return nil
}

// covered reports whether the snapshots contain a KVPUB.
func (s *stream) covered(key []byte, seq int64) bool {
	i := s.requests.Find(key)
	return (i < 0 || seq <= s.cuts[i]) && !mutate.MergeStale
}

// sequence returns the sequence up to which the replica has everything: of the last update, or of
// the earliest snapshot.
func (s *stream) sequence() int64 {
	if s.cuts == nil {
		return s.last
	}
	return max(s.last, s.oldest)
}

// complete reports whether the replica has nothing that is above its sequence, either.
func (s *stream) complete() bool { return s.cuts != nil && s.sequence() >= s.newest }
