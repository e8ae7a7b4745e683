package main

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"clustermap/chp"
	"clustermap/internal/jsonline"
	"clustermap/internal/testenv"
)

// fill loads so many keys into the server.
func fill(t *testing.T, s *server, n int) map[string]string {
	t.Helper()
	m := map[string]string{}
	var lines strings.Builder
	for i := range n {
		key, value := fmt.Sprintf("/fill/%d", i), fmt.Sprintf("value %d", i)
		m[key] = value
		fmt.Fprintf(&lines, "{\"key\":%q,\"value\":%q}\n", key, value)
	}
	mustInput(t, lines.String(), "load", "--server", s.endpoint)
	return m
}

func TestDumpLoadDumpIsTheIdentity(t *testing.T) {
	t.Parallel()
	a, b, c := serve(t), serve(t), serve(t)

	// Every byte in keys and values, all sizes of length field, and characters that JSON
	// escapes.
	var lines []byte
	add := func(key, value []byte) {
		lines = append(lines, '{')
		lines = jsonline.AppendField(lines, "key", key)
		lines = append(lines, ',')
		lines = jsonline.AppendField(lines, "value", value)
		lines = append(lines, '}', '\n')
	}
	random := rand.New(rand.NewPCG(1, 2))
	filler := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		return b
	}
	for o := 1; o < 256; o++ {
		add([]byte{'k', byte(o)}, []byte{byte(o)})
	}
	for _, size := range []int{1, 254, 255, 256, 257, 65535, 65536, 1 << 20} {
		add(fmt.Appendf(nil, "/size/%d", size), filler(size))
		add(fmt.Appendf(nil, "/text/%d", size), bytes.Repeat([]byte{'x'}, size))
	}
	for i := range 500 {
		key := bytes.ReplaceAll(filler(1+random.IntN(255)), []byte{0}, []byte{1})
		add(key, fmt.Appendf(nil, "\"\\\n\r\t\x00\x7f é <&> \u2028 %d", i))
	}
	mustInput(t, string(lines), "load", "--server", a.endpoint)

	dump := must(t, "dump", "--server", a.endpoint)
	if strings.Count(dump, "\n") != 255+16+500 {
		t.Errorf("%d lines", strings.Count(dump, "\n"))
	}
	// From a file, and through a pipe.
	file := filepath.Join(t.TempDir(), "dump.jsonl")
	if err := os.WriteFile(file, []byte(dump), 0o666); err != nil {
		t.Fatal(err)
	}
	must(t, "load", file, "--server", b.endpoint)
	mustInput(t, dump, "load", "-", "--server", c.endpoint)
	for _, s := range []*server{a, b, c} {
		if again := must(t, "dump", "--server", s.endpoint); again != dump {
			t.Errorf("%d bytes dumped, %d after loading them", len(dump), len(again))
		}
	}
}

func TestDumpIsSortedByKey(t *testing.T) {
	t.Parallel()
	s := serve(t)
	mustInput(t, `{"key":"b","value":"2"}
{"key":"a/x","value":"1"}

{"key_base64":"/w==","value_base64":"/w=="}
{"key":"é","value":"4"}
{"key":"B","value":"0"}
{"value":"5","key":"/sub/1"}
`, "load", "--server", s.endpoint)
	want := `{"key":"/sub/1","value":"5"}
{"key":"B","value":"0"}
{"key":"a/x","value":"1"}
{"key":"b","value":"2"}
{"key":"é","value":"4"}
{"key_base64":"/w==","value_base64":"/w=="}
`
	if got := must(t, "dump", "--server", s.endpoint); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if got := must(t, "dump", "/sub/", "--server", s.endpoint); got != want[:strings.IndexByte(want, '\n')+1] {
		t.Errorf("subtree: got\n%s", got)
	}
	if got := must(t, "dump", "b", "--server", s.endpoint); got != "{\"key\":\"b\",\"value\":\"2\"}\n" {
		t.Errorf("one key: got\n%s", got)
	}
}

