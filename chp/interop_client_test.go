package chp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"testing"
	"time"

	"clustermap/internal/interop"
	"clustermap/internal/kvmsg"
	"clustermap/internal/wake"
)

// The tests of this file run our client against clone_server.py, which is a CHP
// server on libzmq in the two styles of the guide's programs.

var cloneStyles = []string{"c", "py"}

// cloneServer starts a server with a short heartbeat.
func cloneServer(t *testing.T, args ...string) *interop.Process {
	t.Helper()
	return interop.Python(t, "clone_server.py", append([]string{"--heartbeat", "50"}, args...)...)
}

func cloneAt(p *interop.Process) string { return fmt.Sprintf("tcp://127.0.0.1:%d", p.Port) }

func cloneSet(key, value string) interop.Op {
	return interop.Op{"op": "set", "key": []byte(key), "value": []byte(value)}
}

// cloneClient makes a client of clone servers, and waits until it is ACTIVE.
func cloneClient(t *testing.T, o ClientOptions, servers ...*interop.Process) *Client {
	t.Helper()
	for _, p := range servers {
		o.Servers = append(o.Servers, cloneAt(p))
	}
	if o.HeartbeatTimeout == 0 {
		o.HeartbeatTimeout = hang
	}
	if o.SyncTimeout == 0 {
		o.SyncTimeout = hang
	}
	c, err := NewClient(o)
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	must(t, c.WaitActive(testContext(t)))
	return c
}

// wantClone waits until the client is as far as the server, and compares them.
func wantClone(t *testing.T, c *Client, p *interop.Process) {
	t.Helper()
	var d struct {
		interop.Map
		Sequence int64
	}
	p.Call(interop.Op{"op": "digest"}, &d)
	eventually(t, "the client is as far as the server", func() bool { return c.State() == StateActive && c.Sequence() >= d.Sequence })
	got := interop.Digest(func(yield func([]byte, []byte) bool) { c.Range(yield) })
	if got != d.Map || c.Sequence() != d.Sequence {
		t.Errorf("the client has %v at %d, the server %v at %d", got, c.Sequence(), d.Map, d.Sequence)
	}
}

// Join with keys that are there, then follow updates and
// deletions.
func TestInteropClientFollows(t *testing.T) {
	t.Parallel()
	for _, style := range cloneStyles {
		t.Run(style, func(t *testing.T) {
			t.Parallel()
			p := cloneServer(t, "--style", style)
			p.Call(interop.Op{"op": "fill", "prefix": []byte("/a/"), "count": 3000, "size": 20}, nil)
			p.Call(interop.Op{"op": "fill", "prefix": []byte("/b/"), "count": 100, "size": 100_000, "seed": 1}, nil)
			p.Call(interop.Op{"op": "set", "key": []byte("/a/ttl"), "value": []byte("x"), "properties": []byte("ttl=3600\n")}, nil)
			all := cloneClient(t, ClientOptions{}, p)
			part := cloneClient(t, ClientOptions{Subtrees: []string{"/c/", "/a/1", "/a/ttl"}}, p)
			wantClone(t, all, p)
			if got := have(part); len(got) != 2 || got["/a/ttl"] != "x" {
				t.Errorf("the client of a part has %d keys", len(got))
			}
			w := openWatch(t, all)
			must(t, w.NextBatch(testContext(t), func(e Event) bool { return e.Op != OpSynced }))

			p.Call(cloneSet("/a/1", "changed"), nil)
			p.Call(cloneSet("/a/2", ""), nil)
			p.Call(cloneSet("/c/1", "new"), nil)
			p.Call(cloneSet("/c/2", "new"), nil)
			p.Call(cloneSet("/c/2", ""), nil)
			p.Call(cloneSet("/c/3", "last"), nil)
			wantClone(t, all, p)
			wantEvents(t, w, "/a/1=changed@3102", "-/a/2@3103", "/c/1=new@3104", "/c/2=new@3105", "-/c/2@3106", "/c/3=last@3107")
			eventually(t, "the last update has come", func() bool { _, ok := part.Get("/c/3"); return ok })
			if got, want := have(part), map[string]string{"/a/1": "changed", "/a/ttl": "x", "/c/1": "new", "/c/3": "last"}; !maps.Equal(got, want) {
				t.Errorf("the client of a part has %v, want %v", got, want)
			}
			if stats := all.Stats(); stats.Syncs != 1 || len(stats.Refused) != 0 {
				t.Errorf("%d snapshots, refused %v", stats.Syncs, stats.Refused)
			}
		})
	}
}

