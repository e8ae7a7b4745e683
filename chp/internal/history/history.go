package history

import (
	"encoding/binary"
	"iter"
	"slices"
	"sort"
	"sync"
	"time"

	"clustermap/internal/buf"
	"clustermap/internal/fifo"
	"clustermap/internal/kvmsg"
)

// Keeper keeps versions of keys. A nil Keeper keeps none. It is safe for concurrent use.
type Keeper struct {
	most  int   // versions of a key
	limit int64 // bytes

	mu     sync.Mutex
	lines  map[string]*line
	order  fifo.Queue[place] // of all versions, the oldest first
	gone   int               // places in order whose version was dropped
	bytes  int64             // memory of lines and versions
	newest int64             // sequence of the last update
}

// line has the versions of one key, oldest first.
type line struct {
	key  string
	kept fifo.Queue[version]
}

// version is an update of a key. Its bytes never change.
type version struct {
	sequence int64
	at       int64 // when it was made: nanoseconds of Unix time
	props    int   // size of the properties, which come first
	bytes    []byte
}

// place is a version in the order of all.
type place struct {
	sequence int64
	line     *line
}

// dropped reports whether the line no longer has the version.
func (p place) dropped() bool {
	return p.line.kept.Len() == 0 || p.sequence < p.line.kept.At(0).sequence
}

func (v *version) size() int64 { return versionBytes + int64(len(v.bytes)) }

// New returns a keeper of at most so many versions of each key, and bytes of all. With less than
// two versions of a key it is nil: the map has the newest one.
func New(most int, limit int64) *Keeper {
	if most < 2 {
		return nil
	}
	return &Keeper{most: most, limit: limit, lines: map[string]*line{}}
}

// Empty returns a keeper with the same bounds that keeps nothing yet.
func (k *Keeper) Empty() *Keeper {
	if k == nil {
		return nil
	}
	return New(k.most, k.limit)
}

// Add keeps updates of the map that were made at a time: wire has them in the form of records,
// one after the other, with the sizes of spans.
func (k *Keeper) Add(wire []byte, spans []buf.Span, at time.Time) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, span := range spans {
		size := span.End - span.Start
		k.add(kvmsg.Record(wire[:size:size]), at)
		wire = wire[size:]
	}
	k.trim()
}

// add keeps an update, unless that is not newer than all others. mu must be held.
func (k *Keeper) add(r kvmsg.Record, at time.Time) {
	sequence := r.Seq()
	if sequence <= k.newest {
		return
	}
	k.newest = sequence
	props, value := r.Props(), r.Value()
	if stamped, _, ok := kvmsg.Properties(props).Stamped(); ok {
		at = stamped
	}
	l := k.lines[string(r.Key())]
	if l == nil {
		l = &line{key: string(r.Key())}
		k.lines[l.key] = l
		k.bytes += lineBytes + int64(len(l.key))
	}
	if l.kept.Len() == k.most {
		k.drop(l)
		k.gone++
	}
	v := version{sequence, numberOf(at), len(props), slices.Concat(props, value)}
	l.kept.Push(v)
	k.bytes += v.size()
	k.order.Push(place{sequence, l})
}

// drop drops the oldest version of a line. mu must be held.
func (k *Keeper) drop(l *line) {
	v := l.kept.Pop()
	k.bytes -= v.size()
}

// trim drops the oldest versions of all while they have too many bytes, and the places of
// dropped ones when they are the most. mu must be held.
func (k *Keeper) trim() {
	for k.bytes > k.limit && k.order.Len() > 0 {
		p := k.order.Pop()
		if p.dropped() {
			k.gone--
			continue
		}
		if k.drop(p.line); p.line.kept.Len() == 0 {
			delete(k.lines, p.line.key)
			k.bytes -= lineBytes + int64(len(p.line.key))
		}
	}
	if k.gone > k.order.Len()/2+slack {
		k.order.DeleteFunc(place.dropped)
		k.gone = 0
	}
}

// Version is an update of a key.
type Version struct {
	Sequence          int64
	At                time.Time // when the server made it; zero if that is not known
	Properties, Value []byte    // without a value it is a deletion; both must not be changed
}

