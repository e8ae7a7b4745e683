package queue

import (
	"context"
	"slices"
	"testing"
)

// TestPutBack: messages that are put back come first again, count again, and go where
// later messages would go.
func TestPutBack(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	in, q := newInbox(HWM{4, 1 << 20}), newInqueue()
	from := new(Conn)
	b := batchOf(from, numbers(0, 4)...)
	in.Put(q, &b, alive)
	full, _, _ := in.Look(q)
	var got Batch
	must(t, takeBatch(ctx, in, &got))
	more := batchOf(from, numbers(4, 6)...)
	in.Put(q, &more, alive)
	dry, _ := in.Marks()
	in.PutBack(q, &got)
	if got.Chunk != nil || got.Spans != nil {
		t.Error("the batch is not empty")
	}
	if size, over, _ := in.Look(q); !over || size.Messages != 6 || size.Bytes <= full.Bytes {
		t.Errorf("size %v, full: %v", size, over)
	}
	var texts []string
	for range 6 {
		s, err := takeText(ctx, in)
		must(t, err)
		texts = append(texts, s)
	}
	if !slices.Equal(texts, numbers(0, 6)) {
		t.Errorf("%q", texts)
	}
	if size, _, _ := in.Look(q); size != (HWM{}) {
		t.Errorf("an empty queue counts %v", size)
	}
	if after, _ := in.Marks(); after != dry+1 {
		t.Errorf("it was empty %d times", after-dry)
	}

	// A queue that was cut, and a closed inbox, take nothing back.
	for _, end := range []func(){func() { in.Cut(q) }, in.Close} {
		q.state = inKnown
		b := batchOf(from, "x")
		in.Put(q, &b, alive)
		must(t, takeBatch(ctx, in, &got))
		before := from.Discarded.Load()
		end()
		in.PutBack(q, &got)
		if size, _, _ := in.Look(q); size != (HWM{}) || from.Discarded.Load() != before+1 {
			t.Errorf("size %v, %d discarded", size, from.Discarded.Load()-before)
		}
	}
}

// consumed adds up the receipts of a link.
type consumed struct{ messages, bytes int }

func (c *consumed) Fetch() bool { return true }
func (c *consumed) Consumed(n HWM, _ bool) {
	c.messages += n.Messages
	c.bytes += n.Bytes
}

// TestPutBackLink: a link is told of each message once, though it was taken twice.
func TestPutBackLink(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	in, q := newInbox(HWM{100, 1 << 20}), newInqueue()
	told := &consumed{}
	in.Connect(q, told, 1)
	b := batchOf(new(Conn), numbers(0, 10)...)
	cost := b.Cost
	in.Put(q, &b, nil)
	var got Batch
	for range 3 {
		must(t, takeBatch(ctx, in, &got))
		in.PutBack(q, &got)
	}
	for range 10 {
		_, err := takeText(ctx, in)
		must(t, err)
	}
	if *told != (consumed{10, cost}) {
		t.Errorf("told of %+v", *told)
	}
}

// TestPutBackLeft: messages that are put back after their peer has gone count as
// leftovers until they are taken.
func TestPutBackLeft(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	in, q := newInbox(HWM{100, 1 << 20}), newInqueue()
	b := batchOf(new(Conn), numbers(0, 10)...)
	in.Put(q, &b, alive)
	var got Batch
	must(t, takeBatch(ctx, in, &got))
	cost := got.Cost
	in.Leave(q)
	in.PutBack(q, &got)
	if left := in.Status().Leftovers; left != cost+leftPeer {
		t.Errorf("%d bytes of leftovers, want %d", left, cost+leftPeer)
	}
	must(t, takeBatch(ctx, in, &got))
	got.Release()
	if left := in.Status().Leftovers; left != 0 {
		t.Errorf("%d bytes of leftovers are left", left)
	}
}
