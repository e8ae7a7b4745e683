package chp

import (
	"fmt"
	"testing"

	"clustermap/chp/internal/submit"
	"clustermap/internal/testenv"
)

func TestClientGetAllocatesNothing(t *testing.T) {
	c := idleClient(t, ClientOptions{})
	begin(t, c, 0, pub{"/some/key", 1, "some value"})
	buffer := make([]byte, 0, 100)
	if n := testenv.Allocs(0, 1000, func() {
		value, ok := c.AppendGet(buffer, "/some/key")
		if !ok || len(value) != 10 {
			t.Fatal("not found")
		}
		if _, ok := c.AppendGet(buffer, "/other/key"); ok {
			t.Fatal("found")
		}
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func TestClientApplyAllocatesNothing(t *testing.T) {
	c := idleClient(t, ClientOptions{})
	begin(t, c, 0)
	c.writer.Begin(&submit.Server{Session: nowhere{}})
	defer c.writer.Close()
	for range 1000 { // so that it looks for its own updates
		must(t, c.Set(t.Context(), "/own", []byte("value")))
	}
	var batch []pub
	for i := range 200 {
		p := pub{fmt.Sprint("key", i), int64(i + 1), "some value"}
		if i%10 == 9 {
			p = pub{fmt.Sprint("key", i-1), int64(i + 1), ""}
		}
		batch = append(batch, p)
	}
	wire, spans := wireBatch(t, batch...)
	apply := func() {
		c.live.Apply(wire, spans, 200)
		c.writer.Applied(wire, spans)
	}
	for range 2000 {
		apply()
	}
	if n := testenv.Allocs(0, 1000, apply); n != 0 {
		t.Errorf("%v allocations for %d updates, want 0", n, len(spans))
	}
}

// A Set that need not wait allocates nothing, all the way to the socket.
func TestClientSetAllocatesNothing(t *testing.T) {
	ctx := testContext(t)
	s := newScripted(t, asPlain)
	c := activeClient(t, s, ClientOptions{})
	stop := make(chan struct{})
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		for {
			if _, err := s.sub.Recv(s.ctx); err != nil {
				return
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	value := []byte("some value")
	set := func() {
		if err := c.Set(ctx, "/some/key", value, WithTTL(30e9)); err != nil {
			t.Fatal(err)
		}
	}
	for range 1000 {
		set()
	}
	// The other end allocates for every message, so it must not read now.
	close(stop)
	set()
	<-drained
	if n := testenv.Allocs(0, 500, set); n >= 1 {
		t.Errorf("%v allocations, want 0", n)
	}
}

// TestSetSyncAllocatesOnlyItsWait: not the server's reply, nor what the client does with it, nor
// the key, which is on the caller's stack. The wait is a value and a channel.
func TestSetSyncAllocatesOnlyItsWait(t *testing.T) {
	ctx := testContext(t)
	c := startClient(t, startServer(t, ServerOptions{HeartbeatInterval: hang}), ClientOptions{})
	key, value := []byte("/some/key"), []byte("some value")
	if n := testenv.Allocs(2000, 2000, func() {
		if _, err := c.SetSync(ctx, string(key), value); err != nil {
			t.Fatal(err)
		}
	}); n > 2 {
		t.Errorf("%v allocations, want 2", n)
	}
}
