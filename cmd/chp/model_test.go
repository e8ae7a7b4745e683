package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"clustermap/internal/interop"
	"clustermap/internal/loopback"
	"clustermap/internal/testenv"
)

// eachModel runs a test for Clone models 1 to 5.
func eachModel(t *testing.T, test func(t *testing.T, model int, host string, guide func(role string) *interop.Process)) {
	t.Parallel()
	for model := 1; model <= 5; model++ {
		t.Run(fmt.Sprint(model), func(t *testing.T) {
			t.Parallel()
			interop.Require(t)
			host := loopback.OwnPorts(t)
			test(t, model, host, func(role string) *interop.Process {
				t.Helper()
				return interop.Python(t, "clone_models.py", role, "--model", fmt.Sprint(model), "--host", host)
			})
		})
	}
}

func modelSet(key, value string) interop.Op {
	return interop.Op{"op": "set", "key": []byte(key), "value": []byte(value)}
}

// chp watch, get, set and del with a guide server of each Clone model.
func TestServerModel(t *testing.T) {
	eachModel(t, func(t *testing.T, model int, host string, guide func(string) *interop.Process) {
		p := guide("server")
		p.Call(modelSet("/client/old", "1"), nil)
		p.Call(modelSet("/other", "1"), nil)
		server := []string{"--server", "tcp://" + host + ":5556", "--server-model", fmt.Sprint(model)}
		with := func(args ...string) []string { return append(args, server...) }
		watch := start(t, with("watch", "/client/")...)
		if model > 1 {
			// The number is that of the snapshot, or of the pair's last update.
			if line := watch.line(); !strings.HasPrefix(line, "set ") || !strings.HasSuffix(line, " /client/old 1") {
				t.Errorf("the watch begins with %q", line)
			}
		}
		if line := watch.line(); !strings.HasPrefix(line, "synced ") {
			t.Errorf("then %q", line)
		}
		p.Call(interop.Op{"op": "wait_joined"}, nil)
		p.Call(modelSet("/client/new", "2"), nil)
		if line := watch.line(); line != "set 3 /client/new 2" {
			t.Errorf("then %q", line)
		}
		if model > 1 {
			if out := must(t, with("get", "/client/new")...); out != "2\n" {
				t.Errorf("get prints %q", out)
			}
			if out := must(t, with("dump", "/client/")...); strings.Count(out, "\n") != 2 {
				t.Errorf("dump prints %q", out)
			}
		}
		if model < 3 {
			try(t, with("set", "/client/x", "y")...).expect(t, exitRefused, "collector")
			return
		}
		if out := must(t, with("set", "/client/x", "y")...); out != "4\n" {
			t.Errorf("set prints %q", out)
		}
		if line := watch.line(); line != "set 4 /client/x y" {
			t.Errorf("then %q", line)
		}
		mustInput(t, `{"key":"/client/loaded","value":"z"}`, with("load")...)
		if line := watch.line(); line != "set 5 /client/loaded z" {
			t.Errorf("then %q", line)
		}
		if model < 5 {
			try(t, with("del", "/client/x")...).expect(t, exitRefused, "no deletions")
			try(t, with("del", "/client/absent")...).expect(t, exitRefused, "no deletions")
			try(t, with("set", "/client/x", "y", "--ttl", "1h")...).expect(t, exitRefused, "no times to live")
			return
		}
		must(t, with("del", "/client/x")...)
		if line := watch.line(); line != "del 6 /client/x" {
			t.Errorf("then %q", line)
		}
	})
}

// chp serve of each Clone model with a guide client, and with chp set and watch.
func TestServeModel(t *testing.T) {
	eachModel(t, func(t *testing.T, model int, host string, guide func(string) *interop.Process) {
		server := start(t, "serve", "--host", host, "--model", fmt.Sprint(model))
		server.awaitReady()
		with := func(args ...string) []string {
			return append(args, "--server", "tcp://"+host+":5556", "--server-model", fmt.Sprint(model))
		}
		p := guide("client")
		// A client of models 1 and 2 makes no update of its own, which would show
		// that its subscription is in force.
		joined := func() bool {
			var stats struct{ Applied, Snapshots int }
			p.Call(interop.Op{"op": "stats"}, &stats)
			return stats.Applied+stats.Snapshots > 0
		}
		for deadline := time.Now().Add(testenv.Hang); !joined(); {
			if time.Now().After(deadline) {
				t.Fatal("the client has not joined")
			}
			must(t, with("set", "/probe", "1")...)
		}
		p.Call(interop.Op{"op": "wait_joined"}, nil)
		must(t, with("set", "/client/a", "1")...)
		p.Call(interop.Op{"op": "wait", "key": []byte("/client/a"), "value": []byte("1")}, nil)
		if model > 1 {
			if out := must(t, "status", "--server", "tcp://"+host+":5556"); !strings.Contains(out, "active") {
				t.Errorf("status prints %q", out)
			}
		}
		if model < 3 {
			return
		}
		watch := start(t, with("watch", "/client/")...)
		for line := ""; !strings.HasPrefix(line, "synced "); line = watch.line() {
		}
		p.Call(modelSet("/client/theirs", "2"), nil)
		if line := watch.line(); !strings.HasPrefix(line, "set ") || !strings.HasSuffix(line, " /client/theirs 2") {
			t.Errorf("the watch prints %q", line)
		}
		if out := must(t, with("get", "/client/theirs")...); out != "2\n" {
			t.Errorf("get prints %q", out)
		}
		o := try(t, "get", "/client/theirs", "--server", "tcp://"+host+":5556")
		o.expect(t, exitRefused, fmt.Sprintf(" is of Clone model %d; set --server-model %[1]d\n", model))
	})
}

// awaitReady waits for a line with "ready" on standard error, with any ports.
func (p *process) awaitReady() {
	p.t.Helper()
	for {
		written := p.stderr.Written()
		if strings.Contains(p.stderr.String(), "ready: ") {
			return
		}
		select {
		case <-written:
		case <-p.waited:
			p.t.Fatalf("%s: exit code %d: %s", p.name(), p.wait(), p.stderr.String())
		}
	}
}
