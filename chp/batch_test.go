package chp

import (
	"errors"
	"testing"
	"time"

	"clustermap/internal/kvmsg"
	"clustermap/internal/testenv"
)

// A batch holds its updates in order, as a server would check them.
func TestBatchHoldsUpdates(t *testing.T) {
	var b Batch
	b.Set("/a", []byte("one"), WithTTL(2*time.Second), WithProperty("by", "me"))
	b.Delete("/b")
	b.Set("/c", make([]byte, 1000))
	if b.Len() != 3 || b.Err() != nil {
		t.Fatalf("%d updates, %v; want 3", b.Len(), b.Err())
	}
	for i, span := range b.spans {
		wire := append([]byte(nil), b.record(i)...)
		size, tag, kind, err := kvmsg.Inspect(wire, kvmsg.FromClient, 0)
		if err != nil || kind != kvmsg.KindUpdate || size != len(wire) || tag != span.Tag {
			t.Errorf("update %d: size %d, tag %x, kind %v, %v; want size %d, tag %x", i, size, tag, kind, err, len(wire), span.Tag)
		}
	}
	if r := b.record(0); string(r.Key()) != "/a" || string(r.Value()) != "one" || string(r.Props()) != "ttl=2\nby=me\n" {
		t.Errorf("got %q %q %q", r.Key(), r.Props(), r.Value())
	}
	if b.Size() != len(b.wire) || b.largest != 1000 {
		t.Errorf("size %d, largest %d", b.Size(), b.largest)
	}
	if b.Reset(); b.Len() != 0 || b.Size() != 0 || b.largest != 0 {
		t.Errorf("after Reset: %d updates of %d bytes, largest %d", b.Len(), b.Size(), b.largest)
	}
}

// The first error stays until Reset.
func TestBatchKeepsFirstError(t *testing.T) {
	for _, c := range []struct {
		name string
		add  func(*Batch)
		want error
	}{
		{"empty value", func(b *Batch) { b.Set("k", nil) }, ErrEmptyValue},
		{"empty key", func(b *Batch) { b.Delete("") }, &MessageError{Reason: ReasonKey}},
		{"reserved key", func(b *Batch) { b.Set("HUGZ1", []byte("v")) }, &MessageError{Reason: ReasonReservedKey}},
		{"ttl", func(b *Batch) { b.Set("k", []byte("v"), WithTTL(-1)) }, &MessageError{Reason: ReasonTTL}},
		{"property", func(b *Batch) { b.Set("k", []byte("v"), WithProperty("a=b", "")) }, &MessageError{Reason: ReasonProperties}},
	} {
		var b Batch
		b.Set("before", []byte("v"))
		c.add(&b)
		b.Set("", nil)
		if !errors.Is(b.Err(), c.want) {
			t.Errorf("%s: %v; want %v", c.name, b.Err(), c.want)
		}
		if b.Reset(); b.Err() != nil {
			t.Errorf("%s: after Reset: %v", c.name, b.Err())
		}
	}
}

// A batch that is used again does not allocate.
func TestBatchAllocatesNothing(t *testing.T) {
	var b Batch
	value := make([]byte, 100)
	fill := func() {
		b.Reset()
		for range 100 {
			b.Set("/some/key", value, WithTTL(time.Minute))
			b.Delete("/other/key")
		}
	}
	fill()
	if n := testenv.Allocs(0, 100, fill); n > 0 {
		t.Errorf("%v allocations per 200 updates", n)
	}
}
