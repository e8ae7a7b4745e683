package order

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"clustermap/chp/internal/txn"
	"clustermap/chp/internal/wire"
	"clustermap/internal/kvmsg"
	"clustermap/internal/testenv"
	"clustermap/internal/timer"
)

// newLeases returns a server with leases, of which each has some keys.
func newLeases(t testing.TB, ttl time.Duration, leases, keys int, held bool) *leaseModel {
	t.Helper()
	m := &leaseModel{r: rand.New(rand.NewPCG(1, 1)), held: held}
	if m.t, _ = t.(*testing.T); m.t == nil {
		m.t = new(testing.T)
	}
	m.start()
	value, props := kvmsg.AppendLeaseTime(nil, ttl), kvmsg.AppendTTL(nil, ttl)
	for i := range leases {
		var id kvmsg.LeaseID
		for j := range id {
			id[j] = byte(m.r.Uint32())
		}
		m.ids = append(m.ids, id)
		m.set(string(kvmsg.AppendLeaseKey(nil, id)), string(value), props, nil)
		for n := range keys {
			m.set(fmt.Sprintf("/%d/%d", i, n), "v", kvmsg.AppendLease(nil, id), nil)
		}
	}
	m.commit(true)
	return m
}

// Renewing leases, of which others have as much time left as they want, does not allocate.
func TestRenewalsDoNotAllocate(t *testing.T) {
	m := newLeases(t, 15*time.Second, 2*wire.MaxLeases, 1, false)
	var question, answer []byte
	var ids []kvmsg.LeaseID
	var left []time.Duration
	at := 0
	renew := func() {
		question = wire.AppendLeaseQuestion(question[:0], 1, wire.LeaseRenew, m.ids[at:at+wire.MaxLeases])
		at = wire.MaxLeases - at
		_, kind, read, ok := wire.ParseLeaseQuestion(question, ids[:0])
		ids = read
		if !ok {
			t.Fatal("the question is malformed")
		}
		left, ok = m.q.Leases(kind, ids, left[:0])
		if answer = wire.AppendLeases(answer[:0], 1, left); !ok || left[0] != 15*time.Second {
			t.Fatalf("%v, %v", left[0], ok)
		}
	}
	if n := testenv.Allocs(10, 100, renew); n > 0 {
		t.Errorf("%v allocations for %d leases", n, wire.MaxLeases)
	}
}

// A key is attached to a lease that is there only, whatever a client sends.
func TestKeyIsAttachedToALeaseThatIsThere(t *testing.T) {
	m := newLeases(t, time.Minute, 1, 1, false)
	attach := func(lease string) txn.Answer {
		t.Helper()
		m.number++
		uuid := txn.Mark(1).UUID(m.number)
		props := []byte(kvmsg.PropertyLease + "=" + lease + "\n")
		a, _, ok, err := m.q.transactLocal(&txn.Request{
			Number: m.number, Updates: kvmsg.AppendRecord(nil, []byte("/k"), 0, uuid[:], props, []byte("v")),
		}, From{})
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		return a
	}
	own := string(kvmsg.AppendLeaseKey(nil, m.ids[0])[len(kvmsg.LeasePrefix):])
	for _, lease := range []string{"00000000000000000000000000000000", "", "x", own + "0", own[:31] + "X"} {
		if a := attach(lease); a.Status != txn.StatusRefused || a.Sequence != int64(kvmsg.ReasonProperties) {
			t.Errorf("%q: %+v", lease, a)
		}
	}
	if m.q.state.Store.Len() != 2 {
		t.Errorf("%d keys", m.q.state.Store.Len())
	}
	if a := attach(own); a.Status != txn.StatusMade {
		t.Errorf("%+v", a)
	}
	// Its end has begun, and is not in the map yet.
	m.j.atOnce = false
	m.q.Leases(wire.LeaseRevoke, m.ids, nil)
	m.q.Expire(time.Now())
	if a := attach(own); a.Status != txn.StatusRefused {
		t.Errorf("%+v", a)
	}
}

// A transaction that deletes a lease, and then attaches a key to it, is refused: the key would never end. In the other
// order the key ends with the lease.
func TestKeyIsAttachedToALeaseThatEnds(t *testing.T) {
	for _, deletedFirst := range []bool{true, false} {
		m := newLeases(t, time.Minute, 1, 0, false)
		m.number++
		uuid := txn.Mark(1).UUID(m.number)
		own, attach := kvmsg.AppendLeaseKey(nil, m.ids[0]), kvmsg.AppendLease(nil, m.ids[0])
		var updates []byte
		if deletedFirst {
			updates = kvmsg.AppendRecord(updates, own, 0, uuid[:], txn.AppendMore(nil, 1), nil)
			updates = kvmsg.AppendRecord(updates, []byte("/k"), 0, uuid[:], attach, []byte("v"))
		} else {
			updates = kvmsg.AppendRecord(updates, []byte("/k"), 0, uuid[:], txn.AppendMore(attach, 1), []byte("v"))
			updates = kvmsg.AppendRecord(updates, own, 0, uuid[:], nil, nil)
		}
		a, _, ok, err := m.q.transactLocal(&txn.Request{Number: m.number, Updates: updates}, From{})
		if !ok || err != nil || (a.Status == txn.StatusRefused) != deletedFirst {
			t.Errorf("the lease is deleted first: %v; %+v, %v, %v", deletedFirst, a, ok, err)
		}
		m.q.Leases(wire.LeaseRevoke, m.ids, nil)
		m.q.Expire(time.Now())
		if n := m.q.state.Store.Len(); n != 0 {
			t.Errorf("the lease is deleted first: %v; %d keys are left", deletedFirst, n)
		}
	}
}

