package chp

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"clustermap/internal/interop"
	"clustermap/internal/loopback"
)

// The tests of this file run our client and server with clone_models.py, which has
// the sockets and frames of the guide's programs of Clone models 1 to 5.

// eachModel runs a test for each model and each style of the guide's programs.
func eachModel(t *testing.T, test func(t *testing.T, m Model, guide func(role string, args ...string) *interop.Process, host string)) {
	t.Parallel()
	for m := Model(1); m < ModelSix; m++ {
		for _, style := range cloneStyles {
			if m < 5 && style != cloneStyles[0] {
				continue // they differ in five frames only
			}
			t.Run(fmt.Sprintf("%d-%s", m, style), func(t *testing.T) {
				t.Parallel()
				interop.Require(t)
				host := loopback.OwnPorts(t)
				test(t, m, func(role string, args ...string) *interop.Process {
					t.Helper()
					return interop.Python(t, "clone_models.py", append([]string{
						role, "--model", strconv.Itoa(int(m)), "--style", style, "--host", host}, args...)...)
				}, host)
			})
		}
	}
}

// modelDigest describes the map of a Python program, restricted to a subtree.
func modelDigest(p *interop.Process, subtree string) interop.Map {
	var d interop.Map
	p.Call(interop.Op{"op": "digest", "prefix": []byte(subtree)}, &d)
	return d
}

// clientDigest is the same of a client of ours.
func clientDigest(c *Client, subtree string) interop.Map {
	return interop.Digest(func(yield func([]byte, []byte) bool) {
		c.Range(func(key, value []byte) bool {
			return len(key) < len(subtree) || string(key[:len(subtree)]) != subtree || yield(key, value)
		})
	})
}

// noMalformed checks that a Python program has understood all that it received.
func noMalformed(t *testing.T, p *interop.Process) {
	t.Helper()
	var stats struct{ Malformed int }
	p.Call(interop.Op{"op": "stats"}, &stats)
	if stats.Malformed > 0 {
		t.Errorf("%d messages are malformed", stats.Malformed)
	}
}

// Our clients follow a guide server of each model, and write where the model has that:
// snapshots, updates, a subtree, and an orderly error for operations that the model
// lacks.
func TestModelClients(t *testing.T) {
	eachModel(t, func(t *testing.T, m Model, guide func(string, ...string) *interop.Process, host string) {
		ctx := testContext(t)
		p := guide("server")
		for i := range 50 {
			p.Call(cloneSet(fmt.Sprintf("/client/%d", i), fmt.Sprint("v", i)), nil)
		}
		p.Call(cloneSet("/other/1", "x"), nil)
		open := func(subtrees ...string) *Client {
			c, err := NewClient(ClientOptions{Servers: []string{"tcp://" + host + ":5556"}, Model: m, Subtrees: subtrees, SyncTimeout: hang})
			must(t, err)
			t.Cleanup(func() { must(t, c.Close()) })
			must(t, c.WaitActive(ctx))
			return c
		}
		all, part := open(), open("/client/")
		p.Call(interop.Op{"op": "wait_joined", "topics": 2}, nil)
		if m == 1 {
			if all.Len() > 0 {
				t.Errorf("%d keys are there, without a snapshot", all.Len())
			}
			for i := range 50 {
				p.Call(cloneSet(fmt.Sprintf("/client/%d", i), "again"), nil)
			}
			p.Call(cloneSet("/other/1", "again"), nil)
		}
		p.Call(cloneSet("/client/7", "changed"), nil)
		p.Call(cloneSet("/client/new", "n"), nil)
		if m == 5 {
			p.Call(cloneSet("/client/8", ""), nil)
			p.Call(interop.Op{"op": "set", "key": []byte("/client/brief"), "value": []byte("x"), "ttl": 1}, nil)
		}
		p.Call(cloneSet("/client/last", "x"), nil)
		for _, c := range []*Client{all, part} {
			eventually(t, "the server's updates have come", func() bool { _, ok := c.Get("/client/last"); return ok })
		}

		err := all.Delete(ctx, "/client/9")
		if (m < 5) != errors.Is(err, ErrModel) || m == 5 && err != nil {
			t.Errorf("Delete: %v", err)
		}
		if err := all.Set(ctx, "/client/9", []byte("x"), WithTTL(time.Hour)); (m < 5) != errors.Is(err, ErrModel) || m == 5 && err != nil {
			t.Errorf("Set with a time to live: %v", err)
		}
		if m < 3 {
			_, err := all.SetSync(ctx, "/client/mine", []byte("m"))
			if refused := (*CollectorError)(nil); !errors.As(err, &refused) {
				t.Errorf("SetSync with a server that takes no updates: %v", err)
			}
			must(t, all.WaitActive(ctx))
			p.Call(interop.Op{"op": "wait_joined", "topics": 2}, nil)
			p.Call(cloneSet("/client/end", "e"), nil)
		} else {
			for i := range 300 {
				must(t, all.Set(ctx, fmt.Sprintf("/client/own%d", i%100), fmt.Append(nil, i)))
			}
			must(t, all.Set(ctx, "/other/mine", []byte("m")))
			must(t, part.Set(ctx, "/outside", []byte("not seen by its own client")))
			must(t, all.Flush(ctx))
			seq, err := part.SetSync(ctx, "/client/end", []byte("e"))
			must(t, err)
			if seq != part.Sequence() || seq < 300 {
				t.Errorf("SetSync returned %d, the client is at %d", seq, part.Sequence())
			}
			// An equal update again, which only its order tells from the first.
			next, err := part.SetSync(ctx, "/client/end", []byte("e"))
			must(t, err)
			if next <= seq {
				t.Errorf("SetSync returned %d, then %d", seq, next)
			}
		}
		for _, c := range []*Client{all, part} {
			eventually(t, "the last update has come", func() bool { _, ok := c.Get("/client/end"); return ok })
		}
		if m == 5 {
			eventually(t, "the key is gone", func() bool { _, ok := all.Get("/client/brief"); return !ok })
			p.Call(interop.Op{"op": "wait", "key": []byte("/client/brief")}, nil)
		}
		eventually(t, "the client has what the server has", func() bool { return clientDigest(all, "") == modelDigest(p, "") })
		eventually(t, "the client of a part has it", func() bool { return clientDigest(part, "") == modelDigest(p, "/client/") })
		noMalformed(t, p)
		for _, c := range []*Client{all, part} {
			if stats := c.Stats(); len(stats.Refused) > 0 || stats.Gaps > 0 {
				t.Errorf("refused %v, %d gaps", stats.Refused, stats.Gaps)
			}
		}
	})
}

