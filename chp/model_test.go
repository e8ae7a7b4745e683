package chp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"clustermap/internal/kvmsg"
	"clustermap/internal/loopback"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// Messages of three frames become records and back; a message of another form is refused,
// and no part of it is kept.
func TestModelFrames(t *testing.T) {
	t.Parallel()
	large := make([]byte, 300)
	sent := newSentUpdates(10)
	maker := uuidMaker{uuidSecret: newUUIDSecret()}
	id := [kvmsg.UUIDSize]byte(maker.append(nil, 1, []byte("k"), []byte("v")))
	for _, value := range [][]byte{nil, []byte("v"), large} {
		three := zmtp.AppendMessage(nil, []byte("k"), []byte("\x00\x00\x00\x00\x00\x00\x00\x07"), value)
		wide, err := appendWide(nil, three, nil)
		must(t, err)
		r := kvmsg.Record(wide)
		if string(r.Key()) != "k" || r.Seq() != 7 || len(r.UUID())+len(r.Props()) != 0 || !slices.Equal(r.Value(), value) || r.Size() != len(wide) {
			t.Errorf("%q becomes %q", three, wide)
		}
		if len(wide) > len(three)+widened {
			t.Errorf("%d bytes more", len(wide)-len(three))
		}
		if back := appendThree(nil, r); !slices.Equal(back, three) {
			t.Errorf("%q comes back as %q", three, back)
		}
		sent.note(kvmsg.AppendRecord(nil, []byte("k"), 0, id[:], []byte("a=b\n"), value))
		if wide, err = appendWide(nil, three, sent); err != nil || string(kvmsg.Record(wide).UUID()) != string(id[:]) {
			t.Errorf("%q has no UUID", wide)
		}
		if wide, err = appendWide(nil, three, sent); err != nil || len(kvmsg.Record(wide).UUID()) > 0 {
			t.Errorf("%q has a UUID once more", wide)
		}
	}
	eight := make([]byte, 8)
	for _, frames := range [][][]byte{{eight}, {eight, eight}, {eight, eight, eight, eight}, {eight, eight[:4], eight}, {eight, eight, nil, nil, eight}} {
		if wide, err := appendWide(nil, zmtp.AppendMessage(nil, frames...), nil); err == nil || len(wide) > 0 {
			t.Errorf("%d frames become %q, %v", len(frames), wide, err)
		}
	}
	whole := zmtp.AppendMessage(nil, []byte("key"), eight, []byte("value"))
	for range 20_000 {
		m := slices.Clone(whole)
		for range 1 + rand.IntN(3) {
			m[rand.IntN(len(m))] = byte(rand.Uint32())
		}
		m = m[:rand.IntN(len(m)+1)]
		if wide, err := appendWide(nil, m, nil); err == nil {
			if _, _, _, err := kvmsg.Inspect(wide, kvmsg.FromServer, 0); len(wide) > len(m)+widened {
				t.Fatalf("%q becomes %q, %v", m, wide, err)
			}
		}
	}
}

// A session remembers a bounded number of the updates that it sent, and each update that
// comes back ends the wait for all before it.
func TestModelSentUpdates(t *testing.T) {
	t.Parallel()
	const most = 500
	u := newSentUpdates(most)
	maker := uuidMaker{uuidSecret: newUUIDSecret()}
	key := func(i int) []byte { return fmt.Append(nil, "k", i) }
	note := func(i int, n uint64) {
		u.note(kvmsg.AppendRecord(nil, key(i), 0, maker.append(nil, n, key(i), []byte("v")), nil, []byte("v")))
	}
	note(0, uncounted|5)
	if len(u.queue) > 0 {
		t.Error("an update is remembered that will not come back")
	}
	for i := range 3 * most {
		note(i, uint64(i+1))
	}
	if n := len(u.queue) - u.first; n != most || len(u.count) != n || len(u.queue) > 2*most+1 {
		t.Errorf("%d updates are remembered, in %d places", n, len(u.queue))
	}
	if _, ok := u.match(key(0), []byte("v")); ok {
		t.Error("the oldest is remembered")
	}
	last := 3*most - 1
	for _, i := range []int{last - 10, last - 1} {
		if id, ok := u.match(key(i), []byte("v")); !ok || uuidNumber(id[:], 1)&uuidNumberMask != uint64(i+1)&uuidNumberMask {
			t.Errorf("update %d is not remembered", i)
		}
	}
	if _, ok := u.match(key(last-5), []byte("v")); ok || len(u.count) != 1 {
		t.Errorf("%d updates are remembered, want the last", len(u.count))
	}
}

// There are models 1 to 6.
func TestModelOption(t *testing.T) {
	t.Parallel()
	for _, m := range []Model{-1, 7} {
		var option *OptionError
		if _, err := NewServer(ServerOptions{Model: m}); !errors.As(err, &option) || option.Field != "Model" {
			t.Errorf("server of model %d: %v", m, err)
		}
		if _, err := NewClient(ClientOptions{Servers: []string{"tcp://127.0.0.1:5556"}, Model: m}); !errors.As(err, &option) || option.Field != "Model" {
			t.Errorf("client of model %d: %v", m, err)
		}
	}
}

