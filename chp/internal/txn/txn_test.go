package txn

import (
	"bytes"
	"testing"

	"clustermap/internal/kvmsg"
	"clustermap/zmtp"
)

// request returns a request with two conditions and some updates.
func request(mark Mark, number uint64, updates int) *Request {
	r := &Request{Number: number, Since: 5, Flags: FlagValue}
	for _, c := range []Condition{{Kind: KindSequence, Key: []byte("a"), Sequence: 7}, {Kind: KindValue, Key: []byte("b"), Value: []byte("v")}} {
		r.Conditions = c.Append(r.Conditions)
	}
	id := mark.UUID(number)
	for i := range updates {
		r.Updates = kvmsg.AppendRecord(r.Updates, []byte("key"), 0, id[:], AppendMore([]byte("by=me\n"), updates-1-i), []byte("value"))
	}
	return r
}

func TestRequest(t *testing.T) {
	t.Parallel()
	mark := NewMark()
	for _, updates := range []int{0, 1, 2, MaxUpdates} {
		want := request(mark, 1<<40, updates)
		m := want.Append(nil)
		if len(m) != want.Size() || SizeOf(append(m, 1, 2)) != len(m) || SizeOf(m[:len(m)-1]) != 0 {
			t.Errorf("%d bytes; Size is %d, SizeOf %d", len(m), want.Size(), SizeOf(m))
		}
		Again(m)
		var got Request
		if !got.Parse(m) || got.Number != want.Number || got.Since != 5 || got.Flags != FlagValue|FlagAgain ||
			!bytes.Equal(got.Conditions, want.Conditions) || !bytes.Equal(got.Updates, want.Updates) {
			t.Errorf("%d updates: got %+v", updates, got)
		}
		if err := got.Check(0); err != nil {
			t.Errorf("%d updates: %v", updates, err)
		}
	}
}