// Versions returns the kept versions of a key, oldest first.
func (k *Keeper) Versions(key []byte) (all []Version) {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.lines[string(key)]
	if l == nil {
		return nil
	}
	for i := range l.kept.Len() {
		all = append(all, l.kept.At(i).version())
	}
	return all
}

func (v *version) version() Version {
	return Version{v.sequence, timeOf(v.at), v.bytes[:v.props:v.props], v.bytes[v.props:]}
}

// numberOf returns a time as a portion has it.
func numberOf(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// timeOf returns the time of a number in a portion.
func timeOf(at int64) (t time.Time) {
	if at != 0 {
		t = time.Unix(0, at)
	}
	return t
}

// Bytes returns the memory of all versions.
func (k *Keeper) Bytes() int64 {
	if k == nil {
		return 0
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.bytes
}

// A portion of versions is their number, 4 bytes; when each was made, 8 bytes, nanoseconds of
// Unix time or 0; and their records without UUIDs. Numbers are big-endian.

// portion is a portion while it is made.
type portion struct {
	times, records []byte
}

func (p *portion) add(key []byte, v *Version) {
	p.times = binary.BigEndian.AppendUint64(p.times, uint64(numberOf(v.At)))
	p.records = kvmsg.AppendRecord(p.records, key, v.Sequence, nil, v.Properties, v.Value)
}

func (p *portion) append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(p.times)/8))
	return append(append(dst, p.times...), p.records...)
}

// AppendVersions appends a portion of the versions of one key: all, or the first ones that have
// about so many bytes. It returns how many it has.
func AppendVersions(dst, key []byte, all []Version, size int) (_ []byte, n int) {
	var p portion
	for n < len(all) && (n == 0 || len(p.records)+len(all[n].Properties)+len(all[n].Value) <= size) {
		p.add(key, &all[n])
		n++
	}
	return p.append(dst), n
}

// Parse parses a portion: records, and when each was made.
func Parse(body []byte) (records []kvmsg.Record, at []time.Time, ok bool) {
	if len(body) < 4 {
		return nil, nil, false
	}
	n := int64(binary.BigEndian.Uint32(body))
	if body = body[4:]; n > int64(len(body))/8 {
		return nil, nil, false
	}
	times, wire := body[:8*n], body[8*n:]
	spans, ok := kvmsg.SpansOf(wire, nil)
	if !ok || int64(len(spans)) != n {
		return nil, nil, false
	}
	for i, span := range spans {
		records = append(records, wire[span.Start:span.End:span.End])
		at = append(at, timeOf(int64(binary.BigEndian.Uint64(times[8*i:]))))
	}
	return records, at, true
}

// Portions returns all versions up to a sequence, in portions of about so many bytes. A version
// that is dropped meanwhile may be missing: newer ones have taken its place, here and wherever
// they follow the portions.
func (k *Keeper) Portions(upto int64, size int) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if k == nil {
			return
		}
		var body []byte
		for after, more := int64(-1), true; more; {
			if body, after, more = k.portion(body[:0], after, upto, size); len(body) > 0 && !yield(body) {
				return
			}
		}
	}
}

// portion appends a portion of the versions between two sequences. It returns the sequence of the
// last one, and whether there are more.
func (k *Keeper) portion(dst []byte, after, upto int64, size int) (_ []byte, last int64, more bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var p portion
	i := sort.Search(k.order.Len(), func(i int) bool { return k.order.At(i).sequence > after })
	for ; i < k.order.Len() && len(p.records) < size; i++ {
		at := *k.order.At(i)
		if at.sequence > upto {
			break
		}
		after, more = at.sequence, true
		if at.dropped() {
			continue
		}
		kept := &at.line.kept
		v := kept.At(sort.Search(kept.Len(), func(i int) bool { return kept.At(i).sequence >= at.sequence })).version()
		p.add([]byte(at.line.key), &v)
	}
	if len(p.records) == 0 {
		return dst, after, more
	}
	return p.append(dst), after, more
}

// Restore keeps the versions of a portion. It reports whether that is one; a nil Keeper checks it,
// too.
func (k *Keeper) Restore(body []byte) bool {
	records, at, ok := Parse(body)
	if !ok || k == nil {
		return ok
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, r := range records {
		if len(r.Key()) == 0 || len(r.Key()) > kvmsg.MaxKey {
			return false
		}
		k.add(r, at[i])
	}
	k.trim()
	return true
}