// Our server of each model with guide clients of that model: one that is there early,
// one that joins late, and one that sends updates of its own where the model has that.
func TestModelServers(t *testing.T) {
	eachModel(t, func(t *testing.T, m Model, guide func(string, ...string) *interop.Process, host string) {
		ctx := testContext(t)
		s := startServer(t, ServerOptions{Host: host, Port: DefaultPort, Model: m, HeartbeatInterval: 10 * time.Millisecond})
		feeder, err := NewClient(ClientOptions{Servers: []string{"tcp://" + host + ":5556"}, Model: m, SyncTimeout: hang})
		must(t, err)
		defer feeder.Close()
		set := func(key, value string) {
			t.Helper()
			_, err := feeder.SetSync(ctx, key, []byte(value))
			must(t, err)
		}
		// An update shows a client that its subscription is in force.
		joins := func(p *interop.Process, subtree string) *interop.Process {
			t.Helper()
			joined := func() bool {
				var stats struct{ Applied, Snapshots int }
				p.Call(interop.Op{"op": "stats"}, &stats)
				return stats.Applied+stats.Snapshots > 0
			}
			eventually(t, "a client has joined", func() bool { set(subtree+"probe", "1"); return joined() })
			p.Call(interop.Op{"op": "wait_joined"}, nil)
			return p
		}
		early := joins(guide("client"), "")
		for i := range 1500 {
			must(t, feeder.Set(ctx, fmt.Sprintf("/client/%d", i), fmt.Append(nil, "v", i)))
		}
		must(t, feeder.Set(ctx, "/client/large", make([]byte, 100_000)))
		must(t, feeder.Flush(ctx))
		late := joins(guide("client", "--subtree", "/client/"), "/client/")
		if m > 2 {
			for i := range 100 {
				early.Call(cloneSet(fmt.Sprintf("/client/%d", i), "theirs"), nil)
			}
			late.Call(cloneSet("/client/late", "x"), nil)
			eventually(t, "their updates are in the map", func() bool {
				_, ok := s.Get("/client/late")
				v, _ := s.Get("/client/99")
				return ok && string(v) == "theirs"
			})
		}
		if m == 5 {
			early.Call(cloneSet("/client/5", ""), nil)
			early.Call(interop.Op{"op": "set", "key": []byte("/client/brief"), "value": []byte("x"), "ttl": 1}, nil)
			eventually(t, "the key is there", func() bool { _, ok := s.Get("/client/brief"); return ok })
			early.Call(interop.Op{"op": "wait", "key": []byte("/client/brief")}, nil)
		}
		set("/client/end", "e")
		for _, p := range []*interop.Process{early, late} {
			p.Call(interop.Op{"op": "wait", "key": []byte("/client/end"), "value": []byte("e")}, nil)
			noMalformed(t, p)
		}
		eventually(t, "the feeder has everything", func() bool { return feeder.Sequence() == s.Sequence() })
		want := clientDigest(feeder, "/client/")
		if got := modelDigest(early, "/client/"); got != want {
			t.Errorf("the early client has %v, the server %v", got, want)
		}
		if got := modelDigest(late, "/client/"); m > 1 && got != want {
			t.Errorf("the late client has %v, the server %v", got, want)
		}
		if stats := s.Stats(); len(stats.Refused) > 0 || stats.BadAsks > 0 || feeder.Len() != stats.Keys {
			t.Errorf("refused %v and %d requests; %d keys, the feeder has %d", stats.Refused, stats.BadAsks, stats.Keys, feeder.Len())
		}
	})
}
