package order

import (
	"bytes"

	"clustermap/chp/internal/state"
	"clustermap/chp/internal/txn"
	"clustermap/internal/buf"
	"clustermap/internal/hooks"
	"clustermap/internal/kvmsg"
	"clustermap/internal/mutate"
	"clustermap/internal/timer"
)

// judge is memory for judging requests, which is used again. It has the updates of those that
// are made, which become one entry.
type judge struct {
	spans   []buf.Span
	wire    []byte // that they are in
	newest  recent // of each key among them
	grouped bool   // some belong to a transaction of several
	grants  bool   // some grant leases
	clash   bool   // two keys have one hash: what follows is judged when these are ordered
	room    int64  // by which the map may grow
	use     use    // of the client's share, with the requests
	values  int    // bytes of values that may still be in answers
	request txn.Request
	answer  txn.Answer
}

// recent is a hash table of updates, by the hash of their keys. It is cleared at no cost, and refers
// to no memory: a map costs a request more than the rest of its judgment.
type recent struct {
	slots []recentUpdate // a power of two, at most half of them in use
	count int
	turn  uint32 // slots of former turns are free
}

type recentUpdate struct {
	hash       uint64
	seq        int64
	start, end uint32 // of the record
	turn       uint32
}

func (r *recent) clear() {
	r.count = 0
	if r.turn++; r.turn == 0 {
		clear(r.slots)
		r.turn = 1
	}
}

// slot returns the slot of a hash, or the free one where it belongs. There must be a free one.
func (r *recent) slot(hash uint64) *recentUpdate {
	for i := int(hash); ; i++ {
		if s := &r.slots[i&(len(r.slots)-1)]; s.turn != r.turn || s.hash == hash {
			return s
		}
	}
}

// get returns the update with a hash, or nil.
func (r *recent) get(hash uint64) *recentUpdate {
	if r.count == 0 {
		return nil
	}
	if s := r.slot(hash); s.turn == r.turn {
		return s
	}
	return nil
}

// put adds an update, or replaces the one with its hash.
func (r *recent) put(u recentUpdate) {
	if 2*r.count >= len(r.slots) {
		old := r.slots
		r.slots = make([]recentUpdate, max(64, 2*len(old)))
		for _, s := range old {
			if s.turn == r.turn {
				*r.slot(s.hash) = s
			}
		}
	}
	s := r.slot(u.hash)
	if s.turn != r.turn {
		r.count++
	}
	u.turn = r.turn
	*s = u
}

// ahead is the newest update of a key that is not in the map yet.
type ahead struct {
	record kvmsg.Record // a deletion, too
	seq    int64
}

// now returns the update for a condition.
func (a *ahead) now() txn.Now {
	if len(a.record.Value()) == 0 {
		return txn.Now{}
	}
	return txn.Now{Record: a.record, Sequence: a.seq}
}

// Transact judges requests of a client, which were checked, and orders the updates of those
// whose conditions hold, as one entry. spans are those of the requests in b. It appends their
// answers, which may be sent when w is published, and returns the number of requests that it took.
// If that is not all, the caller must call Room, and Transact again for the others. Requests that
// may have been answered elsewhere since they were sent get no answer; then the connection is
// ended. The values in the answers have at most the bytes that values says; others are left out. One goroutine at a time may call Transact and Accept.
func (q *Sequencer) Transact(b *hooks.Batch, spans []buf.Span, from From, values int, answers []byte) (_ []byte, w Written, done int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.halted != (halted{}) || q.passive && q.o.Cluster {
		return answers, w, 0
	}
	if !q.judges(from) {
		b.Peer().Disconnect(ErrNotActive) // the client sends them again, here or elsewhere
		return answers, q.written(), len(spans)
	}
	answers, done = q.transact(b.Wire(), spans, from, values, answers)
	return answers, q.made(), done
}

