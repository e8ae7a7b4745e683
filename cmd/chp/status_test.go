package main

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"clustermap/chp"
	"clustermap/internal/loopback"
	"clustermap/sockets"
)

// A line for each server, and an exit code that says whether one is active.
func TestStatus(t *testing.T) {
	t.Parallel()
	s := serve(t)
	must(t, "set", "/k", "v", "--server", s.endpoint)
	line := object(t, must(t, "status", "--json", "--server", s.endpoint))
	for field, want := range map[string]any{"endpoint": s.endpoint, "role": "alone", "state": "active", "keys": 1.0, "epoch": 0.0, "peer": nil, "in_sync": nil, "lag": nil} {
		if got, there := line[field]; !there || got != want {
			t.Errorf("%s is %v, want %v", field, got, want)
		}
	}
	if line["memory_bytes"].(float64) < 1<<20 {
		t.Errorf("%v", line)
	}
	if got := object(t, must(t, "get", "/k", "--json", "--server", s.endpoint))["seq"]; got != line["sequence"] {
		t.Errorf("sequence %v, want %v", line["sequence"], got)
	}

	nobody := "tcp://" + loopback.Own() + ":1"
	o := try(t, "status", "--server", nobody, "--server", s.endpoint)
	o.expect(t, exitDone, "chp: no answer from "+nobody+": connection refused")
	for row, want := range map[string][]string{
		"server": {nobody, s.endpoint}, "role": {"-", "alone"}, "state": {"no answer", "active"}, "epoch": {"-", "0"}, "keys": {"-", "1"},
		"peer": {"-", "-"}, "in sync": {"-", "-"}, "lag": {"-", "-"}, "sequence": {"-", line["sequence"].(string)},
	} {
		if got := cells(o.out, row); !slices.Equal(got, want) {
			t.Errorf("%s is %q, want %q", row, got, want)
		}
	}
	o = try(t, "status", "--json", "--server", nobody, "--server", s.endpoint)
	lines := strings.Split(strings.TrimSuffix(o.out, "\n"), "\n")
	if len(lines) != 2 || object(t, lines[0])["error"] != "connection refused" || object(t, lines[1])["state"] != "active" {
		t.Errorf("%s", o.out)
	}
	try(t, "status", "--server", nobody).expect(t, exitNoServer, "no server answered: "+nobody+" (connection refused)")
}

// The version is that of the server's program, which chose its text; a server of an earlier
// version says none.
func TestStatusTellsVersionOfServer(t *testing.T) {
	t.Parallel()
	s := serve(t)
	want := object(t, must(t, "version", "--json"))["version"]
	if got := object(t, must(t, "status", "--json", "--server", s.endpoint))["version"]; got == nil || got != want {
		t.Errorf("%v, want %v", got, want)
	}
	if got := cells(must(t, "status", "--server", s.endpoint), "version"); !slices.Equal(got, []string{want.(string)}) {
		t.Errorf("%q, want %q", got, want)
	}
	var out, errs strings.Builder
	all := replies{{server: "hostile", status: chp.Status{Version: "v1\x1b[2J"}}, {server: "early"}}
	if err := errors.Join(all.printText(&out, &errs), all.printJSON(&errs)); err != nil {
		t.Fatal(err)
	}
	if got := cells(out.String(), "version"); !slices.Equal(got, []string{`v1\u001b[2J`, "-"}) || !strings.Contains(errs.String(), `"version":null`) {
		t.Errorf("%q, %s", got, errs.String())
	}
}

// cells returns the cells of a row that chp status prints, of all groups of servers.
func cells(text, row string) (all []string) {
	for line := range strings.Lines(text) {
		if rest, found := strings.CutPrefix(line, row+" "); found {
			all = append(all, gap.Split(strings.TrimSpace(rest), -1)...)
		}
	}
	return all
}

var gap = regexp.MustCompile("  +")

