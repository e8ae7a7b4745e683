package history

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
)

// made is an update of a test.
type made struct {
	key, props, value string
	sequence          int64
	at                time.Time
}

// add adds updates to a keeper, as a batch.
func add(k *Keeper, batch ...made) {
	var wire []byte
	var spans []buf.Span
	for _, m := range batch {
		start := len(wire)
		wire = kvmsg.AppendRecord(wire, []byte(m.key), m.sequence, nil, []byte(m.props), []byte(m.value))
		spans = append(spans, buf.Span{Start: 7 + uint32(start), End: 7 + uint32(len(wire))}) // only the sizes count
	}
	k.Add(wire, spans, batch[0].at)
	clear(wire) // the keeper has its own memory
}

// text is what a keeper has of a key.
func text(k *Keeper, key string) (all []string) {
	for _, v := range k.Versions([]byte(key)) {
		all = append(all, fmt.Sprintf("%d %d %q %q", v.Sequence, v.At.UnixNano(), v.Properties, v.Value))
	}
	return all
}

func keyText(m made) string {
	return fmt.Sprintf("%d %d %q %q", m.sequence, m.at.UnixNano(), m.props, m.value)
}

// model is a keeper that is simple and slow.
type model struct {
	most  int
	limit int64
	all   []made // kept, in order
}

func (m *model) bytes() (n int64) {
	keys := map[string]bool{}
	for _, v := range m.all {
		n += versionBytes + int64(len(v.props)+len(v.value))
		if !keys[v.key] {
			keys[v.key] = true
			n += lineBytes + int64(len(v.key))
		}
	}
	return n
}

func (m *model) add(batch ...made) {
	for _, v := range batch {
		if m.all = append(m.all, v); len(m.of(v.key)) > m.most {
			m.all = slices.Delete(m.all, slices.IndexFunc(m.all, func(o made) bool { return o.key == v.key }), 1+slices.IndexFunc(m.all, func(o made) bool { return o.key == v.key }))
		}
	}
	for m.bytes() > m.limit {
		m.all = m.all[1:]
	}
}

func (m *model) of(key string) (all []string) {
	for _, v := range m.all {
		if v.key == key {
			all = append(all, keyText(v))
		}
	}
	return all
}

// TestKeeperIsItsModel: random updates of hot and of rare keys are kept as in the model, with both
// bounds, and are the same after a move in portions.
func TestKeeperIsItsModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		rng := rand.New(rand.NewPCG(seed, 1))
		most, limit := 2+rng.IntN(5), int64(1500+rng.IntN(20_000))
		k, m := New(most, limit), &model{most: most, limit: limit}
		var sequence int64
		for step := range 1200 {
			var batch []made
			at := time.Unix(1+int64(step), 0)
			for range 1 + rng.IntN(5) {
				sequence += 1 + int64(rng.IntN(2))
				v := made{key: fmt.Sprint("/hot/", rng.IntN(2)), sequence: sequence, at: at}
				if rng.IntN(4) == 0 {
					v.key = fmt.Sprint("/rare/", rng.IntN(60))
				}
				if rng.IntN(8) > 0 {
					v.value = strings.Repeat("v", 1+rng.IntN(100))
				}
				if rng.IntN(8) == 0 {
					v.props = "by=alice\n"
				}
				batch = append(batch, v)
			}
			add(k, batch...)
			m.add(batch...)
			if k.Bytes() != m.bytes() || k.Bytes() > limit {
				t.Fatalf("seed %d: %d bytes, want %d of %d", seed, k.Bytes(), m.bytes(), limit)
			}
			if step%300 != 0 {
				continue
			}
			moved, size := k.Empty(), 1+rng.IntN(4000)
			for portion := range k.Portions(sequence, size) {
				if !moved.Restore(bytes.Clone(portion)) {
					t.Fatalf("seed %d: a portion is refused", seed)
				}
			}
			for _, v := range m.all {
				if want := m.of(v.key); !slices.Equal(text(k, v.key), want) || !slices.Equal(text(moved, v.key), want) {
					t.Fatalf("seed %d: of %s kept %q, moved %q, want %q", seed, v.key, text(k, v.key), text(moved, v.key), want)
				}
			}
			if moved.Bytes() != k.Bytes() || k.order.Len() > 2*len(m.all)+2*slack {
				t.Fatalf("seed %d: %d bytes moved of %d; %d places for %d versions", seed, moved.Bytes(), k.Bytes(), k.order.Len(), len(m.all))
			}
		}
	}
}

