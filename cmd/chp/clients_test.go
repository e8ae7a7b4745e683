package main

import (
	"encoding/json"
	"strings"
	"testing"

	"clustermap/chp"
	"clustermap/internal/commandtest"
	"clustermap/internal/testenv"
)

// The clients of a server are listed for people and programs, with rates.
func TestClientsCommand(t *testing.T) {
	t.Parallel()
	s := serve(t)
	w := start(t, "watch", "/a/", "/b/", "--json", "--server", s.endpoint)
	w.line()
	must(t, "set", "/a/x", "1", "--server", s.endpoint)
	w.line()
	at := []string{"--server", s.endpoint, "--interval", "50ms"}
	line := object(t, must(t, append(at, "clients", "--json")...))
	for field, want := range map[string]any{"server": s.endpoint, "name": "", "received": -1.0, "more_subtrees": 0.0, "received_per_second": nil} {
		if got, there := line[field]; !there || got != want {
			t.Errorf("%s is %v, want %v", field, got, want)
		}
	}
	if text, _ := json.Marshal(line["subtrees"]); string(text) != `["/a/","/b/"]` || line["sent_per_second"] == nil || line["sent"].(float64) < 1 {
		t.Errorf("%v", line)
	}
	table := must(t, append(at, "clients")...)
	if lines := strings.Split(table, "\n"); len(lines) != 3 || !strings.HasPrefix(lines[0], "NAME  ADDRESS ") || !strings.HasSuffix(lines[1], "  /a/ /b/") || !strings.Contains(lines[1], line["remote"].(string)) {
		t.Errorf("%q", table)
	}
	watch := start(t, append(at, "clients", "--watch")...)
	for range 2 {
		for !strings.HasSuffix(watch.line(), "  /a/ /b/") {
		}
	}
	try(t, "clients", "--interval", "-1s").expect(t, exitUsage, "must be positive")
	try(t, "clients", "--watch", "--interval", "0").expect(t, exitUsage, "must be positive")

	if got := must(t, "kick", line["remote"].(string), "--server", s.endpoint); got != "1 client disconnected\n" {
		t.Errorf("%q", got)
	}
	must(t, "set", "/a/x", "2", "--server", s.endpoint)
	if e := object(t, w.line()); e["op"] == "del" {
		t.Errorf("%v", e)
	}
	try(t, "kick", "nobody", "--server", s.endpoint).expect(t, exitRefused, "no client nobody is connected")
	try(t, "clients", "--timeout", "1s", "--server", "tcp://127.0.0.1:1").expect(t, exitNoServer, "no answer from tcp://127.0.0.1:1: connection refused")
	s.Await("clients disconnected at the request of an administrator")
}

// A rate is that of the time between two looks at the same connection, or not known.
func TestRatesAreOfTheTimeBetweenTwoLooks(t *testing.T) {
	t.Parallel()
	of := func(remote string, sent uint64, received int64) listedClient {
		return listedClient{Server: "s", ClientInfo: chp.ClientInfo{Remote: remote, Sent: sent, Received: received}}
	}
	before := clientsLook{all: []listedClient{of("a", 10, 5), of("b", 10, -1), of("c", 10, 10)}}
	now := clientsLook{at: before.at.Add(2e9), all: []listedClient{of("a", 30, 5), of("b", 10, 4), of("c", 20, 4), of("d", 1, 1)}}
	now.rate(before)
	var out strings.Builder
	testenv.Must(t, printClientsJSON(&out, now))
	for i, want := range []string{`"sent_per_second":10,"received_per_second":0`, `"sent_per_second":0,"received_per_second":null`, `"sent_per_second":5,"received_per_second":null`, `"sent_per_second":null,"received_per_second":null`} {
		if line := strings.Split(out.String(), "\n")[i]; !strings.Contains(line, want) {
			t.Errorf("%s, want %s", line, want)
		}
	}
	now.all[0].Name, now.all[0].Subtrees, now.all[0].MoreSubtrees = commandtest.Hostile, []string{"", commandtest.Hostile}, 2
	out.Reset()
	testenv.Must(t, printClients(&out, now))
	commandtest.Harmless(t, "clients", out.String())
	if !strings.Contains(out.String(), " and 2 more\n") || strings.Count(out.String(), "\n") != 5 {
		t.Errorf("%q", out.String())
	}
}