// The output of chp status fits into a terminal, for any number of servers and any
// answers.
func TestStatusWidth(t *testing.T) {
	t.Parallel()
	longest := chp.Status{
		Role: chp.RolePrimary, State: chp.ServerActive, Epoch: math.MaxUint64, Sequence: math.MaxInt64, Keys: math.MaxInt, Clients: math.MaxInt,
		Peer: "tcp://255.255.255.255:65533", Lag: math.MaxInt64, MemoryBytes: math.MaxInt64, UptimeSeconds: 1 << 32,
	}
	for r := range longest.Refused {
		longest.Refused[r] = 1 << 40
	}
	for n := 1; n < 6; n++ {
		var all replies
		var servers []string
		for i := range n {
			server := "tcp://" + strings.Repeat("x", 8*i) + ":5556"
			servers = append(servers, server)
			all = append(all, reply{server: server, status: longest}, reply{server: server, why: "refused"})
		}
		var text, reasons strings.Builder
		if err := all.printText(&text, &reasons); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(text.String()) {
			if len(line) > 80+len("\n") {
				t.Errorf("%d columns: %s", len(line)-1, line)
			}
		}
		got := slices.Compact(cells(text.String(), "server"))
		if !slices.Equal(got, servers) || strings.Count(reasons.String(), "\n") != n {
			t.Errorf("%s%s", text.String(), reasons.String())
		}
	}
}

