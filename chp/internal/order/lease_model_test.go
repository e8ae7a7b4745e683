package order

import (
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"clustermap/chp/internal/live"
	"clustermap/chp/internal/state"
	"clustermap/chp/internal/txn"
	"clustermap/chp/internal/wire"
	"clustermap/internal/kvmsg"
	"clustermap/internal/timer"
)

// leaseModel has what a server may know of leases, beside the server itself.
type leaseModel struct {
	t      *testing.T
	r      *rand.Rand
	q      *Sequencer
	j      *steps
	disk   []state.Entry // before the journal of this run
	peer   *Sequencer    // follows what is committed
	peerJ  *steps
	copied []state.Entry // what it had in the beginning
	from   int           // of the journal, what it had not
	number uint64
	held   bool // updates wait until they are committed
	began  time.Time

	ids     []kvmsg.LeaseID
	ttl     map[kvmsg.LeaseID]time.Duration
	until   map[kvmsg.LeaseID]time.Duration // they last until then, unless revoked
	revoked map[kvmsg.LeaseID]bool
	ended   map[kvmsg.LeaseID]bool   // in this run
	of      map[string]kvmsg.LeaseID // of the newest update of each key; of any order
	script  strings.Builder
}

func (m *leaseModel) say(format string, args ...any) { fmt.Fprintf(&m.script, format+"\n", args...) }

const modelGrace = 2 * time.Second

// start starts a server with what was committed.
func (m *leaseModel) start() {
	s := state.New(1 << 20)
	s.Leases = state.NewLeases()
	for i := range m.disk {
		e := m.disk[i]
		e.At = timer.Now()
		s.Apply(&e)
	}
	m.began = time.Now()
	m.q, m.j = m.server(s)
	m.q.Lead(m.r.Uint64N(2), false, 0, modelGrace)
	m.spare()
	m.join()
}

// server returns a server that is not active.
func (m *leaseModel) server(s *state.State) (*Sequencer, *steps) {
	q, j := new(Sequencer), &steps{atOnce: !m.held}
	q.Init(Options{Live: new(live.Map), State: s, Journal: j, Publisher: nobody{}, Refused: func(error) {}, EarlyTimeout: time.Second})
	return q, j
}

// join lets another server follow, which first copies the map.
func (m *leaseModel) join() {
	s := state.New(1 << 20)
	s.Leases = state.NewLeases()
	m.peer, m.peerJ = m.server(s)
	m.copied, m.from = slices.Concat(m.disk, m.j.appended[:m.j.committed]), m.j.committed
	c := m.peer.NewCopy(1, m.q.state.ID, m.q.state.Terms.History())
	m.records(func(r kvmsg.Record) {
		wire := slices.Clone(r)
		spans, _ := kvmsg.SpansOf(wire, nil)
		c.Records(wire, spans)
	})
	m.peer.Surrender()
	if err := m.peer.Install(m.t.Context(), c); err != nil {
		m.t.Fatal(err)
	}
}

// fail loses the server, with what is not committed; the other one takes over.
func (m *leaseModel) fail() {
	m.say("failover; %d of %d entries are kept", m.j.committed, len(m.j.appended))
	for _, e := range m.j.appended[m.from:m.j.committed] {
		if err := m.peer.Followed(e.Head, e.Wire, e.Spans); err != nil {
			m.t.Fatalf("%v: %+v after %+v\n%s", err, e.Head, m.peer.state.Terms.Newest, &m.script)
		}
	}
	time.Sleep(time.Duration(m.r.IntN(20)) * time.Second)
	m.q, m.j, m.disk = m.peer, m.peerJ, m.copied
	m.j.committed = len(m.j.appended)
	m.q.Lead(m.r.Uint64N(2), false, 0, modelGrace)
	m.taken()
	m.join()
}

func (m *leaseModel) standstill() {
	m.q.stoodStill(&Clock{Grace: modelGrace, Log: slog.New(slog.DiscardHandler)}, time.Second)
	m.spare()
}

// spare says that a grace begins.
func (m *leaseModel) spare() {
	for id := range m.until {
		key := kvmsg.AppendLeaseKey(nil, id)
		if !m.ended[id] && m.q.state.Store.Newest(kvmsg.HashKey(key), key) != nil {
			m.until[id] = max(m.until[id], timer.Now()+modelGrace+m.ttl[id])
		}
	}
}

// crash loses what is not committed, and starts the server again.
func (m *leaseModel) crash() {
	m.disk = append(m.disk, m.j.appended[:m.j.committed]...)
	m.say("crash; %d of %d entries are kept", m.j.committed, len(m.j.appended))
	time.Sleep(time.Duration(m.r.IntN(20)) * time.Second)
	m.start()
	m.taken()
}

