package queue

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
)

// joined returns a queue of a client.
func joined(in *Inbox, client string) *Inqueue {
	q := newInqueue()
	in.Join(q, client)
	return q
}

// TestClientWithManyConnectionsHasOneTurn: a client's messages are received in turn with
// those of others, however many connections it has.
func TestClientWithManyConnectionsHasOneTurn(t *testing.T) {
	t.Parallel()
	in := newInbox(HWM{Messages: 1000, Bytes: 1 << 20})
	put := func(q *Inqueue, name string) {
		batch := batchOf(nil, name+"1", name+"2")
		in.Put(q, &batch, alive)
	}
	for i := range 100 {
		put(joined(in, "greedy"), fmt.Sprintf("g%d-", i))
	}
	put(joined(in, "modest"), "m")
	put(newInqueue(), "alone")
	var got []string
	for range 8 {
		m, err := takeText(t.Context(), in)
		must(t, err)
		got = append(got, m)
	}
	if want := "[g0-1 m1 alone1 g1-1 m2 alone2 g2-1 g3-1]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %v", got, want)
	}
	var batch Batch
	must(t, takeBatch(t.Context(), in, &batch))
	if got := fmt.Sprint(bodies(&batch)); got != "[g4-1 g4-2]" {
		t.Errorf("a batch with %v", got)
	}
	batch.Release()
	in.Discard()
	if in.ready.count != 0 || in.ready.lanes.Len() != 0 || in.total.used != 0 {
		t.Errorf("%+v", in.Status())
	}
}

// TestQueuesOfAllPeersHaveOneTotal: readers wait when all queues together are full, nothing
// is lost, and the reader of a client that comes late is let in before those of one that
// has many.
func TestQueuesOfAllPeersHaveOneTotal(t *testing.T) {
	t.Parallel()
	const size, most, readers, each = 1000, 10, 50, 8
	body := strings.Repeat("x", size-9) // 9 bytes of header
	synctest.Test(t, func(t *testing.T) {
		in, lasting := newInbox(HWM{Messages: 1000, Bytes: 1 << 30}), make(chan struct{})
		in.SetLimits(in.limits, most*size)
		check := func() {
			if got := in.Status().Bytes; got > (most+1)*size {
				t.Fatalf("%d bytes are queued", got)
			}
		}
		feed := func(client string, batches int) {
			q := joined(in, client)
			go func() {
				for range batches {
					batch := batchOf(nil, body)
					in.Put(q, &batch, lasting)
				}
				in.Leave(q)
			}()
		}
		for range readers {
			feed("greedy", each)
		}
		synctest.Wait()
		// How many readers wait depends on how many of their batches each had a turn for.
		if s := in.Status(); s.Bytes != most*size || s.Held < readers-most/each || s.Held > readers {
			t.Errorf("%+v", s)
		}
		check()
		feed("late", 1)
		synctest.Wait()
		for range 2 { // the second one that is let in is the newcomer's
			_, err := takeText(t.Context(), in)
			must(t, err)
			synctest.Wait()
			check()
		}
		if s := in.Status(); s.Clients != 2 {
			t.Errorf("%+v", s)
		}
		in.lock()
		late := in.clients["late"]
		if late.held.queues.Len() != 0 || late.ready.queues.Len() != 1 {
			t.Errorf("the newcomer still waits: %d", late.held.queues.Len())
		}
		in.mu.Unlock()
		for range readers*each + 1 - 2 {
			_, err := takeText(t.Context(), in)
			must(t, err)
			synctest.Wait()
			check()
		}
		if s := in.Status(); s.Bytes != 0 || s.Held != 0 || s.Clients != 0 || s.Ready != 0 {
			t.Errorf("at the end: %+v", s)
		}
	})
}

// TestReaderThatWaitsForTheTotalCanLeave: a connection that ends while its reader waits
// gives its turn to the next one, and takes nothing of the total with it.
func TestReaderThatWaitsForTheTotalCanLeave(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		in, lasting := newInbox(HWM{Messages: 1000, Bytes: 1 << 30}), make(chan struct{})
		in.SetLimits(in.limits, 1)
		put := func(client string, gone <-chan struct{}) *Inqueue {
			q := joined(in, client)
			batch := batchOf(nil, client)
			go func() {
				in.Put(q, &batch, gone)
				in.Leave(q)
			}()
			synctest.Wait()
			return q
		}
		put("first", lasting)
		gone := make(chan struct{})
		put("second", gone)
		put("third", gone)
		put("fourth", lasting)
		if s := in.Status(); s.Held != 3 {
			t.Errorf("%+v", s)
		}
		close(gone)
		synctest.Wait()
		if s := in.Status(); s.Held != 1 || s.Clients != 2 {
			t.Errorf("%+v", s)
		}
		for _, want := range []string{"first", "fourth"} {
			got, err := takeText(t.Context(), in)
			must(t, err)
			if got != want {
				t.Errorf("%s, want %s", got, want)
			}
			synctest.Wait()
		}
		if s := in.Status(); s.Bytes != 0 || s.Held != 0 || s.Clients != 0 {
			t.Errorf("%+v", s)
		}

		// A higher total lets readers go on, and the end of the inbox all of them.
		put("a", lasting)
		put("b", lasting)
		put("c", lasting)
		in.SetLimits(in.limits, 4)
		synctest.Wait()
		if s := in.Status(); s.Held != 1 || s.Ready != 2 {
			t.Errorf("with a higher total: %+v", s)
		}
		in.Close()
		synctest.Wait()
		if s := in.Status(); s.Held != 0 {
			t.Errorf("closed: %+v", s)
		}
	})
}

// TestReaderThatWasLetInDropsForACutQueue: nothing is queued for a queue that was cut
// between its reader being let in and going on, and the next reader has its turn.
func TestReaderThatWasLetInDropsForACutQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		in, lasting := newInbox(HWM{Messages: 1000, Bytes: 1 << 30}), make(chan struct{})
		in.SetLimits(in.limits, 1)
		put := func(client string) *Inqueue {
			q := joined(in, client)
			batch := batchOf(nil, client)
			go in.Put(q, &batch, lasting)
			synctest.Wait()
			return q
		}
		put("first")
		second := put("second")
		put("third")

		in.lock()
		first := in.unlist()
		b := first.pop()
		first.size, in.total.used = HWM{}, 0
		in.total.release()
		if second.held || in.total.held.count != 1 {
			t.Errorf("the second one is held: %v, %d are", second.held, in.total.held.count)
		}
		second.state = inCut // as Cut does
		in.mu.Unlock()
		b.drop()

		synctest.Wait()
		got, err := takeText(t.Context(), in)
		must(t, err)
		if got != "third" {
			t.Errorf("received %s", got)
		}
		if s := in.Status(); s.Bytes != 0 || s.Held != 0 || s.Ready != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// TestHeaviestIsOfTheClientThatHoldsMost: many small connections of one client count like a
// large one.
func TestHeaviestIsOfTheClientThatHoldsMost(t *testing.T) {
	t.Parallel()
	type holder struct {
		client *Client
		bytes  int
	}
	a, b := new(Client), new(Client)
	all := []holder{{b, 50}, {a, 20}, {a, 21}, {a, 20}, {b, 0}}
	got := Heaviest(func(yield func(holder) bool) {
		for _, h := range all {
			if !yield(h) {
				return
			}
		}
	}, func(h holder) (*Client, int) { return h.client, h.bytes })
	if got != all[2] {
		t.Errorf("%+v", got)
	}
}
