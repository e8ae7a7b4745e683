package ledger

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// A client that repeats a number, or goes back, makes the server remember no more than others.
func TestMadeIsBounded(t *testing.T) {
	t.Parallel()
	for _, number := range []func(i int) uint64{
		func(int) uint64 { return 1 },
		func(i int) uint64 { return 1<<62 - 1 - uint64(i) },
		func(i int) uint64 { return uint64(2*i + 1) },
	} {
		var o Clients
		for i := range 10 * Window {
			o.Make(ID{1}, number(i), int64(3*i+1))
		}
		if n := len(o.ByID[ID{1}].made); n > mostMade || n != o.runs {
			t.Errorf("%d runs, and %d are counted", n, o.runs)
		}
	}
}

// Where nobody was forgotten, nothing is unknown: neither of requests, nor of updates, that a client sends
// first when the map is new. Where somebody was, be it the one who made the first update, it is.
func TestNothingIsForgottenOfANewMap(t *testing.T) {
	t.Parallel()
	var o Clients
	first, id, mapID := ID{1}, ID{2}, [MapIDSize]byte{3}
	uncertain := func() bool {
		a := Account{}
		reply := new(Clients).Reply(id, mapID)
		a.Reconcile(&reply, 0)
		a.Stage(false, nil)
		a.Send(1)
		reply = o.Reply(id, mapID)
		reply.Known = false
		return a.Reconcile(&reply, 0) != 1
	}
	o.Make(first, 1, 1)
	if o.Forgot(id, 0) || uncertain() {
		t.Error("something is said to be forgotten")
	}
	o.forget(o.ByID[first])
	if !o.Forgot(id, 0) || !uncertain() {
		t.Error("what was forgotten is said not to be")
	}
	if o.Forgot(id, 2) {
		t.Error("what came later is said to be forgotten")
	}
}

// However many clients make requests in turns, each of which is a run of its own, one that keeps to its
// share is never told that what became of its requests is unknown, and the others are told
// nothing else. The same holds for who restores the state.
func TestBusyClientsForgetOnlyTheirOwnRequests(t *testing.T) {
	t.Parallel()
	id := func(n int) (id ID) {
		binary.BigEndian.PutUint32(id[:], uint32(n))
		return id
	}
	var o Clients
	const busy, few = 400, 100
	seq := int64(0)
	made := make([]map[uint64]int64, busy+1)
	for i := range made {
		made[i] = map[uint64]int64{}
	}
	for n := range Window {
		for i := range busy + 1 {
			if i == busy && n >= few {
				continue // it comes seldom
			}
			seq++
			o.Make(id(i), uint64(n+1), seq)
			made[i][uint64(n+1)] = seq
			if o.runs > maxMade {
				t.Fatalf("%d runs", o.runs)
			}
		}
	}
	check := func(o *Clients) {
		t.Helper()
		lost, runs := 0, 0
		for i := range made {
			p := o.ByID[id(i)]
			runs += len(p.made)
			for n, at := range made[i] {
				got, ok := o.MadeAt(p.id, n)
				switch {
				case ok && got != at:
					t.Fatalf("client %d, request %d at %d, not %d", i, n, got, at)
				case !ok && !o.Forgot(p.id, at-1):
					t.Fatalf("client %d, request %d would be made twice", i, n)
				case !ok:
					lost++
					if i == busy {
						t.Fatalf("request %d of the client with few is forgotten", n)
					}
				}
			}
			if i == busy && o.Forgot(p.id, 1) {
				t.Error("the client with few is told that some are forgotten")
			}
		}
		if lost == 0 || runs != o.runs || runs < maxMade/2 {
			t.Errorf("%d are forgotten, %d runs, and %d are counted", lost, runs, o.runs)
		}
	}
	check(&o)
	var restored Clients
	for _, p := range o.MadePortions() {
		if !restored.AddMade(p) {
			t.Fatal("malformed")
		}
	}
	check(&restored)
}

// Requests that were sent again are made after later ones, and found like others.
func TestMadeInAnyOrder(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	for range 100 {
		var o Clients
		want := map[uint64]int64{}
		seq := int64(0)
		for _, n := range r.Perm(200) {
			number := uint64(n + 1)
			if seq += 1 + int64(r.IntN(3)); r.IntN(4) > 0 {
				o.Make(ID{1}, number, seq)
				want[number] = seq
			}
		}
		for restore := range 2 {
			for number := range uint64(202) {
				seq, ok := o.MadeAt(ID{1}, number)
				if at, made := want[number]; ok != made || seq != at {
					t.Fatalf("request %d: %d, %v, want %d (restored: %d)", number, seq, ok, at, restore)
				}
			}
			portions := o.MadePortions()
			o = Clients{}
			for _, p := range portions {
				if !o.AddMade(p) {
					t.Fatal("malformed")
				}
			}
		}
	}
}

// A request costs no more if the client has made many that are runs of their own.
func BenchmarkMake(b *testing.B) {
	var o Clients
	for i := range b.N {
		o.Make(ID{1}, uint64(i+1), int64(2*i+1))
	}
}

func BenchmarkMadeAt(b *testing.B) {
	var o Clients
	for i := range Window {
		o.Make(ID{1}, uint64(i+1), int64(2*i+1))
	}
	for i := range b.N {
		o.MadeAt(ID{1}, uint64(i%Window+1))
	}
}