// taken forgets what is not in the map of a server that has just begun.
func (m *leaseModel) taken() {
	clear(m.ended) // as far as that was not committed
	m.spare()
	// What the model knows of keys is what the map has.
	clear(m.of)
	m.records(func(r kvmsg.Record) {
		if id, ok := kvmsg.LeaseOf(r, kvmsg.TagProperties); ok {
			m.of[string(r.Key())] = id
		}
	})
}

func (m *leaseModel) records(f func(kvmsg.Record)) {
	c := m.q.state.Cut()
	defer c.Release()
	c.Records(func(r kvmsg.Record) bool { f(r); return true })
}

func (m *leaseModel) commit(all bool) {
	for m.j.committed < len(m.j.appended) && (all || m.r.IntN(3) > 0) {
		m.j.committed++
		m.q.Committed()
	}
}

// set makes an update as a client does.
func (m *leaseModel) set(key, value string, props []byte, conditions []byte) bool {
	m.number++
	uuid := txn.Mark(1).UUID(m.number)
	a, _, ok, err := m.q.transactLocal(&txn.Request{
		Number: m.number, Conditions: conditions, Updates: kvmsg.AppendRecord(nil, []byte(key), 0, uuid[:], props, []byte(value)),
	}, From{})
	if err != nil || !ok {
		m.t.Fatalf("%v, %v\n%s", ok, err, &m.script)
	}
	return a.Status == txn.StatusMade
}

func (m *leaseModel) grant() {
	var id kvmsg.LeaseID
	id[0], id[1] = byte(len(m.ids)), byte(len(m.ids)>>8)
	ttl := time.Duration(1+m.r.IntN(5000)) * time.Millisecond
	m.say("grant %d for %v", len(m.ids), ttl)
	key := kvmsg.AppendLeaseKey(nil, id)
	if m.set(string(key), string(kvmsg.AppendLeaseTime(nil, ttl)), kvmsg.AppendTTL(nil, ttl), nil) {
		m.ids = append(m.ids, id)
		m.ttl[id], m.until[id] = ttl, timer.Now()+ttl
		m.commit(true) // the holder has an answer
	}
}

func (m *leaseModel) attach() {
	id := m.ids[m.r.IntN(len(m.ids))]
	key := fmt.Sprint("k", m.r.IntN(30))
	c := txn.Condition{Kind: txn.KindPresent, Key: kvmsg.AppendLeaseKey(nil, id)}
	if m.set(key, "v", kvmsg.AppendLease(nil, id), c.Append(nil)) {
		m.say("%s is of %x", key, id[:2])
		m.of[key] = id
	}
}

// check looks whether all leases are there that have to be.
func (m *leaseModel) check() {
	for _, id := range m.ids {
		if m.revoked[id] || m.until[id] <= timer.Now() {
			continue
		}
		key := kvmsg.AppendLeaseKey(nil, id)
		if m.q.state.Store.Newest(kvmsg.HashKey(key), key) == nil {
			m.t.Fatalf("%x is gone %v too early\n%s", id[:2], m.until[id]-timer.Now(), &m.script)
		}
	}
	// The index is that of the map.
	leases, want := 0, 0
	m.records(func(r kvmsg.Record) {
		id, ok := kvmsg.LeaseOf(r, kvmsg.TagProperties)
		if _, lease := kvmsg.LeaseOfKey(r.Key()); lease {
			leases++
		}
		if !ok {
			return
		}
		want++
		if of, ok := m.q.state.Leases.Of(kvmsg.HashKey(r.Key()), r.Seq()); !ok || of != id {
			m.t.Fatalf("%s is of %x, and is not known to be\n%s", r.Key(), id[:2], &m.script)
		}
	})
	n, got := m.q.state.Leases.Len()
	if n != leases {
		m.t.Fatalf("%d leases are counted, want %d\n%s", n, leases, &m.script)
	}
	if got < want || got > m.q.state.Store.Len() {
		m.t.Fatalf("%d keys are attached of %d in the map, want %d\n%s", got, m.q.state.Store.Len(), want, &m.script)
	}
}

func (m *leaseModel) expire() {
	entries := len(m.j.appended)
	for more := true; more; {
		more, _ = m.q.Expire(time.Now())
	}
	for _, e := range m.j.appended[entries:] { // each ends leases whole
		group := map[kvmsg.LeaseID]bool{}
		left := 0
		for i, span := range e.Spans {
			r := kvmsg.Record(e.Wire[span.Start:span.End])
			more := kvmsg.MoreOf(r, span.Tag)
			if left > 0 && more != left-1 {
				m.t.Fatalf("update %d of a transaction says that %d follow, want %d\n%s", i, more, left-1, &m.script)
			}
			left = more
			if id, ok := m.of[string(r.Key())]; ok {
				group[id] = true
				delete(m.of, string(r.Key()))
			}
			if id, ok := kvmsg.LeaseOfKey(r.Key()); ok {
				m.say("%x ends", id[:2])
				if !m.revoked[id] && m.until[id] > timer.Now() {
					m.t.Fatalf("%x ends %v too early\n%s", id[:2], m.until[id]-timer.Now(), &m.script)
				}
				delete(group, id)
				m.ended[id] = true
				for key, of := range m.of {
					if of == id {
						m.t.Fatalf("%x ends without %s\n%s", id[:2], key, &m.script)
					}
				}
			}
		}
		for id := range group {
			key := kvmsg.AppendLeaseKey(nil, id)
			if m.q.state.Store.Newest(kvmsg.HashKey(key), key) != nil {
				m.t.Fatalf("keys of %x end without it\n%s", id[:2], &m.script)
			}
		}
	}
}