// Client and server of this package, in each model: updates that come back, values of
// all sizes, and a second server in place of the first.
func TestModelsTogether(t *testing.T) {
	t.Parallel()
	for m := Model(1); m <= ModelSix; m++ {
		t.Run(fmt.Sprint(m), func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			host := loopback.Own()
			first := startServer(t, ServerOptions{Host: host, Model: m})
			port := portOf(first.Endpoints().Collector) - 2
			c, err := NewClient(ClientOptions{Servers: []string{fmt.Sprintf("tcp://%s:%d", host, port)}, Model: m, SyncTimeout: hang})
			must(t, err)
			defer c.Close()
			for i, size := range []int{1, 250, 255, 256, 70_000, 5 << 20} {
				_, err := c.SetSync(ctx, fmt.Sprint("/a/", i), make([]byte, size))
				must(t, err)
			}
			must(t, c.Set(ctx, "/outside", []byte("x")))
			must(t, c.Flush(ctx))
			if c.Len() != 7 || first.Len() != 7 || c.Sequence() != first.Sequence() {
				t.Errorf("%d keys at %d, %d at the server at %d", c.Len(), c.Sequence(), first.Len(), first.Sequence())
			}
			must(t, first.Close())
			eventually(t, "the connection is lost", func() bool { return c.State() != StateActive })
			startServer(t, ServerOptions{Host: host, Model: m, Port: port})
			_, err = c.SetSync(ctx, "/new", []byte("x"))
			must(t, err)
			want := 1
			if m == 1 {
				want = 8 // there is no snapshot to say that the others are gone
			}
			if c.Len() != want {
				t.Errorf("%d keys after the server came back without its map, want %d", c.Len(), want)
			}
		})
	}
}

// Requests of another model are refused and counted, and so are updates.
func TestModelMismatch(t *testing.T) {
	t.Parallel()
	for m := Model(2); m < ModelSix; m++ {
		t.Run(fmt.Sprint(m), func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			s := startServer(t, ServerOptions{Model: m})
			dealer, err := sockets.NewDealer(sockets.Options{})
			must(t, err)
			defer dealer.Close()
			must(t, dealer.Connect(s.Endpoints().Snapshot))
			request := [][]byte{[]byte("ICANHAZ?"), nil}
			if m > 3 {
				request = request[:1]
			}
			must(t, dealer.Send(ctx, request...))
			push, err := sockets.NewPush(sockets.Options{})
			must(t, err)
			defer push.Close()
			must(t, push.Connect(s.Endpoints().Collector))
			frames := [][]byte{[]byte("k"), make([]byte, 8), nil, nil, []byte("v")}
			if m == 5 {
				frames = frames[2:]
			}
			must(t, push.Send(ctx, frames...))
			eventually(t, "both are refused", func() bool {
				stats := s.Stats()
				return stats.BadAsks == 1 && stats.Refused[ReasonFrameCount] == 1
			})
			silent, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			defer cancel()
			if got, err := dealer.Recv(silent); err == nil {
				t.Errorf("an answer: %q", got)
			}
		})
	}
}

// A client says that a server of this package is of another model, and works with one
// that differs only in whether the guide's server takes updates.
func TestModelOfServer(t *testing.T) {
	t.Parallel()
	for _, of := range []struct {
		server, client Model
		fits           bool
	}{{6, 5, false}, {5, 6, false}, {4, 5, false}, {3, 4, false}, {5, 4, false}, {3, 2, true}, {2, 3, true}, {0, 6, true}, {6, 0, true}} {
		t.Run(fmt.Sprint(of.server, of.client), func(t *testing.T) {
			t.Parallel()
			s := startServer(t, ServerOptions{Model: of.server})
			failed := make(chan error, 1)
			c, err := NewClient(ClientOptions{Servers: []string{s.Endpoints().Snapshot}, Model: of.client, SyncTimeout: hang, OnFailure: func(_ string, err error) {
				select {
				case failed <- err:
				default:
				}
			}})
			must(t, err)
			defer c.Close()
			if of.fits {
				must(t, c.WaitActive(testContext(t)))
				return
			}
			var model *ModelError
			if err := <-failed; !errors.Is(err, ErrModel) || !errors.As(err, &model) || model.Server != cmp.Or(of.server, 6) || model.Client != cmp.Or(of.client, 6) {
				t.Errorf("the client fails with %v", err)
			}
			ctx, cancel := context.WithTimeout(testContext(t), 50*time.Millisecond)
			defer cancel()
			if err := c.WaitActive(ctx); !errors.Is(err, ErrModel) {
				t.Errorf("WaitActive returns %v", err)
			}
		})
	}
}