// Updates of a publisher that hears nothing of a refusal are counted, by reason.
func TestStatusRefused(t *testing.T) {
	t.Parallel()
	s := serve(t)
	pub, err := sockets.NewPub(sockets.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer pub.Close()
	if err := errors.Join(pub.Connect("tcp://"+s.host()+":"+next(next(s.port()))), pub.WaitSubscribers(t.Context(), "", 1)); err != nil {
		t.Fatal(err)
	}
	if got := cells(must(t, "status", "--server", s.endpoint), "refused"); !slices.Equal(got, []string{"0"}) {
		t.Errorf("refused is %q before", got)
	}
	for range 2 { // without a newline after the property
		if err := pub.Send(t.Context(), []byte("/k"), make([]byte, 8), nil, []byte("ttl=2"), []byte("v")); err != nil {
			t.Fatal(err)
		}
	}
	if err := pub.Send(t.Context(), []byte("two frames"), []byte("v")); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"properties": 2.0, "frame_count": 1.0}
	for t.Context().Err() == nil {
		line := object(t, must(t, "status", "--json", "--server", s.endpoint))
		if got, ok := line["refused"].(map[string]any); !ok {
			t.Fatalf("%v", line)
		} else if maps.Equal(got, want) {
			break
		}
	}
	if got := cells(must(t, "status", "--server", s.endpoint), "refused"); !slices.Equal(got, []string{"3 (properties 2, frame count 1)"}) {
		t.Errorf("refused is %q", got)
	}

	dealer, err := sockets.NewDealer(sockets.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer dealer.Close()
	if err := errors.Join(dealer.Connect(s.endpoint), dealer.Send(t.Context(), []byte("ICANHAZ?"), []byte("no subtree"))); err != nil {
		t.Fatal(err)
	}
	for t.Context().Err() == nil {
		if got := cells(must(t, "status", "--server", s.endpoint), "bad asks"); slices.Equal(got, []string{"1"}) {
			break
		} else if !slices.Equal(got, []string{"0"}) {
			t.Fatalf("bad asks is %q", got)
		}
	}
}

// Reasons that do not fit into a column are added up.
func TestRefusalsText(t *testing.T) {
	t.Parallel()
	var every chp.RefusalCounts
	for r := range every {
		every[r] = uint64(r + 1)
	}
	for want, c := range map[string]chp.RefusalCounts{
		"0":              {},
		"7 (map full 7)": {chp.ReasonMapFull: 7},
		"78 (client limit 12, access denied 11, others 55)": every,
	} {
		if got := refusals(c); got != want || len(got) > refusalsWidth {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// With CURVE the keys are needed as everywhere.
func TestStatusCurve(t *testing.T) {
	t.Parallel()
	serverFile, serverKey := keygen(t, "server")
	clientFile, clientKey := keygen(t, "client")
	s := serve(t, "--curve-key", serverFile, "--curve-allow", clientKey)
	must(t, "status", "--server", s.endpoint, "--curve-key", clientFile, "--curve-server-key", serverKey)
	try(t, "status", "--server", s.endpoint).expect(t, exitRefused, "the server "+s.endpoint+" requires CURVE; use --curve-key")
	otherFile, otherKey := keygen(t, "other")
	for _, command := range []string{"status", "get"} { // the same words and exit code
		args := []string{command, "--server", s.endpoint, "--curve-key", otherFile, "--curve-server-key", serverKey}
		if command == "get" {
			args = append(args, "k")
		}
		try(t, args...).expect(t, exitRefused, "chp: the server "+s.endpoint+" does not accept this key; start it with '"+otherKey+"' in its --curve-allow")
	}
}

// A server that is not one of a pair does not hand over.
func TestFailoverAlone(t *testing.T) {
	t.Parallel()
	s := serve(t)
	o := try(t, "failover", "--server", s.endpoint)
	o.expect(t, exitRefused, s.endpoint+" is active but does not hand over: the server is not part of a pair")
	if o.out != "" {
		t.Errorf("stdout %q", o.out)
	}
	try(t, "failover", "--server", "tcp://127.0.0.1:1").expect(t, exitNoServer, "no server answered")
}

// half is a server of a pair as far as status and failover see it.
type half struct {
	endpoint string
	takes    atomic.Bool           // it takes over when a client asks
	active   *atomic.Pointer[half] // the active one of the pair, nil if none is
	apart    atomic.Bool           // it is the backup and active, too
	other    *half
	refuses  atomic.Bool // to hand over
}

// newPair returns two halves, of which the first is active.
func newPair(t *testing.T) [2]*half {
	t.Helper()
	active := &atomic.Pointer[half]{}
	pair := [2]*half{{active: active}, {active: active}}
	pair[0].other, pair[1].other = pair[1], pair[0]
	active.Store(pair[0])
	var routers [2]*sockets.Router
	for i, h := range pair {
		router, err := sockets.NewRouter(sockets.Options{Linger: sockets.LingerNone, Metadata: map[string]string{"X-CHP": "clustermap/1"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := router.Bind(t.Context(), "tcp://127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		h.endpoint, routers[i] = router.LastEndpoint(), router
	}
	for i, h := range pair {
		router := routers[i]
		var wg sync.WaitGroup
		t.Cleanup(func() {
			router.Close()
			wg.Wait()
		})
		wg.Go(func() {
			for {
				m, err := router.Recv(context.Background())
				if err != nil {
					return
				}
				answer := h.answer(string(m[1]))
				if err := router.Send(context.Background(), m[0], []byte(answer[0]), []byte(answer[1])); err != nil {
					t.Error(err)
				}
			}
		})
	}
	return pair
}

func (h *half) answer(question string) [2]string {
	if question == "FAILOVER?" {
		if h.refuses.Load() {
			return [2]string{"FAILOVER", "the other server has not caught up"}
		}
		h.active.Store(h.other)
		return [2]string{"FAILOVER", ""}
	}
	if question == "PROMOTE?" {
		if h.refuses.Load() {
			return [2]string{"PROMOTE", "the other server has not caught up"}
		}
		h.active.Store(h)
		return [2]string{"PROMOTE", ""}
	}
	st := chp.Status{Role: chp.RolePrimary, State: chp.ServerPassive, Peer: h.other.endpoint, Epoch: 3, InSync: true, Lag: 5, MemoryBytes: 3 << 29, TakesOver: h.takes.Load()}
	if h.active.Load() == h {
		st.State = chp.ServerActive
	}
	if h.apart.Load() {
		st.Role, st.State = chp.RoleBackup, chp.ServerActive
		st.PeerError = "the server at " + h.other.endpoint + " requires CURVE"
	}
	text, err := json.Marshal(st)
	if err != nil {
		panic(err)
	}
	return [2]string{"STATUS", string(text)}
}

// Failover finds the active server among those that are named, has it hand over,
// and prints which one is active afterwards.
func TestFailoverOfPair(t *testing.T) {
	t.Parallel()
	pair := newPair(t)
	first, second := pair[0].endpoint, pair[1].endpoint
	out := must(t, "failover", "--server", second, "--server", first)
	if !strings.HasPrefix(out, second+" is active after ") {
		t.Errorf("%q", out)
	}
	out = must(t, "failover", "--server", second) // its peer is asked afterwards
	if !strings.HasPrefix(out, first+" is active after ") {
		t.Errorf("%q", out)
	}
	try(t, "failover", "--server", second).expect(t, exitRefused, "no server is active")
	pair[0].refuses.Store(true)
	try(t, "failover", "--server", first).expect(t, exitRefused, "does not hand over: the other server has not caught up")

	out = must(t, "status", "--server", first, "--server", second)
	for row, want := range map[string][]string{
		"state": {"active", "passive"}, "epoch": {"3", "3"}, "peer": {second, first}, "in sync": {"yes", "-"}, "lag": {"5", "-"}, "memory": {"1.5GiB", "1.5GiB"},
	} {
		if got := cells(out, row); !slices.Equal(got, want) {
			t.Errorf("%s is %q, want %q", row, got, want)
		}
	}
	pair[0].active.Store(nil)
	o := try(t, "status", "--server", first, "--server", second)
	o.expect(t, exitRefused, "no server is active")
	if got := cells(o.out, "state"); !slices.Equal(got, []string{"passive", "passive"}) {
		t.Errorf("%s", o.out)
	}

	pair[1].takes.Store(true) // the next command that needs the map gets it
	o = try(t, "status", "--server", first, "--server", second)
	o.expect(t, exitDone, "")
	if got := cells(o.out, "state"); !slices.Equal(got, []string{"passive", "passive (would take over)"}) {
		t.Errorf("%s", o.out)
	}
	if line := object(t, must(t, "status", "--json", "--server", second)); line["takes_over"] != true {
		t.Errorf("%v", line)
	}
	try(t, "failover", "--server", first, "--server", second).expect(t, exitRefused, "no server is active; "+second+" takes over when a client asks")
}

// Two active servers of a pair are a fault, which chp status names, and of which a script
// learns by the exit code.
func TestStatusOfTwoActiveServers(t *testing.T) {
	t.Parallel()
	pair := newPair(t)
	first, second := pair[0].endpoint, pair[1].endpoint
	both := []string{"--server", first, "--server", second}
	try(t, append([]string{"status"}, both...)...).expect(t, exitDone, "")
	pair[1].apart.Store(true)
	o := try(t, append([]string{"status"}, both...)...)
	o.expect(t, exitRefused, "two servers are active, "+first+" and "+second)
	o.expect(t, exitRefused, "chp: "+second+" does not hear the other server of its pair: the server at "+first+" requires CURVE")
	if got := cells(o.out, "state"); !slices.Equal(got, []string{"active", "active"}) {
		t.Errorf("%s", o.out)
	}
	try(t, append([]string{"status", "--json"}, both...)...).expect(t, exitRefused, "two servers are active")
	try(t, append([]string{"failover"}, both...)...).expect(t, exitRefused, "two servers are active")
}

// A primary that still waits for its backup is not said to be no server: it becomes active for the next
// client. A backup that waits for its primary does not.
func TestStatusOfServersThatWait(t *testing.T) {
	t.Parallel()
	waiting := func(role chp.ServerRole, takesOver bool, fault string) reply {
		return reply{server: "tcp://" + string(role), status: chp.Status{Role: role, State: chp.ServerWaiting, TakesOver: takesOver, PeerError: fault}}
	}
	for _, c := range []struct {
		all  replies
		want string // "" is no error
	}{
		{replies{waiting(chp.RolePrimary, true, "")}, ""},
		{replies{waiting(chp.RoleBackup, false, ""), waiting(chp.RolePrimary, true, "")}, ""},
		{replies{waiting(chp.RolePrimary, false, "")}, "no server is active yet: tcp://primary waits"},
		{replies{waiting(chp.RoleBackup, false, ""), waiting(chp.RolePrimary, false, "")}, "no server is active yet: tcp://primary waits"},
		{replies{waiting(chp.RolePrimary, false, "it is the wrong one")}, "no server is active"},
		{replies{waiting(chp.RoleBackup, false, "")}, "chp promote --server tcp://backup"},
	} {
		err := c.all.outcome()
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%+v: %v", c.all, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%+v: %v, want %q", c.all, err, c.want)
		}
	}
}