// TestLeasesEndWithTheirKeysAndNeverEarly: whatever order of grants, renewals, attached keys, other updates,
// revocations, commits, crashes, failovers and standstills, no lease ends before its time, each ends with exactly the
// keys that it then has, and in the end none is left.
func TestLeasesEndWithTheirKeysAndNeverEarly(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			m := &leaseModel{
				t: t, r: rand.New(rand.NewPCG(seed, 31)), held: seed%3 > 0,
				ttl: map[kvmsg.LeaseID]time.Duration{}, until: map[kvmsg.LeaseID]time.Duration{},
				revoked: map[kvmsg.LeaseID]bool{}, ended: map[kvmsg.LeaseID]bool{}, of: map[string]kvmsg.LeaseID{},
			}
			m.say("seed %d", seed)
			m.start()
			m.grant()
			for range 400 {
				switch m.r.IntN(16) {
				case 0:
					m.grant()
				case 1, 2, 3, 4:
					m.attach()
				case 5:
					key := fmt.Sprint("k", m.r.IntN(30))
					m.say("%s is of none", key)
					value := []string{"", "w"}[m.r.IntN(2)]
					m.set(key, value, nil, nil)
					delete(m.of, key)
				case 6, 7, 8:
					id := m.ids[m.r.IntN(len(m.ids))]
					left, _ := m.q.Leases(wire.LeaseRenew, []kvmsg.LeaseID{id}, nil)
					m.say("renew %x: %v", id[:2], left[0])
					if left[0] > 0 {
						m.until[id] = timer.Now() + m.ttl[id]
					} else if !m.revoked[id] && m.until[id] > timer.Now() {
						t.Fatalf("%x is said to be gone %v too early\n%s", id[:2], m.until[id]-timer.Now(), &m.script)
					}
				case 9:
					if m.r.IntN(3) == 0 {
						id := m.ids[m.r.IntN(len(m.ids))]
						m.say("revoke %x", id[:2])
						m.revoked[id] = true
						m.q.Leases(wire.LeaseRevoke, []kvmsg.LeaseID{id}, nil)
					}
				case 10, 11:
					m.commit(m.r.IntN(2) == 0)
				case 12, 13:
					m.expire()
				case 14:
					time.Sleep(time.Duration(m.r.IntN(1500)) * time.Millisecond)
				default:
					switch m.r.IntN(6) {
					case 0:
						m.crash()
					case 1:
						m.say("stop for a while")
						time.Sleep(10 * time.Second)
						m.standstill()
					case 2, 3:
						m.fail()
					}
				}
				m.check()
			}
			for range 20 {
				time.Sleep(modelGrace + 6*time.Second)
				m.expire()
				m.commit(true)
			}
			m.records(func(r kvmsg.Record) {
				_, attached := kvmsg.LeaseOf(r, kvmsg.TagProperties)
				if _, lease := kvmsg.LeaseOfKey(r.Key()); attached || lease {
					t.Errorf("seed %d: in the end %s is left\n%s", seed, r.Key(), &m.script)
				}
			})
			if n := len(slices.Collect(maps.Keys(m.until))); n < 5 {
				t.Logf("seed %d: only %d leases", seed, n)
			}
		})
	}
}

// BenchmarkRenewals: what the server pays for renewing a lease, of 100,000.
func BenchmarkRenewals(b *testing.B) {
	const all = 100_000
	m := newLeases(b, 15*time.Second, all, 0, false)
	ids := m.ids
	left := make([]time.Duration, 0, wire.MaxLeases)
	var question, answer []byte
	read := make([]kvmsg.LeaseID, 0, wire.MaxLeases)
	b.ReportAllocs()
	at := 0
	for n := 0; n < b.N; n += wire.MaxLeases {
		if at+wire.MaxLeases > all {
			at = 0
		}
		question = wire.AppendLeaseQuestion(question[:0], 1, wire.LeaseRenew, ids[at:at+wire.MaxLeases])
		_, kind, read, _ := wire.ParseLeaseQuestion(question, read[:0])
		left, _ = m.q.Leases(kind, read, left[:0])
		answer = wire.AppendLeases(answer[:0], 1, left)
		at += wire.MaxLeases
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)*all/5/1e9*100, "%core")
}