func TestLoadRefusesBadLines(t *testing.T) {
	t.Parallel()
	const good = `{"key":"good","value":"1"}` + "\n"
	for name, c := range map[string]struct{ line, want string }{
		"not JSON":       {"hello", "not a line of a dump"},
		"an array":       {"[1]", "not a line of a dump"},
		"cut off":        {`{"key":"k","val`, "cut off"},
		"more behind":    {`{"key":"k","value":"v"} {}`, "text after the JSON object"},
		"unknown field":  {`{"key":"k","value":"v","color":"red"}`, "color"},
		"no key":         {`{"value":"v"}`, "key or key_base64"},
		"two keys":       {`{"key":"k","key_base64":"aw==","value":"v"}`, "key or key_base64"},
		"no value":       {`{"key":"k"}`, "value or value_base64"},
		"empty value":    {`{"key":"k","value":""}`, "empty"},
		"bad base64":     {`{"key":"k","value_base64":"!"}`, "not a line of a dump"},
		"not UTF-8":      {"{\"key\":\"k\",\"value\":\"\xff\"}", "UTF-8"},
		"empty key":      {`{"key":"","value":"v"}`, "key"},
		"reserved key":   {`{"key":"HUGZ","value":"v"}`, "HUGZ"},
		"NUL in the key": {`{"key":"\u0000","value":"v"}`, "NUL"},
		"long":           {`{"key":"k","value":"` + strings.Repeat("v", 200) + `"}`, "--max-line"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t)
			o := tryInput(t, good+"\n"+c.line+"\n"+`{"key":"after","value":"1"}`, "load", "--max-line", "100", "--server", s.endpoint)
			o.expect(t, exitRefused, c.want)
			if !strings.Contains(o.stderr, "standard input, line 3: ") {
				t.Errorf("stderr %q does not name the line", o.stderr)
			}
			if got := must(t, "dump", "--server", s.endpoint); got != good {
				t.Errorf("loaded: %s", got)
			}
		})
	}
}

func TestLoadWithoutFile(t *testing.T) {
	t.Parallel()
	s := serve(t)
	try(t, "load", filepath.Join(t.TempDir(), "none"), "--server", s.endpoint).expect(t, exitRefused, "none")
	if o := try(t, "load", "--server", s.endpoint); o.code != exitDone || o.out != "" || !strings.Contains(o.stderr, "loaded 0 keys") {
		t.Errorf("empty input: %+v", o)
	}
}

// A load whose server is killed before it has confirmed everything fails, at
// any point of the load.
func TestLoadDoesNotClaimWhatWasLost(t *testing.T) {
	t.Parallel()
	s := serveApart(t)
	l := start(t, "load", "--timeout", "10s", "--server", s.endpoint)
	line := []byte(`{"key":"k","value":"` + strings.Repeat("v", 1000) + `"}` + "\n")
	for range 100 {
		if _, err := l.stdin.Write(line); err != nil {
			t.Fatal(err)
		}
	}
	testenv.Eventually(t, "the load has begun", func() bool { return try(t, "get", "k", "--server", s.endpoint).code == exitDone })
	s.cmd.Process.Kill()
	s.wait()
	for range 1000 {
		if _, err := l.stdin.Write(line); err != nil {
			break // it has given up
		}
	}
	l.stdin.Close()
	if code := l.wait(); code != exitNoServer || !strings.Contains(l.stderr.String(), "run the load again") || strings.Contains(l.stderr.String(), "loaded") {
		t.Errorf("exit code %d: %s", code, l.stderr.String())
	}
}

func TestLoadIsInterrupted(t *testing.T) {
	t.Parallel()
	s := serve(t)
	w := start(t, "watch", "--server", s.endpoint)
	w.line()
	l := start(t, "load", "--server", s.endpoint)
	if _, err := l.stdin.Write([]byte(`{"key":"k","value":"v"}` + "\n")); err != nil {
		t.Fatal(err)
	}
	w.line() // now it waits for more input
	l.signal(os.Interrupt)
	if code := l.wait(); code != exitRefused || !strings.Contains(l.stderr.String(), "interrupted after sending ") {
		t.Errorf("exit code %d: %s", code, l.stderr.String())
	}
}

func TestDumpIntoClosedPipe(t *testing.T) {
	t.Parallel()
	s := serve(t)
	fill(t, s, 20_000) // more than a pipe holds
	d := start(t, "dump", "--server", s.endpoint)
	d.line()
	d.pipe.Close()
	if code := d.wait(); code != exitDone || d.stderr.String() != "" {
		t.Errorf("exit code %d: %s", code, d.stderr.String())
	}
}

func TestPairReaderLines(t *testing.T) {
	t.Parallel()
	const line = `{"key":"k","value":"v"}` // 23 bytes
	for _, end := range []string{"\n", "\r\n", "\n\n\n"} {
		p := newPairReader(strings.NewReader(strings.Repeat(line+end, 3)+line), 24)
		for range 4 {
			if e, err := p.next(); string(e.Key) != "k" || string(e.Value) != "v" || err != nil {
				t.Errorf("%q: %q, %q, %v", end, e.Key, e.Value, err)
			}
		}
	}
	// A line beyond the reader's own buffer.
	long := `{"key":"k","value":"` + strings.Repeat("v", 200_000) + `"}`
	p := newPairReader(strings.NewReader(long+"\n"+line), len(long))
	if e, err := p.next(); len(e.Value) != 200_000 || err != nil {
		t.Errorf("%d bytes, %v", len(e.Value), err)
	}
	if e, err := p.next(); string(e.Key) != "k" || err != nil {
		t.Errorf("%q, %v", e.Key, err)
	}
	p = newPairReader(strings.NewReader(long), len(long)-1)
	if _, err := p.next(); err == nil {
		t.Error("a line over the limit was taken")
	}
}

