package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"clustermap/internal/testenv"
)

// sequenceOf returns the sequence number of a key's last update.
func (s *server) sequenceOf(t *testing.T, key string) string {
	t.Helper()
	return object(t, must(t, "get", "--json", key, "--server", s.endpoint))["seq"].(string)
}

// A set or a deletion whose condition holds is made. Otherwise nothing changes, the exit code is
// 1, and the sequence number of what is in the way is on standard error and in the JSON.
func TestConditions(t *testing.T) {
	t.Parallel()
	s := serve(t)
	run := func(args ...string) outcome { return try(t, append(args, "--server", s.endpoint)...) }
	holds := func(args ...string) {
		t.Helper()
		run(args...).expect(t, exitDone, "")
	}
	holds("set", "/k", "v1", "--if-absent")
	holds("set", "/k", "v2", "--if-present", "--property", "by=me")
	holds("set", "/k", "v3", "--if-value", "v2", "--ttl", "1h")
	holds("set", "/k", "v4", "--if-seq", s.sequenceOf(t, "/k"))
	holds("set", "/new", "v", "--if-seq", "0")
	holds("del", "/new", "--if-present")

	present := s.sequenceOf(t, "/k")
	text := fmt.Sprintf(`conflict: "/k" has sequence number %s; nothing was changed`, present)
	want := map[string]any{"conflict": true, "key": "/k", "seq": present, "value": "v4"}
	for _, args := range []string{"set /k x --if-absent", "set /k x --if-value v3", "set /k x --if-seq 1", "set /k x --if-seq 0", "del /k --if-value v3", "del /k --if-seq 1"} {
		o := run(strings.Fields(args)...)
		o.expect(t, exitRefused, text)
		if o.out != "" {
			t.Errorf("%s prints %q", args, o.out)
		}
		o = run(append(strings.Fields(args), "--json")...)
		o.expect(t, exitRefused, text)
		if got := object(t, o.out); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s --json prints %v, want %v", args, got, want)
		}
	}
	for _, args := range []string{"set /no x --if-present", "set /no x --if-value v", "set /no x --if-seq 7", "del /no --if-value v", "del /no --if-seq 7", "del /no --if-present"} {
		o := run(append(strings.Fields(args), "--json")...)
		o.expect(t, exitRefused, `conflict: "/no" is not in the map; nothing was changed`)
		if got := object(t, o.out); got["seq"] != "0" || got["value"] != nil {
			t.Errorf("%s prints %v", args, got)
		}
	}
	if now := s.sequenceOf(t, "/k"); now != present {
		t.Error("a conflict has changed the key")
	}
	if got := object(t, run("del", "/k", "--if-seq", present, "--json").out); got["key"] != "/k" || got["seq"] == present {
		t.Errorf("del prints %v", got)
	}
	if out := run("ls").out; out != "" {
		t.Errorf("left: %q", out)
	}
}

// Of many commands that set an absent key at the same time one does.
func TestOneOfManyIsTheFirst(t *testing.T) {
	t.Parallel()
	s := serve(t)
	outcomes := make([]outcome, 10)
	var all sync.WaitGroup
	for i := range outcomes {
		all.Go(func() {
			outcomes[i] = try(t, "set", "/leader", fmt.Sprint(i), "--if-absent", "--timeout", "1m", "--server", s.endpoint)
		})
	}
	all.Wait()
	first := slices.IndexFunc(outcomes, func(o outcome) bool { return o.code == exitDone })
	for i, o := range outcomes {
		if i != first {
			o.expect(t, exitRefused, `conflict: "/leader" has sequence number `)
		}
	}
	if got := must(t, "get", "/leader", "--server", s.endpoint); got != fmt.Sprintln(first) {
		t.Errorf("set by %d, and the value is %s", first, got)
	}
}

// A server that judges no conditions is sent nothing.
func TestConditionsAtAServerThatJudgesNone(t *testing.T) {
	t.Parallel()
	s := serve(t, "--model", "5")
	with := func(args string) []string {
		return append(strings.Fields(args), "--server", s.endpoint, "--server-model", "5")
	}
	must(t, with("set /k v")...)
	for _, args := range []string{"set /k x --if-value v", "del /k --if-present", "add /n 1"} {
		try(t, with(args)...).expect(t, exitRefused, "nothing was sent: "+s.endpoint+" judges no conditions")
	}
	tryInput(t, `{"op":"del","key":"/k"}`, with("txn")...).expect(t, exitRefused, "judges no conditions")
	if out := must(t, with("dump")...); out != `{"key":"/k","value":"v"}`+"\n" {
		t.Errorf("the map has %q", out)
	}
}

// Additions at the same time are all in the sum.
func TestAdd(t *testing.T) {
	t.Parallel()
	s := serve(t)
	run := func(args ...string) outcome {
		return try(t, append([]string{"add", "--timeout", "1m", "--server", s.endpoint}, args...)...)
	}
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() { run("/n", "3").expect(t, exitDone, "") })
	}
	all.Wait()
	if o := run("/n", "--", "-31"); o.out != "-1\n" {
		t.Errorf("the sum is %q", o.out)
	}
	if got := object(t, run("/n", "1", "--json").out); got["key"] != "/n" || got["value"] != "0" || len(got) != 2 {
		t.Errorf("add --json prints %v", got)
	}
	must(t, "set", "/text", "one", "--server", s.endpoint)
	must(t, "set", "/most", "9223372036854775807", "--server", s.endpoint)
	run("/text", "1").expect(t, exitRefused, "not a decimal number")
	run("/most", "1").expect(t, exitRefused, "or the sum is none")
}

// A sequence number is good for a condition after a restart of a server that was killed.
func TestConditionAfterARestart(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	s := serveApart(t, "--data", data, "--sync", "always")
	must(t, "set", "/k", "v1", "--server", s.endpoint)
	before := s.sequenceOf(t, "/k")
	testenv.Must(t, s.cmd.Process.Kill())
	s.wait()
	s = serveApart(t, "--data", data, "--sync", "always")
	must(t, "set", "/k", "v2", "--if-seq", before, "--server", s.endpoint)
	try(t, "set", "/k", "v3", "--if-seq", before, "--server", s.endpoint).expect(t, exitRefused, "conflict: ")
}