// Sets, deletions and times to live, with and without waiting.
func TestInteropClientWrites(t *testing.T) {
	t.Parallel()
	for _, style := range cloneStyles {
		t.Run(style, func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			p := cloneServer(t, "--style", style)
			c := cloneClient(t, ClientOptions{}, p)
			seq, err := c.SetSync(ctx, "/a/1", []byte("x"), WithTTL(time.Hour), WithProperty("colour", "red"))
			must(t, err)
			if v, ok := c.Get("/a/1"); seq != 1 || !ok || string(v) != "x" {
				t.Errorf("after SetSync, %d: %q, %v", seq, v, ok)
			}
			var d interop.Dump
			p.Call(interop.Op{"op": "dump"}, &d)
			if len(d.Pairs) != 1 || string(d.Pairs[0].Properties) != "ttl=3600\ncolour=red\n" || len(d.Pairs[0].UUID) != kvmsg.UUIDSize {
				t.Errorf("the server has %+v", d.Pairs)
			}

			const n = 5000
			for i := range n {
				must(t, c.Set(ctx, "/n/"+strconv.Itoa(i), []byte(strconv.Itoa(i))))
			}
			for i := range n / 2 {
				must(t, c.Delete(ctx, "/n/"+strconv.Itoa(2*i)))
			}
			must(t, c.Flush(ctx))
			if c.Len() != n/2+1 {
				t.Errorf("%d keys after Flush", c.Len())
			}
			wantClone(t, c, p)

			must(t, c.Set(ctx, "/brief", []byte("x"), WithTTL(3*time.Second)))
			must(t, c.Flush(ctx))
			if _, ok := c.Get("/brief"); !ok {
				t.Error("gone already")
			}
			eventually(t, "it expires", func() bool { _, ok := c.Get("/brief"); return !ok })
			if _, err := c.DeleteSync(ctx, "/a/1"); err != nil {
				t.Error(err)
			}
			wantClone(t, c, p)
			var stats struct{ Malformed int }
			p.Call(interop.Op{"op": "stats"}, &stats)
			if stats.Malformed != 0 {
				t.Errorf("%d malformed", stats.Malformed)
			}
		})
	}
}

// Clients that join while updates go on end with the server's state.
func TestInteropClientsJoinUnderLoad(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	p := cloneServer(t)
	writer := cloneClient(t, ClientOptions{Subtrees: []string{"/flush"}}, p)
	done := make(chan error, 1)
	go func() {
		for i := range 20_000 {
			key, value := fmt.Sprintf("/k/%d", i*7919%1000), []byte(strconv.Itoa(i))
			if i%5 == 0 {
				value = nil
			}
			if err := writer.update(ctx, key, value, nil, nil); err != nil {
				done <- err
				return
			}
		}
		_, err := writer.SetSync(ctx, "/flush", []byte("end"))
		done <- err
	}()
	var joined []*Client
	for range 5 {
		joined = append(joined, cloneClient(t, ClientOptions{}, p))
	}
	must(t, <-done)
	for _, c := range joined {
		wantClone(t, c, p)
	}
}

// A server that sends no HUGZ is left for the backup.
func TestInteropClientSilence(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	primary, backup := cloneServer(t), cloneServer(t, "--sequence", "100")
	primary.Call(cloneSet("/gone", "x"), nil)
	primary.Call(cloneSet("/same", "x"), nil)
	backup.Call(cloneSet("/same", "x"), nil)
	backup.Call(cloneSet("/new", "x"), nil)
	c := cloneClient(t, ClientOptions{HeartbeatTimeout: 3 * time.Second}, primary, backup)
	wantClone(t, c, primary)
	w := openWatch(t, c)
	wantEvents(t, w, "/gone=x@1", "/same=x@2", "synced@2")

	// Requests are not answered any more either, or the backup's turn would be
	// over as soon as the primary's.
	primary.Call(interop.Op{"op": "answer", "on": false}, nil)
	primary.Call(interop.Op{"op": "hugz", "on": false}, nil)
	eventually(t, "the client turns to the backup", func() bool { return c.Server() == cloneAt(backup) && c.State() == StateActive })
	wantClone(t, c, backup)
	wantEvents(t, w, "/same=x@101", "/new=x@102", "-/gone@102")
	if _, err := c.SetSync(ctx, "/k", []byte("v")); err != nil {
		t.Error(err)
	}
	wantClone(t, c, backup)
}

// A server that is killed, and starts again with other content and lower
// sequences, leaves no stale key behind.
func TestInteropClientRestart(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	p := cloneServer(t)
	p.Call(interop.Op{"op": "fill", "prefix": []byte("/old/"), "count": 500, "size": 10}, nil)
	p.Call(cloneSet("/both", "x"), nil)
	c := cloneClient(t, ClientOptions{}, p)
	wantClone(t, c, p)
	_, err := c.SetSync(ctx, "/mine", []byte("v"))
	must(t, err)
	p.Kill()
	eventually(t, "the client notices", func() bool { return c.State() != StateActive })
	if c.Len() != 502 {
		t.Errorf("without a server the client has %d keys", c.Len())
	}
	if _, err := c.SetSync(wake.Ended, "/k", []byte("v")); !errors.Is(err, context.Canceled) {
		t.Errorf("SetSync without a server: %v", err)
	}

	p = cloneServer(t, "--port", strconv.Itoa(p.Port))
	p.Call(cloneSet("/both", "y"), nil)
	p.Call(cloneSet("/new", "z"), nil)
	eventually(t, "the client is back", func() bool { v, _ := c.Get("/new"); return string(v) == "z" })
	wantClone(t, c, p)
	if got, want := have(c), map[string]string{"/both": "y", "/new": "z"}; !maps.Equal(got, want) {
		t.Errorf("the client has %v, want %v", got, want)
	}
	_, err = c.SetSync(ctx, "/mine", []byte("again"))
	must(t, err)
	wantClone(t, c, p)
}
