package main

import (
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"clustermap/internal/testenv"
)

func TestWatchJSON(t *testing.T) {
	t.Parallel()
	s := serve(t)
	at := []string{"--server", s.endpoint}
	must(t, append([]string{"set", "/a/1", "before"}, at...)...)
	must(t, append([]string{"set", "/b/1", "elsewhere"}, at...)...)
	w := start(t, append([]string{"watch", "--json", "/a/", "exact"}, at...)...)

	last := int64(0)
	expect := func(want map[string]any) {
		t.Helper()
		line := w.line()
		e := object(t, line)
		text, _ := e["seq"].(string)
		seq, err := strconv.ParseInt(text, 10, 64)
		if err != nil || seq <= 0 || seq < last {
			t.Errorf("%s: sequence after %v", line, last)
		}
		last = seq
		delete(e, "seq")
		if !maps.Equal(e, want) {
			t.Errorf("%s: want %v", line, want)
		}
	}
	expect(map[string]any{"op": "set", "cause": "set", "key": "/a/1", "value": "before"})
	expect(map[string]any{"op": "synced"})

	must(t, append([]string{"set", "/b/1", "not watched"}, at...)...)
	must(t, append([]string{"set", "/a/1", "after \"<&>\" \t é"}, at...)...)
	must(t, append([]string{"set", "exactly", "not watched either"}, at...)...)
	must(t, append([]string{"set", "exact", "one key"}, at...)...)
	mustInput(t, "\x00\xff", append([]string{"set", "/a/bin", "-"}, at...)...)
	must(t, append([]string{"set", "/a/\xff", "v"}, at...)...)
	must(t, append([]string{"del", "/a/1"}, at...)...)
	expect(map[string]any{"op": "set", "cause": "set", "key": "/a/1", "value": "after \"<&>\" \t é"})
	expect(map[string]any{"op": "set", "cause": "set", "key": "exact", "value": "one key"})
	expect(map[string]any{"op": "set", "cause": "set", "key": "/a/bin", "value_base64": "AP8="})
	expect(map[string]any{"op": "set", "cause": "set", "key_base64": "L2Ev/w==", "value": "v"})
	expect(map[string]any{"op": "del", "cause": "deleted", "key": "/a/1"})

	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		other := start(t, append([]string{"watch"}, at...)...)
		other.line()
		other.signal(sig)
		if code := other.wait(); code != exitDone || other.stderr.String() != "" {
			t.Errorf("%v: exit code %d: %s", sig, code, other.stderr.String())
		}
	}
}

func TestWatchText(t *testing.T) {
	t.Parallel()
	s := serve(t)
	at := []string{"--server", s.endpoint}
	w := start(t, append([]string{"watch"}, at...)...)
	synced := w.line()
	one := must(t, append([]string{"set", "/a/1", "with blank"}, at...)...)
	two := mustInput(t, "\n", append([]string{"set", "with blank", "-"}, at...)...)
	three := must(t, append([]string{"del", "/a/1"}, at...)...)
	got := []string{synced[:7], w.line() + "\n", w.line() + "\n", w.line() + "\n"}
	want := []string{
		"synced ",
		"set " + one[:len(one)-1] + " /a/1 with blank\n",
		"set " + two[:len(two)-1] + " \"with blank\" \"\\n\"\n",
		"del " + three[:len(three)-1] + " /a/1\n",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

// Everything that is there in the beginning comes before the marker, once.
func TestWatchBeginsWithTheSnapshot(t *testing.T) {
	t.Parallel()
	s := serve(t)
	want := fill(t, s, 5000)
	w := start(t, "watch", "--json", "--server", s.endpoint)
	got := map[string]string{}
	for {
		e := object(t, w.line())
		if e["op"] == "synced" {
			break
		}
		key := e["key"].(string)
		if _, twice := got[key]; twice {
			t.Errorf("%s came twice", key)
		}
		got[key] = e["value"].(string)
	}
	if !maps.Equal(got, want) {
		t.Errorf("%d keys, want %d", len(got), len(want))
	}
}

func TestWatchIntoClosedPipe(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for name, after := range map[string]func(){
		"nothing to write": func() {},
		"a change":         func() { must(t, "set", "k", "v", "--server", s.endpoint) },
	} {
		w := start(t, "watch", "--server", s.endpoint)
		w.line()
		w.pipe.Close()
		after()
		if code := w.wait(); code != exitDone || w.stderr.String() != "" {
			t.Errorf("%s: exit code %d: %s", name, code, w.stderr.String())
		}
	}
}

// A watch of a key that does not exist names the subtree, without a snapshot of it; a watch
// of another one names nothing.
func TestWatchHintsAtSubtree(t *testing.T) {
	t.Parallel()
	s := serve(t)
	must(t, "set", "/lamp/1", "on", "--server", s.endpoint)
	must(t, "set", "/door", "shut", "--server", s.endpoint)
	must(t, "set", "/door/1", "shut", "--server", s.endpoint)
	w := start(t, "watch", "/door", "/lamp", "/my lamp", "--server", s.endpoint)
	w.line() // /door
	w.line() // synced
	const hint = "chp: no key /lamp yet; for the keys below it watch /lamp/\n" +
		"chp: no key '/my lamp' yet; for the keys below it watch '/my lamp/'\n" // as the shell reads them
	testenv.Eventually(t, "the hint", func() bool { return strings.Contains(w.stderr.String(), hint) })
	must(t, "set", "/lamp", "off", "--server", s.endpoint)
	if line := w.line(); !strings.HasSuffix(line, " /lamp off") {
		t.Errorf("%q", line)
	}
	if text := w.stderr.String(); text != hint {
		t.Errorf("%q", text)
	}
}

// A watch tells on standard error when its server is lost, and when it follows one
// again; help explains --timeout.
func TestWatchTellsOfALostServer(t *testing.T) {
	t.Parallel()
	s := serveApart(t)
	w := start(t, "watch", "--server", s.endpoint)
	w.line() // synced
	says := func(want string) {
		t.Helper()
		for {
			written := w.stderr.Written()
			if strings.Contains(w.stderr.String(), want) {
				return
			}
			select {
			case <-written:
			case <-w.waited:
				t.Fatalf("exit code %d: %s", w.wait(), w.stderr.String())
			}
		}
	}
	s.signal(syscall.SIGTERM)
	s.wait()
	says("chp: lost " + s.endpoint + ": ")
	says("; trying again\n")
	start(t, "serve", "--host", s.host(), "--port", s.port()).ready()
	says("chp: following " + s.endpoint + " again\n")
	if n := strings.Count(w.stderr.String(), "lost"); n != 1 {
		t.Errorf("the loss is told %d times: %s", n, w.stderr.String())
	}
	if text := strings.Join(strings.Fields(must(t, "watch", "--help")), " "); !strings.Contains(text, "--timeout applies only at the beginning") {
		t.Error(text)
	}
}