// The lines of --diverged have all that load reads, properties too, and what tells whether the
// map has a newer value.
func TestDiscardedUpdatesSayWhichTheyAre(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "diverged.jsonl")
	want := chp.Entry{Key: []byte("/a"), Value: []byte("v"), Properties: chp.Properties("by=alice\n"), TTL: time.Hour}
	d := want
	d.Sequence = math.MaxInt64
	began := time.Now().Truncate(time.Second)
	if n, err := appendEntries(name, chp.Divergence{Epoch: 3, After: 1 << 60, Last: math.MaxInt64, Entries: slices.Values([]chp.Entry{d})}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	got, err := newPairReader(bytes.NewReader(text), len(text)).next()
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %+v, %v", text, got, err)
	}
	line := object(t, strings.TrimSuffix(string(text), "\n"))
	for field, want := range map[string]any{"seq": "9223372036854775807", "term": 3.0, "after": "1152921504606846976"} {
		if line[field] != want {
			t.Errorf("%s is %v, want %v", field, line[field], want)
		}
	}
	discarded, _ := line["discarded"].(string)
	if at, err := time.Parse(time.RFC3339, discarded); err != nil || at.Before(began) || at.After(time.Now()) {
		t.Errorf("discarded is %q", discarded)
	}
}

// Properties that clients set are in the JSON of get, ls, watch and dump, and load sets
// them again, whatever bytes they have.
func TestDumpAndLoadKeepProperties(t *testing.T) {
	t.Parallel()
	a, b := serve(t), serve(t)
	c, err := chp.NewClient(chp.ClientOptions{Servers: []string{a.endpoint}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for key, opts := range map[string][]chp.SetOption{
		"/bytes": {chp.WithProperty("x", "\xff")},
		"/plain": {chp.WithTTL(time.Hour)},
		"/text":  {chp.WithProperty("why", "ticket \"42\"=\x1b"), chp.WithTTL(time.Hour), chp.WithProperty("by", "alice")},
		"/twice": {chp.WithProperty("x", "1"), chp.WithProperty("x", "2")},
	} {
		if _, err := c.SetSync(t.Context(), key, []byte("v"), opts...); err != nil {
			t.Fatal(err)
		}
	}
	props := regexp.MustCompile(`"properties\w*":("[^"]*"|\{[^}]*\})`)
	want := []string{
		`"properties_base64":"eD3/Cg=="`,
		`"properties":{"why":"ticket \"42\"=\u001b","by":"alice"}`,
		`"properties_base64":"eD0xCng9Mgo="`,
	}
	check := func(what, out string) {
		t.Helper()
		if got := props.FindAllString(out, -1); !slices.Equal(got, want) {
			t.Errorf("%s has %s", what, got)
		}
	}
	dump := must(t, "dump", "--server", a.endpoint)
	check("dump", dump)
	mustInput(t, dump, "load", "--server", b.endpoint)
	check("a loaded dump", must(t, "dump", "--server", b.endpoint))
	check("get", must(t, "get", "--json", "--prefix", "/", "--server", b.endpoint))
	check("ls", must(t, "ls", "--json", "--server", b.endpoint))
	w := start(t, "watch", "--json", "--server", b.endpoint)
	var events []string
	for {
		line := w.line()
		if strings.Contains(line, `"op":"synced"`) {
			break
		}
		events = append(events, line[strings.Index(line, `"key"`):]+line)
	}
	slices.Sort(events)
	check("watch", strings.Join(events, "\n"))

	for line, message := range map[string]string{
		`{"key":"k","value":"v","properties":{"x":1}}`:                              "object of strings",
		`{"key":"k","value":"v","properties":["x"]}`:                                "object of strings",
		`{"key":"k","value":"v","properties":{"a=b":"x"}}`:                          "object of strings",
		`{"key":"k","value":"v","properties":{"x":"a\nb"}}`:                         "object of strings",
		`{"key":"k","value":"v","properties":{"x":"1"},"properties_base64":"eAo="}`: "either properties",
		`{"key":"k","value":"v","properties_base64":"eAo="}`:                        "name=value",
	} {
		tryInput(t, line, "load", "--server", b.endpoint).expect(t, exitRefused, message)
	}
}
