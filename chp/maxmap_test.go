package chp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// leaves returns options with a channel that gets the errors for which a client leaves
// its server.
func leaves(o ClientOptions) (ClientOptions, <-chan error) {
	all := make(chan error, 100)
	o.OnFailure = func(_ string, err error) {
		select {
		case all <- err:
		default:
		}
	}
	return o, all
}

// TestClientLeavesAServerWhoseSnapshotIsTooLarge: it does so while the snapshot arrives,
// which need not have an end, and WaitActive returns the reason.
func TestClientLeavesAServerWhoseSnapshotIsTooLarge(t *testing.T) {
	t.Parallel()
	for _, ours := range []bool{true, false} {
		t.Run(fmt.Sprintf("of this package %v", ours), func(t *testing.T) {
			t.Parallel()
			s := newScripted(t, ours)
			o, left := leaves(ClientOptions{MaxMapBytes: 64 << 10})
			c := followScripted(t, o, s)
			stop := s.beat(0)
			defer stop()
			id, _ := s.ask()
			for i := range 70 {
				s.kvsync(id, pub{fmt.Sprint("/k/", i), int64(i + 1), strings.Repeat("v", 1000)})
			}
			err := <-left
			if !errors.Is(err, ErrMapTooLarge) {
				t.Errorf("it leaves the server with %v", err)
			}
			ended, cancel := context.WithCancel(testContext(t))
			cancel()
			if err := c.WaitActive(ended); !errors.Is(err, ErrMapTooLarge) || !errors.As(err, new(*NotActiveError)) {
				t.Errorf("WaitActive: %v", err)
			}
		})
	}
}

// TestClientLeavesAServerWhoseSnapshotDoesNotEnd: it does so although what arrives does not
// make its map larger, and so it can follow another server.
func TestClientLeavesAServerWhoseSnapshotDoesNotEnd(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("v", 64<<10)
	for name, p := range map[string]pub{
		"one key":       {"/k", 1, large},
		"a deletion":    {"/" + large[:200], 1, ""},
		"invalid key":   {"HUGZ", 1, large},
		"outside":       {"/other/k", 1, large},
		"a key too big": {large, 1, "v"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScripted(t, true)
			o, left := leaves(ClientOptions{MaxMapBytes: 256 << 10, Subtrees: []string{"/k", "/v"}})
			followScripted(t, o, s)
			stop := s.beat(0)
			defer stop()
			id, _ := s.ask()
			for {
				select {
				case err := <-left:
					if !errors.Is(err, ErrMapTooLarge) {
						t.Errorf("it leaves the server with %v", err)
					}
					return
				default:
					s.kvsync(id, p)
				}
			}
		})
	}
}

// TestClientLeavesAServerWhoseMapBecomesTooLarge: the client keeps what it has, and
// follows the server again when the map is smaller.
func TestClientLeavesAServerWhoseMapBecomesTooLarge(t *testing.T) {
	t.Parallel()
	s := startServer(t, ServerOptions{})
	ctx := testContext(t)
	err := s.Set(ctx, "/first", []byte("1"))
	must(t, err)
	o, left := leaves(ClientOptions{MaxMapBytes: 16 << 10})
	c := startClient(t, s, o)
	must(t, c.WaitActive(ctx))
	for _, large := range []int{1 << 10, 1 << 20} { // by many updates, and by one
		for i := range 20 {
			if err := s.Set(ctx, fmt.Sprint("/k/", i), make([]byte, large)); err != nil {
				t.Fatal(err)
			}
		}
		for err = <-left; !errors.Is(err, ErrMapTooLarge); err = <-left {
			t.Errorf("it leaves the server with %v", err)
		}
		if got, _ := c.Get("/first"); string(got) != "1" {
			t.Errorf("the client has %q", got)
		}
		for i := range 20 {
			if err := s.Delete(ctx, fmt.Sprint("/k/", i)); err != nil {
				t.Fatal(err)
			}
		}
		must(t, c.WaitActive(ctx))
		if n := c.Len(); n != 1 {
			t.Errorf("the client has %d keys", n)
		}
		for len(left) > 0 {
			<-left
		}
	}
}

// TestClientMapBoundHasADefault: a client without options does not take a map of any size.
func TestClientMapBoundHasADefault(t *testing.T) {
	t.Parallel()
	for given, want := range map[int64]int64{0: DefaultMaxMapBytes, 5: 5} {
		o, _, err := ClientOptions{Servers: []string{"tcp://127.0.0.1:1"}, MaxMapBytes: given}.withDefaults()
		must(t, err)
		if o.MaxMapBytes != want {
			t.Errorf("%d means %d", given, o.MaxMapBytes)
		}
	}
}
