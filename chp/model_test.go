package chp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"clustermap/internal/loopback"
	"clustermap/sockets"
)

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