// The number of leases is bounded, and those that have ended do not count.
func TestMostLeases(t *testing.T) {
	m := newLeases(t, time.Minute, 2, 0, false)
	m.q.state.Leases.Most = 3
	grant := func(n byte) bool {
		return m.set(string(kvmsg.AppendLeaseKey(nil, kvmsg.LeaseID{n})), "60", []byte("ttl=60\n"), nil)
	}
	if !grant(1) || grant(2) {
		t.Error("the bound is not three")
	}
	m.q.Leases(wire.LeaseRevoke, m.ids, nil)
	m.q.Expire(time.Now())
	if !grant(2) || !grant(3) || grant(4) {
		t.Error("the bound is not three when two have ended")
	}
}

// Leases that end together do so in portions, and a lease with more keys than a transaction in several.
func TestLeasesEndInPortions(t *testing.T) {
	for what, test := range map[string]struct {
		leases, keys int
		held         bool
	}{
		"many leases":                  {10_000, 1, false},
		"many keys":                    {1, 20_000, false},
		"many leases, before a commit": {10_000, 1, true},
		"many keys, before a commit":   {1, 20_000, true},
		"many leases without keys":     {10_000, 0, true},
	} {
		t.Run(what, func(t *testing.T) {
			m := newLeases(t, time.Hour, test.leases, test.keys, test.held)
			entries, sequence := len(m.j.appended), m.q.order.last
			m.q.Leases(wire.LeaseRevoke, m.ids, nil)
			portions, largest := 0, 0
			for more := true; more; portions++ {
				var size int
				more, size = m.q.Expire(time.Now())
				largest = max(largest, size)
				if left, _ := m.q.Leases(wire.LeaseLook, m.ids[:1], nil); more && test.leases == 1 && left[0] != wire.LeaseEnding {
					t.Fatalf("a lease of which keys are left is said to be gone: %v", left[0])
				}
			}
			if most := expireBytes + txn.MaxUpdates*100; largest > most {
				t.Errorf("a portion has %d bytes, at most are %d", largest, most)
			}
			for _, e := range m.j.appended[entries:] {
				if n := len(e.Spans); n > expirePortion+txn.MaxUpdates {
					t.Errorf("a portion has %d updates", n)
				}
			}
			all := test.leases * (1 + test.keys)
			if n := m.q.order.last - sequence; n != int64(all) {
				t.Errorf("%d updates, want %d", n, all)
			}
			if portions < all/(expirePortion+txn.MaxUpdates) || portions > all/100 {
				t.Errorf("%d portions", portions)
			}
			m.commit(true)
			for range 3 { // what is looked at again is there no more
				m.q.Expire(time.Now().Add(time.Hour))
			}
			if leases, keys := m.q.state.Leases.Len(); leases != 0 || keys != 0 || m.q.state.Store.Len() != 0 || m.q.state.Leases.Due() != 0 {
				t.Errorf("%d leases and %d keys of %d are left", leases, keys, m.q.state.Store.Len())
			}
		})
	}
}

// A lease does not end while what came during a short standstill is not read: the server gives back how late it is.
func TestLeaseOutlivesAShortStandstill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newLeases(t, 1500*time.Millisecond, 1, 1, false)
		m.q.state.Deadlines.Spare(0, 0) // no grace, as long after the start
		ctx, cancel := context.WithCancel(t.Context())
		clock := make(chan struct{})
		go func() {
			defer close(clock)
			m.q.RunClock(ctx, Clock{
				Heartbeat: time.Second, Grace: -1, Pace: NewPacer(1, func() float64 { return 0 }), Log: slog.New(slog.DiscardHandler),
				Beat: func(now time.Time) {
					if timer.At(now) < timer.At(m.began)+1500*time.Millisecond {
						time.Sleep(900 * time.Millisecond) // it does not run
					}
				},
			})
		}()
		time.Sleep(1950 * time.Millisecond) // the lease was over at 1.5 s, and the server ran again at 1.9 s
		if left, _ := m.q.Leases(wire.LeaseRenew, m.ids, nil); left[0] <= 0 {
			t.Errorf("%v is left", left[0])
		}
		time.Sleep(5 * time.Second)
		if n := m.q.state.Store.Len(); n != 0 {
			t.Errorf("%d keys are left", n)
		}
		cancel()
		<-clock
		m.q.Shut()
	})
}
