package interop_test

import (
	"fmt"
	"maps"
	"reflect"
	"testing"
	"time"

	"clustermap/internal/interop"
)

// server starts clone_server.py with a short heartbeat.
func server(t *testing.T, args ...string) *interop.Process {
	t.Helper()
	return interop.Python(t, "clone_server.py", append([]string{"--heartbeat", "50"}, args...)...)
}

// client starts clone_client.py and waits until it is ACTIVE.
func client(t *testing.T, args ...string) *interop.Process {
	t.Helper()
	p := interop.Python(t, "clone_client.py", args...)
	p.Call(interop.Op{"op": "wait_active"}, nil)
	return p
}

// set returns a client's "set" command.
func set(key, value string) interop.Op {
	return interop.Op{"op": "set", "key": []byte(key), "value": []byte(value)}
}

func wait(key, value string) interop.Op {
	return interop.Op{"op": "wait", "key": []byte(key), "value": []byte(value)}
}

func dump(p *interop.Process) interop.Dump {
	var d interop.Dump
	p.Call(interop.Op{"op": "dump"}, &d)
	return d
}

func TestCloneConverges(t *testing.T) {
	t.Parallel()
	for _, style := range []string{"c", "py"} {
		t.Run(style, func(t *testing.T) {
			t.Parallel()
			s := server(t, "--style", style)
			s.Call(set("/a/before", "1"), nil)
			s.Call(set("/b/before", "2"), nil)
			one := client(t, "--server", at(s), "--style", style)
			two := client(t, "--server", at(s), "--style", style, "--subtree", "/a/")

			one.Call(set("/a/gone", "x"), nil)
			one.Call(set("/b/after", "3"), nil)
			one.Call(set("/a/gone", ""), nil)
			two.Call(set("/a/after", "4"), nil)
			one.Call(wait("/a/after", "4"), nil)
			two.Call(wait("/a/after", "4"), nil)
			// The clients use different connections, whose order is undefined.
			// A sixth update determines the last value.
			two.Call(interop.Op{"op": "wait", "key": []byte("/a/gone")}, nil)
			one.Call(wait("/b/after", "3"), nil)
			one.Call(set("/a/last", "5"), nil)
			one.Call(wait("/a/last", "5"), nil)
			two.Call(wait("/a/last", "5"), nil)

			all := map[string]string{"/a/before": "1", "/b/before": "2", "/b/after": "3", "/a/after": "4", "/a/last": "5"}
			part := map[string]string{"/a/before": "1", "/a/after": "4", "/a/last": "5"}
			for p, want := range map[*interop.Process]map[string]string{s: all, one: all, two: part} {
				d := dump(p)
				if got := d.Values(); !maps.Equal(got, want) {
					t.Errorf("map is %v, want %v", got, want)
				}
				if d.Sequence != 7 {
					t.Errorf("sequence is %d, want 7", d.Sequence)
				}
			}
			var stats struct{ Malformed, KVSet int }
			s.Call(interop.Op{"op": "stats"}, &stats)
			if stats.Malformed != 0 || stats.KVSet != 5 {
				t.Errorf("server counts %+v", stats)
			}
		})
	}
}

func TestCloneExpires(t *testing.T) {
	t.Parallel()
	s := server(t)
	c := client(t, "--server", at(s), "--events")
	begin := time.Now().UnixMilli()
	put := func(key string, ttl int) {
		c.Call(interop.Op{"op": "set", "key": []byte(key), "value": []byte("v"), "ttl": ttl, "properties": []byte("a=b=c\n")}, nil)
	}
	put("long", 3600)
	c.Call(wait("long", "v"), nil)
	d := dump(s)
	if len(d.Pairs) != 1 || d.Pairs[0].TTL < begin+3600_000 || string(d.Pairs[0].Properties) != "a=b=c\nttl=3600\n" {
		t.Fatalf("server holds %+v", d.Pairs)
	}
	var told struct{ Key, Properties, Value, UUID []byte }
	c.Event("update", &told)
	if string(told.Properties) != "a=b=c\nttl=3600\n" {
		t.Errorf("KVPUB of the set has properties %q", told.Properties)
	}

	// A snapshot, and the update that deletes the pair, have the time of expiry
	// instead of the time to live.
	late := interop.Python(t, "clone_client.py", "--server", at(s), "--events")
	late.Event("kvsync", &told)
	if want := fmt.Sprintf("a=b=c\nttl=%d\n", d.Pairs[0].TTL); string(told.Properties) != want || len(told.UUID) != 16 {
		t.Errorf("KVSYNC is %q %q with a UUID of %d bytes", told.Key, told.Properties, len(told.UUID))
	}
	put("short", 1)
	c.Event("update", &told)
	c.Event("update", &told)
	var expiry int64
	if _, err := fmt.Sscanf(string(told.Properties), "a=b=c\nttl=%d\n", &expiry); err != nil || expiry < begin+1000 {
		t.Errorf("KVPUB of the expiry has properties %q", told.Properties)
	}
	if string(told.Key) != "short" || len(told.Value) != 0 {
		t.Errorf("KVPUB of the expiry is %q with value %q", told.Key, told.Value)
	}
	if got := dump(s).Values(); !maps.Equal(got, map[string]string{"long": "v"}) {
		t.Errorf("%v is left", got)
	}
}

