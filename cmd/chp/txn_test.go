package main

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"clustermap/internal/kvjson"
)

// All lines of a transaction are made, or none; its updates have consecutive sequence numbers,
// and a watch says which they are.
func TestTxn(t *testing.T) {
	t.Parallel()
	s := serve(t)
	at := func(args ...string) []string { return append(args, "--server", s.endpoint) }
	must(t, at("set", "/from", "10")...)
	w := start(t, at("watch", "--json")...)
	w.line() // from
	w.line() // synced

	move := `{"op":"check","key":"/from","value":"10"}
{"op":"check","key":"/to","absent":true}

{"op":"set","key":"/to","value":"10","ttl":3600,"properties":{"by":"me"}}
{"op":"del","key":"/from"}
`
	first, err := strconv.ParseInt(strings.TrimSpace(mustInput(t, move, at("txn", "-")...)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	for i, op := range []string{"set", "del"} {
		e := object(t, w.line())
		if e["op"] != op || e["seq"] != strconv.FormatInt(first+int64(i), 10) || e["transaction"] != strconv.FormatInt(first+1, 10) {
			t.Errorf("watch prints %v, the transaction begins at %d", e, first)
		}
	}
	got := object(t, must(t, at("get", "/to", "--json")...))
	if got["value"] != "10" || got["ttl"] == nil || fmt.Sprint(got["properties"]) != "map[by:me]" {
		t.Errorf("the transaction has set %v", got)
	}

	// Again it is a conflict, and changes nothing.
	file := filepath.Join(t.TempDir(), "move")
	if err := os.WriteFile(file, []byte(move), 0o600); err != nil {
		t.Fatal(err)
	}
	try(t, at("txn", file)...).expect(t, exitRefused, `conflict: "/from" is not in the map; nothing was changed`)
	seq := s.sequenceOf(t, "/to")
	o := tryInput(t, `{"op":"set","key":"/other","value":"x"}
{"op":"check","key":"/to","seq":"`+seq+`"}
{"op":"check","key":"/to","present":true}
{"op":"check","key":"/to","value":"11"}`, at("txn", "--json")...)
	o.expect(t, exitRefused, `conflict: "/to" has sequence number `+seq)
	if got := object(t, o.out); got["conflict"] != true || got["key"] != "/to" || got["seq"] != seq || got["value"] != "10" {
		t.Errorf("txn --json prints %v", got)
	}

	// A single update is not of a transaction.
	must(t, at("set", "/single", "x")...)
	if e := object(t, w.line()); e["key"] != "/single" || e["transaction"] != nil {
		t.Errorf("watch prints %v", e)
	}
	if out := mustInput(t, `{"op":"check","key":"/to","seq":"`+seq+`"}`, at("txn", "--json")...); object(t, out)["updates"] != 0.0 {
		t.Errorf("txn with a check alone prints %s", out)
	}
}

// A line of a transaction has bytes that are not UTF-8 in base64, as dump prints them.
func TestTxnBase64(t *testing.T) {
	t.Parallel()
	s := serve(t)
	in64 := base64.StdEncoding.EncodeToString
	key, value := in64([]byte("/\xff")), in64([]byte("\xfe\x00"))
	out := mustInput(t, fmt.Sprintf(`{"op":"set","key_base64":%q,"value_base64":%q}`, key, value), "txn", "--json", "--server", s.endpoint)
	if got := object(t, out); got["updates"] != 1.0 {
		t.Errorf("txn prints %v", got)
	}
	mustInput(t, fmt.Sprintf(`{"op":"check","key_base64":%q,"value_base64":%q}`, key, value), "txn", "--server", s.endpoint)
	o := tryInput(t, fmt.Sprintf(`{"op":"check","key_base64":%q,"absent":true}`, key), "txn", "--json", "--server", s.endpoint)
	if got := object(t, o.out); o.code != exitRefused || got["key_base64"] != key || got["value_base64"] != value {
		t.Errorf("exit code %d, %v", o.code, got)
	}
}

// An invalid line is named with its number, and nothing is sent.
func TestTxnMistakes(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for line, want := range map[string]string{
		`nonsense`:                           "not a line of a transaction: ",
		`{"op":"set","key":"/k","value":"v"`: "the JSON object is cut off",
		`{"op":"del","key":"/k"}{`:           "text after the JSON object",
		`[1]`:                                "not a JSON object",
		`{"key":"/k"}`:                       "needs op: check, set or del",
		`{"op":"incr","key":"/k"}`:           `op "incr" is not check, set or del`,
		`{"op":"set","key":"/k","value":"v","color":1}`:      "color",
		`{"op":"set","key":"/k"}`:                            "needs either value or value_base64",
		`{"op":"set","value":"v"}`:                           "needs either key or key_base64",
		`{"op":"set","key":"","value":"v"}`:                  "the key is empty",
		`{"op":"set","key":"HUGZ","value":"v"}`:              "is reserved",
		`{"op":"set","key":"/k","value":""}`:                 "the value is empty",
		`{"op":"set","key":"/k","value":"v","ttl":-1}`:       "ttl must be positive",
		`{"op":"set","key":"/k","value":"v","ttl":"1"}`:      "ttl must be a number",
		`{"op":"set","key":"/k","value":"v","seq":"1"}`:      "a set has no condition",
		`{"op":"set","key":"/k","absent":true}`:              "a set has no condition",
		`{"op":"del","key":"/k","value":"v"}`:                "a del has only a key",
		`{"op":"del","key":"/k","ttl":1}`:                    "a del has only a key",
		`{"op":"check","key":"/k"}`:                          "a check has one of",
		`{"op":"check","key":"/k","absent":false}`:           "a check has one of",
		`{"op":"check","key":"/k","absent":"yes"}`:           "absent must be true or false",
		`{"op":"check","key":"/k","seq":7}`:                  "seq must be a string",
		`{"op":"check","key":"/k","seq":"x"}`:                `seq "x" is not a sequence number`,
		`{"op":"check","key":"/k","seq":"-1"}`:               `seq "-1" is not a sequence number`,
		`{"op":"check","key":"/k","value":""}`:               "the value is empty",
		`{"op":"check","key":"/k","seq":"1","present":true}`: "a check has one of",
		"{\"op\":\"set\",\"key\":\"/k\",\"value\":\"\xff\"}": "not UTF-8",
	} {
		o := tryInput(t, `{"op":"set","key":"/first","value":"v"}`+"\n\n"+line+"\n"+`{"op":"set","key":"/last","value":"v"}`, "txn", "--server", s.endpoint)
		o.expect(t, exitRefused, "standard input, line 3: ")
		o.expect(t, exitRefused, want)
		o.expect(t, exitRefused, "; nothing was sent")
		if o.out != "" {
			t.Errorf("%s: stdout %q", line, o.out)
		}
	}
	tryInput(t, "\n \n", "txn", "--server", s.endpoint).expect(t, exitRefused, "standard input has no lines")
	try(t, "txn", "/no/such/file", "--server", s.endpoint).expect(t, exitRefused, "/no/such/file")
	if out := must(t, "ls", "--server", s.endpoint); out != "" {
		t.Errorf("the map has %q", out)
	}
}

// A transaction has as many lines as a server takes, and no more.
func TestTxnLimits(t *testing.T) {
	t.Parallel()
	s := serve(t)
	var sets, checks strings.Builder
	for i := range kvjson.MaxTransaction {
		fmt.Fprintf(&sets, `{"op":"set","key":"/%d","value":"v"}`+"\n", i)
		fmt.Fprintf(&checks, `{"op":"check","key":"/%d","absent":true}`+"\n", i)
	}
	big := strings.Repeat("v", kvjson.MaxTransactionBytes/2)
	for lines, want := range map[string]string{
		sets.String() + `{"op":"del","key":"/0"}`:                         "line 1025: a transaction has at most 1024 updates",
		checks.String() + `{"op":"check","key":"/0","seq":"0"}`:           "line 1025: a transaction has at most 1024 checks",
		strings.Repeat(`{"op":"set","key":"/k","value":"`+big+"\"}\n", 2): "line 2: a transaction has at most 1 MiB",
	} {
		tryInput(t, lines, "txn", "--server", s.endpoint).expect(t, exitRefused, want)
	}
	if out := mustInput(t, checks.String()+sets.String(), "txn", "--json", "--server", s.endpoint); object(t, out)["updates"] != 1024.0 {
		t.Errorf("txn prints %s", out)
	}
}