func TestCheckRefuses(t *testing.T) {
	t.Parallel()
	mark := NewMark()
	for name, change := range map[string]func(r *Request){
		"number 0":          func(r *Request) { r.Number = 0 },
		"a large number":    func(r *Request) { r.Number = 1 << 62 },
		"another number":    func(r *Request) { r.Number++ },
		"no UUID":           func(r *Request) { r.Updates = kvmsg.AppendRecord(nil, []byte("k"), 0, nil, nil, []byte("v")) },
		"a cut condition":   func(r *Request) { r.Conditions = r.Conditions[:len(r.Conditions)-1] },
		"an unknown kind":   func(r *Request) { r.Conditions[0] = 9 },
		"a condition's key": func(r *Request) { r.Conditions[2] = 0 },
		"many conditions":   func(r *Request) { r.Conditions = bytes.Repeat([]byte{byte(KindAbsent), 1, 'k'}, MaxConditions+1) },
		"a cut update":      func(r *Request) { r.Updates = r.Updates[:len(r.Updates)-1] },
		"one update less":   func(r *Request) { r.Updates = r.Updates[:len(r.Updates)/2] },
		"one update more":   func(r *Request) { r.Updates = append(r.Updates, request(mark, r.Number, 1).Updates...) },
		"too many updates":  func(r *Request) { *r = *request(mark, r.Number, MaxUpdates+1) },
		"a reserved key":    func(r *Request) { r.Updates = kvmsg.AppendRecord(nil, []byte("HUGZ"), 0, nil, nil, nil) },
		"a value too large": func(r *Request) { *r = *request(mark, r.Number, 1); r.Updates = append(r.Updates, 0) },
		"a forged cause": func(r *Request) {
			id := mark.UUID(r.Number)
			r.Updates = kvmsg.AppendRecord(nil, []byte("k"), 0, id[:], []byte("cause=expired\n"), nil)
		},
		"two MiB of updates": func(r *Request) {
			id := mark.UUID(r.Number)
			r.Updates = kvmsg.AppendRecord(nil, []byte("k"), 0, id[:], AppendMore(nil, 1), make([]byte, MaxSize))
			r.Updates = kvmsg.AppendRecord(r.Updates, []byte("k"), 0, id[:], nil, nil)
		},
		"an update in a hole": func(r *Request) { r.Updates = append([]byte{0}, r.Updates...) },
	} {
		r := request(mark, 3, 2)
		if err := r.Check(0); err != nil {
			t.Fatal(err)
		}
		change(r)
		if err := r.Check(0); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestMark(t *testing.T) {
	t.Parallel()
	mark := NewMark()
	for _, n := range []uint64{1, 1<<62 - 1} {
		id := mark.UUID(n)
		if got, ok := NumberOf(kvmsg.AppendRecord(nil, []byte("k"), 0, id[:], nil, nil)); !ok || got != n {
			t.Errorf("number %d comes back as %d, %v", n, got, ok)
		}
		if id[6]>>4 != 8 || id[8]>>6 != 2 {
			t.Errorf("%x is no UUID of version 8", id)
		}
		id[0]++
		if _, ok := NumberOf(kvmsg.AppendRecord(nil, []byte("k"), 0, id[:], nil, nil)); ok {
			t.Errorf("%x belongs to a request", id)
		}
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	all := []Answer{
		{Number: 1, Sequence: 9}, {Number: 2, Status: StatusConflict, Sequence: 3, Condition: 1023},
		{Number: 3, Status: StatusConflict, Has: true}, {Number: 4, Status: StatusConflict, Has: true, Value: []byte("value")},
	}
	var body []byte
	for _, a := range all {
		body = a.Append(body)
	}
	body, ok := ParseAnswers(AppendAnswers(nil, body))
	if !ok {
		t.Fatal("not parsed")
	}
	for _, want := range all {
		var got Answer
		if body, ok = got.Next(body); !ok || got.Number != want.Number || got.Status != want.Status || got.Sequence != want.Sequence ||
			got.Condition != want.Condition || got.Has != want.Has || !bytes.Equal(got.Value, want.Value) {
			t.Errorf("got %+v, %v, want %+v", got, ok, want)
		}
	}
	if len(body) > 0 {
		t.Errorf("%d bytes are left", len(body))
	}
}

// FuzzRequest: whatever comes as a request is refused, or is what a server may take apart without
// further checks. What comes as answers is parsed or not.
func FuzzRequest(f *testing.F) {
	mark := NewMark()
	for _, updates := range []int{0, 1, 3} {
		r := request(mark, 3, updates)
		f.Add(r.Conditions, r.Updates)
	}
	f.Fuzz(func(t *testing.T, conditions, updates []byte) {
		r := Request{Number: 3, Conditions: conditions, Updates: updates}
		m := r.Append(nil)
		if SizeOf(m) != len(m) || !IsRequest(m) {
			t.Fatal("the request is not recognized")
		}
		var got Request
		if !got.Parse(zmtp.WireMessage(m)) {
			t.Fatal("not parsed")
		}
		if got.Check(1<<20) == nil {
			n, size := 0, 0
			for at, one := range got.Records() {
				if number, ok := NumberOf(one); !ok || number != 3 || at != size || len(one.Key()) == 0 {
					t.Fatalf("an update at %d of number %d", at, number)
				}
				n, size = n+1, size+len(one)
			}
			if n > MaxUpdates || size != len(updates) {
				t.Fatalf("%d updates with %d of %d bytes", n, size, len(updates))
			}
			var c Condition
			for rest, ok := got.Conditions, true; len(rest) > 0; {
				if rest, ok = c.Next(rest); !ok {
					t.Fatal("a condition is malformed")
				}
				c.Holds(Now{})
			}
		}
		var a Answer
		for rest, ok := updates, true; ok && len(rest) > 0; {
			rest, ok = a.Next(rest)
		}
		ParseAnswers(AppendAnswers(nil, updates))
	})
}
