package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"

	"clustermap/internal/interop"
	"clustermap/internal/loopback"
)

// A client on libzmq that works as the guide's of model 6, and knows nothing of ours,
// fails over between the two servers of a pair under its updates: first when the active
// one is killed, then by a planned handover. No update is lost, and in the end
// it has the same content as the active server.
func TestPairWithGuideClient(t *testing.T) {
	t.Parallel()
	interop.Require(t)
	host := loopback.Own()
	endpoints := [2]string{"tcp://" + host + ":5556", "tcp://" + host + ":5566"}
	dirs := [2]string{t.TempDir(), t.TempDir()}
	run := func(i int) *server {
		p := start(t, "serve", []string{"--primary", "--backup"}[i], "--host", host, "--data", dirs[i],
			"--bstar-interval", "1s", "--heartbeat", "100ms")
		return &server{process: p, endpoint: p.ready()}
	}
	servers := [2]*server{run(0), run(1)}
	both := []string{"--server", endpoints[0], "--server", endpoints[1]}
	status := func(i int) map[string]any {
		o := try(t, "status", "--json", "--server", endpoints[i])
		if strings.TrimSpace(o.out) == "" {
			return nil
		}
		return object(t, strings.TrimSpace(o.out))
	}
	inSync := func(active int) {
		t.Helper()
		for {
			if st := status(active); st["state"] == "active" && st["in_sync"] == true {
				return
			}
			if t.Context().Err() != nil {
				t.Fatal("the pair does not form")
			}
		}
	}
	must(t, append([]string{"set", "/begun", "1", "--timeout", "1m"}, both...)...)
	inSync(0)

	at := [2]string{host + ":5556", host + ":5566"}
	p := interop.Python(t, "clone_guide.py", "--server", at[0], "--server", at[1], "--timeout", "3000")
	p.Call(interop.Op{"op": "wait_subscribed"}, nil)
	p.Call(interop.Op{"op": "wait_active", "server": at[0]}, nil)
	const keys = 50
	write := func(on bool) (sent int) {
		var answer struct{ Sent int }
		p.Call(interop.Op{"op": "write", "prefix": []byte("/w/"), "keys": keys, "on": on}, &answer)
		return answer.Sent
	}
	seen := "" // the value of /seen at the end of the last check
	// check compares the updates that the client sent last with its own content and with
	// the server's.
	check := func(active int) {
		t.Helper()
		sent := write(false)
		p.Call(interop.Op{"op": "set", "key": []byte("/end"), "value": fmt.Appendf(nil, "%d", sent)}, nil)
		p.Call(interop.Op{"op": "wait_active", "server": at[active]}, nil)
		want := map[string]string{"/begun": "1", "/end": fmt.Sprint(sent)}
		if seen != "" {
			want["/seen"] = seen
		}
		for n := max(sent-keys, 0); n < sent; n++ {
			want[fmt.Sprintf("/w/%d", n%keys)] = fmt.Sprint(n)
		}
		var got map[string]string
		for !maps.Equal(got, want) && t.Context().Err() == nil {
			got = map[string]string{}
			for line := range strings.Lines(must(t, "dump", "--server", endpoints[active])) {
				var e struct{ Key, Value string }
				if err := json.Unmarshal([]byte(line), &e); err != nil {
					t.Fatal(err)
				}
				got[e.Key] = e.Value
			}
			if got["/end"] == want["/end"] && !maps.Equal(got, want) {
				t.Fatalf("the active server has %v, want %v", got, want)
			}
		}
		// The client stores its own updates at once, and so has everything that the
		// server has only once it has a later update of another client.
		want["/seen"] = want["/end"]
		must(t, append([]string{"set", "/seen", want["/seen"], "--timeout", "1m"}, both...)...)
		p.Call(interop.Op{"op": "wait", "key": []byte("/seen"), "value": []byte(want["/seen"])}, nil)
		var d interop.Dump
		p.Call(interop.Op{"op": "dump"}, &d)
		if have := d.Values(); !maps.Equal(have, want) {
			t.Fatalf("the client has %v, want %v", have, want)
		}
		seen = want["/seen"]
	}

	write(true)
	for status(0)["keys"].(float64) < keys+1 && t.Context().Err() == nil {
	}
	servers[0].signal(os.Kill)
	servers[0].wait()
	p.Call(interop.Op{"op": "wait_active", "server": at[1]}, nil)
	check(1)

	servers[0] = run(0)
	inSync(1)
	p.Call(interop.Op{"op": "wait_subscribed"}, nil)
	write(true)
	// The other server follows before the active one has heard that it is passive.
	for o := try(t, append([]string{"failover"}, both...)...); o.code != exitDone; o = try(t, append([]string{"failover"}, both...)...) {
		if !strings.Contains(o.stderr, "cannot take over") || t.Context().Err() != nil {
			t.Fatal(o.stderr)
		}
	}
	p.Call(interop.Op{"op": "wait_active", "server": at[0]}, nil)
	check(0)

	var stats struct{ Syncs, Twice, Malformed int }
	p.Call(interop.Op{"op": "stats"}, &stats)
	if stats.Syncs != 3 || stats.Twice > 0 || stats.Malformed > 0 {
		t.Errorf("%+v; want three snapshots, and nothing twice", stats)
	}
}