// judges reports whether requests that come over a connection are judged. Those that were sent in
// a former term may have been answered elsewhere since. mu must be held.
func (q *Sequencer) judges(from From) bool {
	return !q.passive && (from.Term == q.ends.count || mutate.StaleRequests)
}

// transact is Transact at an active server. mu must be held.
func (q *Sequencer) transact(wire []byte, spans []buf.Span, from From, values int, answers []byte) (_ []byte, done int) {
	if !q.fits(spans, from.By) || !q.held.index() {
		return answers, 0
	}
	if q.o.Cluster && !q.state.Clients.Latest(from.ID, from.Generation) {
		return answers, len(spans) // the client has sent them again since, and may have got another answer
	}
	j := &q.scratch.judge
	q.begin(j, wire, from.Share)
	j.values = values
	for _, span := range spans {
		if len(answers) > mostAnswers {
			break
		}
		if done++; j.request.Parse(wire[span.Start:span.End]) {
			q.judge(j, from, span.End)
			answers = j.answer.Append(answers)
		}
		if j.clash {
			break
		}
	}
	q.make(j, from)
	return answers, done
}

// transactLocal is Transact for a request of this process, which was checked.
func (q *Sequencer) transactLocal(r *txn.Request, from From) (a txn.Answer, w Written, ok bool, err error) {
	if ok, err := q.roomNow(); !ok || err != nil {
		return a, w, false, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	span := buf.Span{End: uint32(len(r.Updates))}
	if ok, err := q.accepts([]buf.Span{span}); !ok || err != nil || !q.held.index() {
		return a, w, false, err
	}
	j := &q.scratch.judge
	q.begin(j, r.Updates, from.Share)
	j.request, j.values = *r, txn.MaxAnswerValue
	q.judge(j, from, span.End)
	a = j.answer
	a.Value = append([]byte(nil), a.Value...)
	q.make(j, from)
	return a, q.made(), true, nil
}

// begin clears j for new requests, which are in wire.
func (q *Sequencer) begin(j *judge, wire []byte, share *Share) {
	j.newest.clear()
	j.wire, j.spans, j.grouped, j.clash, j.room = wire, j.spans[:0], false, false, q.mapRoom()
	j.grants, j.use = false, use{}
	if share != nil {
		j.use = q.used(share)
	}
}

// make orders the updates in j. mu must be held.
func (q *Sequencer) make(j *judge, from From) {
	wire := j.wire
	j.wire = nil
	if len(j.spans) > 0 {
		q.order.reigns.Count()
		e := state.Entry{Head: state.Head{Client: from.ID, At: timer.Now()}, Wire: wire, Spans: j.spans, Grouped: j.grouped}
		if j.grants && q.o.Owners && !q.o.Stamp {
			q.scratch.stamp.stamp(&e, from.By, true)
		}
		q.apply(&e, from.By)
		q.Counted.Updates.Add(uint64(len(j.spans)))
	}
	if cap(j.spans) > keepOwn {
		q.scratch.judge = judge{}
	}
}

// judge judges j.request, whose updates end at an offset of j.wire, sets j.answer, and adds the updates to
// those of j if the request is made. mu must be held.
func (q *Sequencer) judge(j *judge, from From, end uint32) {
	r, a := &j.request, &j.answer
	*a = txn.Answer{Number: r.Number}
	if from.Numbered && r.Flags&txn.FlagAgain != 0 && !mutate.NoRepeatCheck {
		if a.Sequence = q.madeAt(from, r.Number); a.Sequence != 0 {
			q.Counted.Repeated.Add(1)
			return
		}
		if q.state.Clients.Forgot(from.ID, r.Since) {
			a.Status = txn.StatusUnknown
			return
		}
	}
	at := end - uint32(len(r.Updates))
	var span buf.Span // the first update's, whose key is that of a condition nearly always
	var key []byte
	if at < end {
		span = kvmsg.SpanAt(j.wire, at)
		key = kvmsg.Record(j.wire[at:]).Key()
	}
	var c txn.Condition
	for rest := r.Conditions; len(rest) > 0; a.Condition++ {
		rest, _ = c.Next(rest)
		hash := span.Tag &^ kvmsg.TagFlags
		if !bytes.Equal(c.Key, key) {
			hash = kvmsg.HashKey(c.Key)
		}
		if now := q.newest(j, hash, c.Key); !c.Holds(now) && !mutate.IgnoreConditions {
			q.Counted.Conflicts.Add(1)
			a.Status, a.Sequence = txn.StatusConflict, now.Sequence
			if now.Record == nil {
				a.Status, a.Sequence = txn.StatusAbsent, q.order.last+int64(len(j.spans))
			}
			if r.Flags&txn.FlagValue != 0 && now.Record != nil {
				if value := now.Record.Value(); len(value) <= min(j.values, txn.MaxAnswerValue) {
					j.values -= len(value)
					a.Value, a.Has = value, true
				}
			}
			return
		}
	}
	a.Condition = 0
	if err := q.admits(j, from); err != nil {
		q.o.Refused(err)
		a.Status, a.Sequence = txn.StatusRefused, int64(err.Reason)
		return
	}
	first := len(j.spans)
	for at < end {
		if len(j.spans) > first {
			span, key = kvmsg.SpanAt(j.wire, at), kvmsg.Record(j.wire[at:]).Key()
		}
		at = span.End
		j.spans = append(j.spans, span)
		a.Sequence = q.order.last + int64(len(j.spans))
		hash := span.Tag &^ kvmsg.TagFlags
		if before := j.newest.get(hash); before != nil && !j.record(before).HasKey(key) {
			j.clash = true
		}
		j.newest.put(recentUpdate{hash: hash, seq: a.Sequence, start: span.Start, end: span.End})
	}
	j.grouped = j.grouped || len(j.spans) > first+1
	if len(j.spans) == first { // conditions alone: they held after all before
		a.Sequence = q.order.last + int64(first)
	}
}

// record returns one of the updates.
func (j *judge) record(u *recentUpdate) kvmsg.Record { return kvmsg.Record(j.wire[u.start:u.end]) }

// newest returns the newest update of a key with a hash: of those in j, those that are held, and the map. mu
// must be held.
func (q *Sequencer) newest(j *judge, hash uint64, key []byte) txn.Now {
	if u := j.newest.get(hash); u != nil {
		if a := (ahead{j.record(u), u.seq}); a.record.HasKey(key) {
			return a.now()
		}
	}
	if len(q.held.newest) > 0 {
		if a, ok := q.held.newest[hash]; ok && a.record.HasKey(key) {
			return a.now()
		}
	}
	if r := q.state.Store.Newest(hash, key); r != nil {
		return txn.Now{Record: r, Sequence: r.Seq()}
	}
	return txn.Now{}
}

// grows takes the memory that the updates of j.request need from j.room, and reports whether it
// is enough, as fitting does. mu must be held.
func (q *Sequencer) grows(j *judge, by string) bool {
	if q.o.MaxBytes == 0 {
		return true
	}
	room := j.room
	for _, r := range j.request.Records() {
		if key := r.Key(); len(r.Value()) > 0 {
			room -= max(0, int64(len(r)-q.state.Store.SizeOf(kvmsg.HashKey(key), key))+q.grown(1, by))
			if q.o.Owners && !q.o.Stamp && kvmsg.IsHidden(key) {
				room -= int64(kvmsg.StampGrowth(by))
			}
		}
	}
	if room < 0 && room < j.room {
		return false
	}
	j.room = room
	return true
}

// madeAt returns the sequence of a request of a client that is in the map or held, or 0. mu must
// be held.
func (q *Sequencer) madeAt(from From, number uint64) int64 {
	if seq, ok := q.state.Clients.MadeAt(from.ID, number); ok {
		return seq
	}
	return q.held.madeAt(requestOf{from.ID, number})
}