func TestCloneIgnoresMalformed(t *testing.T) {
	t.Parallel()
	s := server(t)
	c := client(t, "--server", at(s))
	eight := make([]byte, 8)
	for _, frames := range [][][]byte{
		{[]byte("k")},
		{[]byte("k"), eight, nil, nil},
		{nil, eight, nil, nil, []byte("v")},
		{[]byte("k"), eight[:7], nil, nil, []byte("v")},
		{[]byte("k"), eight, []byte("short"), nil, []byte("v")},
		{[]byte("k"), eight, nil, []byte("no line"), []byte("v")},
		{[]byte("k"), eight, nil, nil, []byte("v"), nil},
	} {
		c.Call(interop.Op{"op": "publish", "frames": frames}, nil)
	}
	c.Call(set("good", "yes"), nil)
	c.Call(wait("good", "yes"), nil)
	if d := dump(s); d.Sequence != 1 || len(d.Pairs) != 1 {
		t.Errorf("server is at %d with %v", d.Sequence, d.Values())
	}
	// None of these messages stops the client, and old updates change nothing.
	for _, frames := range [][][]byte{
		{[]byte("k")},
		{[]byte("k"), {1}, nil, nil, []byte("v")},
		{[]byte("good"), eight, nil, nil, []byte("old")},
		{[]byte("good"), {7: 1}, nil, nil, []byte("same")},
	} {
		s.Call(interop.Op{"op": "publish", "frames": frames}, nil)
	}
	s.Call(set("end", "1"), nil)
	c.Call(wait("end", "1"), nil)
	if got := dump(c).Values(); !maps.Equal(got, map[string]string{"good": "yes", "end": "1"}) {
		t.Errorf("client has %v", got)
	}
	var stats struct{ Malformed, Discarded int }
	c.Call(interop.Op{"op": "stats"}, &stats)
	if stats.Malformed != 2 || stats.Discarded != 2 {
		t.Errorf("client counts %+v, want 2 malformed and 2 discarded", stats)
	}
}

func TestCloneBulk(t *testing.T) {
	t.Parallel()
	s := server(t)
	s.Call(interop.Op{"op": "fill", "prefix": []byte("s/"), "count": 2000, "size": 40, "seed": 1}, nil)
	c := client(t, "--server", at(s), "--publisher", "pub", "--settle", "100")
	// A PUB does not know when its subscriber is ready. When a first update has
	// been published, all later ones arrive.
	for back := false; !back; {
		c.Call(set("probe", "1"), nil)
		probe := wait("probe", "1")
		probe["seconds"] = 0.2
		back = c.Start(probe).Wait(t.Context(), nil) == nil
	}
	c.Call(set("probe", ""), nil)
	c.Call(interop.Op{"op": "fill", "prefix": []byte("c/"), "count": 2000, "size": 300, "seed": 2}, nil)
	s.Call(interop.Op{"op": "wait_count", "count": 4000}, nil)
	c.Call(interop.Op{"op": "wait_count", "count": 4000}, nil)
	want := interop.Digest(func(yield func(k, v []byte) bool) {
		for i := range 2000 {
			if !yield(fmt.Appendf(nil, "s/%d", i), interop.Pattern(1, i, 0, 40)) ||
				!yield(fmt.Appendf(nil, "c/%d", i), interop.Pattern(2, i, 0, 300)) {
				return
			}
		}
	})
	for _, p := range []*interop.Process{s, c} {
		var got interop.Map
		p.Call(interop.Op{"op": "digest"}, &got)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("digest is %+v, want %+v", got, want)
		}
	}
}

func TestCloneFailsOver(t *testing.T) {
	t.Parallel()
	one, two := server(t), server(t)
	one.Call(set("one", "1"), nil)
	two.Call(set("two", "2"), nil)
	c := client(t, "--server", at(one), "--server", at(two), "--timeout", "500")
	one.Call(interop.Op{"op": "hugz", "on": false}, nil)
	c.Call(wait("two", "2"), nil)
	if got := dump(c).Values(); !maps.Equal(got, map[string]string{"two": "2"}) {
		t.Errorf("after the failover the client has %v", got)
	}
	// Back again, because the second server does not answer requests.
	two.Kill()
	one.Call(interop.Op{"op": "hugz", "on": true}, nil)
	c.Call(wait("one", "1"), nil)

	one.Call(interop.Op{"op": "answer", "on": false}, nil)
	late := interop.Python(t, "clone_client.py", "--server", at(one), "--timeout", "300")
	for requests := 0; requests < 2; {
		var state struct{ State string }
		late.Event("state", &state)
		switch state.State {
		case "SYNCING":
			requests++
		case "ACTIVE":
			t.Fatal("ACTIVE without an answer")
		}
	}
	one.Call(interop.Op{"op": "answer", "on": true}, nil)
	late.Call(wait("one", "1"), nil)
}