// TestPortionsUpTo: portions have nothing after a cut, and what follows them completes them, also
// if versions are dropped while they are made.
func TestPortionsUpTo(t *testing.T) {
	t.Parallel()
	k := New(3, 1<<20)
	sequence := int64(0)
	set := func(to ...*Keeper) {
		sequence++
		for _, k := range to {
			add(k, made{key: fmt.Sprint("/k/", sequence%10), value: fmt.Sprint(sequence), sequence: sequence, at: time.Unix(sequence, 0)})
		}
	}
	for range 200 {
		set(k)
	}
	cut := sequence
	moved := k.Empty()
	var later []int64
	portions := 0
	for portion := range k.Portions(cut, 100) {
		portions++
		records, _, ok := Parse(portion)
		if !ok {
			t.Fatal("not a portion")
		}
		for _, r := range records {
			if r.Seq() > cut {
				t.Errorf("a portion up to %d has %d", cut, r.Seq())
			}
		}
		moved.Restore(portion)
		for range 5 {
			set(k)
			later = append(later, sequence)
		}
	}
	for _, s := range later {
		add(moved, made{key: fmt.Sprint("/k/", s%10), value: fmt.Sprint(s), sequence: s, at: time.Unix(s, 0)})
	}
	for i := range 10 {
		key := fmt.Sprint("/k/", i)
		if got, want := text(moved, key), text(k, key); !slices.Equal(got, want) || len(want) != 3 {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
	if portions < 2 {
		t.Errorf("%d portions", portions)
	}
}

// TestStampedTime: the time in an update's stamp is that of the version.
func TestStampedTime(t *testing.T) {
	t.Parallel()
	k := New(2, 1<<20)
	stamped := time.Unix(1_700_000_000, 5)
	add(k, made{key: "/k", props: string(kvmsg.AppendStamp(nil, stamped, "alice")), value: "v", sequence: 1, at: time.Unix(1, 0)})
	if all := k.Versions([]byte("/k")); len(all) != 1 || !all[0].At.Equal(stamped) {
		t.Errorf("%v", all)
	}
}

// TestNone: without a history there is no keeper, and that does nothing; but what is not a portion
// is found.
func TestNone(t *testing.T) {
	t.Parallel()
	for most := range 2 {
		if New(most, 1<<20) != nil {
			t.Errorf("a keeper of %d versions", most)
		}
	}
	var k *Keeper
	add(k, made{key: "/k", value: "v", sequence: 1})
	for range k.Portions(9, 100) {
		t.Error("a portion")
	}
	portion, _ := AppendVersions(nil, []byte("/k"), []Version{{Sequence: 3, Value: []byte("v")}}, 10)
	if k.Empty() != nil || k.Versions([]byte("/k")) != nil || k.Bytes() != 0 || !k.Restore(portion) || k.Restore(portion[1:]) {
		t.Error("it does something")
	}
}

// TestAnswerInPortions: an answer has as many versions as it may have bytes, at least one, and the
// times.
func TestAnswerInPortions(t *testing.T) {
	t.Parallel()
	at := time.Unix(7, 8)
	all := []Version{{3, time.Time{}, nil, []byte("abc")}, {4, at, []byte("a=b\n"), nil}, {9, at, nil, bytes.Repeat([]byte("v"), 300)}}
	for size, want := range map[int]int{0: 1, 20: 1, 100: 2, 1000: 3} {
		body, n := AppendVersions(nil, []byte("/key"), all, size)
		records, times, ok := Parse(body)
		if !ok || n != want || len(records) != n {
			t.Errorf("with %d bytes: %d versions, want %d; %d parsed, %v", size, n, want, len(records), ok)
		}
		for i, r := range records {
			if v := all[i]; string(r.Key()) != "/key" || r.Seq() != v.Sequence || !times[i].Equal(v.At) || !bytes.Equal(r.Value(), v.Value) || !bytes.Equal(r.Props(), v.Properties) {
				t.Errorf("version %d is %q at %v", i, r, times[i])
			}
		}
	}
}

// TestNotPortions: bytes that are no portion are refused without a panic, and without memory by
// the number that they announce.
func TestNotPortions(t *testing.T) {
	t.Parallel()
	body, _ := AppendVersions(nil, []byte("/key"), []Version{{Sequence: 3, Value: []byte("abc")}, {Sequence: 4, Value: []byte("d")}}, 100)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range body {
		if _, _, ok := Parse(body[:i]); ok {
			t.Errorf("the first %d bytes of %d are a portion", i, len(body))
		}
		for range 20 {
			damaged := bytes.Clone(body)
			damaged[i] = byte(rng.Uint32())
			New(2, 1<<20).Restore(damaged)
		}
	}
	if _, _, ok := Parse(binary.BigEndian.AppendUint32(nil, 1<<32-1)); ok {
		t.Error("four bytes are a portion")
	}
	empty := binary.BigEndian.AppendUint32(nil, 1)
	empty = append(empty, make([]byte, 8)...)
	if New(2, 1<<20).Restore(kvmsg.AppendRecord(empty, bytes.Repeat([]byte("k"), 300), 1, nil, nil, nil)) {
		t.Error("a key of 300 bytes is restored")
	}
}

// FuzzParse: whatever bytes are restored, a keeper has what it has parsed and no more, and what it
// then sends is a portion.
func FuzzParse(f *testing.F) {
	body, _ := AppendVersions(nil, []byte("/key"), []Version{{Sequence: 3, Value: []byte("abc")}, {Sequence: 4, Properties: []byte("x-time=1\n")}}, 100)
	f.Add(body)
	f.Add(body[:4])
	f.Fuzz(func(t *testing.T, body []byte) {
		records, _, ok := Parse(body)
		k := New(2, 1<<20)
		if restored := k.Restore(body); restored && !ok || !ok && records != nil {
			t.Fatalf("%d records, %v, restored %v", len(records), ok, restored)
		}
		for portion := range k.Portions(1<<62, 50) {
			if !k.Empty().Restore(portion) {
				t.Fatalf("%q is no portion", portion)
			}
		}
	})
}

// BenchmarkAdd adds updates of 32 bytes over 10,000 keys, in batches of 1,000.
func BenchmarkAdd(b *testing.B) {
	for _, most := range []int{2, 10, 64} {
		b.Run(fmt.Sprint("versions=", most), func(b *testing.B) {
			k := New(most, 64<<20)
			var wire []byte
			var spans []buf.Span
			rng := rand.New(rand.NewPCG(1, 2))
			var sequence int64
			for n := 0; n < b.N; n += 1000 {
				b.StopTimer()
				wire, spans = wire[:0], spans[:0]
				for range 1000 {
					sequence++
					start := len(wire)
					wire = kvmsg.AppendRecord(wire, fmt.Appendf(nil, "/bench/%07d", rng.IntN(10_000)), sequence, make([]byte, 16), nil, make([]byte, 32))
					spans = append(spans, buf.Span{Start: uint32(start), End: uint32(len(wire))})
				}
				b.StartTimer()
				k.Add(wire, spans, time.Unix(1, 0))
			}
			b.ReportAllocs()
		})
	}
}
