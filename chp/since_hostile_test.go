package chp

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"clustermap/chp/internal/wire"
	"clustermap/internal/kvmsg"
)

// since asks what came after a sequence, and returns the sequences of the answer, and its end.
func (a *asker) since(id [16]byte, after int64, specs ...string) (sequences []int64, end wire.End) {
	a.t.Helper()
	frames, _ := wire.SinceRequest(id, after, specs)
	must(a.t, a.dealer.Send(a.ctx, frames...))
	for {
		m, err := a.dealer.Recv(a.ctx)
		must(a.t, err)
		var r []byte
		for i, frame := range m {
			flags := byte(kvmsg.FlagMore)
			if i == len(m)-1 {
				flags = 0
			}
			r = kvmsg.AppendFrame(r, frame, flags)
		}
		if string(m[0]) == "KTHXBAI" {
			return sequences, wire.ParseEnd(kvmsg.Record(r))
		}
		sequences = append(sequences, kvmsg.Record(r).Seq())
	}
}

// TestHostileSince: questions with impossible sequences, of other maps, and that are no questions, get
// no updates, and many at once do no harm.
func TestHostileSince(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	c := startClient(t, s, ClientOptions{})
	var all []int64
	for i := range 100 {
		seq, err := c.SetSync(ctx, fmt.Sprint("/a/", i%10), []byte("x"))
		must(t, err)
		all = append(all, seq)
	}
	last := all[len(all)-1]
	asker := func() *asker { return newAsker(t, s.Endpoints().Snapshot, true, false) }
	a := asker()
	got, end := a.since([16]byte{}, all[49], "")
	if !slices.Equal(got, all[50:]) || end.Compacted || end.Sequence != last {
		t.Fatalf("after %d there are %v, %+v", all[49], got, end)
	}
	own := end.ID
	if got, end := a.since(own, all[49], "/b/", "/a/7", "/a/7", "/a/"); !slices.Equal(got, all[50:]) || end.Compacted {
		t.Errorf("of its own map there are %v, %+v", got, end)
	}
	if got, end := a.since([16]byte{1}, all[49], ""); len(got) > 0 || !end.Compacted || end.Oldest >= all[0] {
		t.Errorf("of another map there are %v, %+v", got, end)
	}
	for _, after := range []int64{0, -1, 1, math.MinInt64, math.MaxInt64, last + 1, last + 1<<40, all[0] - 2, -last} {
		if got, end := a.since(own, after, ""); len(got) > 0 || !end.Compacted {
			t.Errorf("after %d there are %v, %+v", after, got, end)
		}
	}
	claim := make([]byte, 24)
	for _, frames := range [][][]byte{
		{[]byte("SINCE?")},
		{[]byte("SINCE?"), claim},
		{[]byte("SINCE?"), claim[:23], nil},
		{[]byte("SINCE?"), make([]byte, 25), nil},
		{[]byte("SINCE?"), claim, []byte("//")},
		append([][]byte{[]byte("SINCE?"), claim}, slices.Repeat([][]byte{[]byte("/a/")}, 65)...),
	} {
		must(t, asker().dealer.Send(ctx, frames...))
	}
	eventually(t, "the server has refused what is no question", func() bool { return s.Stats().BadAsks >= 6 })

	// Many questions at once, of which nobody reads the answers.
	for i := range 20 {
		a := newAsker(t, s.Endpoints().Snapshot, true, true)
		there, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() { // ends with the connection
			select {
			case <-a.gone:
				cancel()
			case <-there.Done():
			}
		}()
		for n := range 500 {
			frames, _ := wire.SinceRequest([16]byte{}, all[(i*500+n)%100], []string{""})
			if a.dealer.Send(there, frames...) != nil {
				break // it was disconnected
			}
		}
	}
	_, err := c.SetSync(ctx, "/a/1", []byte("y"))
	must(t, err)
	if got, _ := asker().since(own, last, ""); len(got) != 1 {
		t.Errorf("then %d updates came", len(got))
	}
}
