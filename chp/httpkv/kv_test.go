package httpkv

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"clustermap/chp"
	"clustermap/internal/loopback"
	"clustermap/internal/testenv"
)

// Every key that begins with a slash arrives as it is, however its path looks.
func TestKeysArriveExactly(t *testing.T) {
	t.Parallel()
	d := open(t, Options{})
	for path, key := range map[string]string{
		"/a":                           "/a",
		"/":                            "/",
		"//":                           "//",
		"//evil.example/a":             "//evil.example/a",
		"/a//b":                        "/a//b",
		"/a/./b":                       "/a/./b",
		"/a/../b":                      "/a/../b",
		"/../../etc":                   "/../../etc",
		"/%2e%2e/b":                    "/../b",
		"/a%2Fb":                       "/a/b",
		"%2Fc":                         "", // the path of a resource is not encoded
		"/%25":                         "/%",
		"/%2525":                       "/%25",
		"/%ff%fe":                      "/\xff\xfe",
		"/\xff":                        "/\xff",
		"/a%20b+c":                     "/a b+c",
		"/a;b=c&d":                     "/a;b=c&d",
		"/a%3Fb%23c":                   "/a?b#c",
		"/%C3%A9":                      "/\u00e9",  // one code point
		"/e%CC%81":                     "/e\u0301", // two
		"/a%0d%0aX-Evil:%201":          "/a\r\nX-Evil: 1",
		"/" + strings.Repeat("k", 254): "/" + strings.Repeat("k", 254),
	} {
		back := d.raw("PUT /v1/kv" + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nConnection: close\r\n\r\nv")
		if key == "" {
			if !strings.HasPrefix(back, "HTTP/1.1 404 ") {
				t.Errorf("%s: %s", path, back)
			}
			continue
		}
		if !strings.HasPrefix(back, "HTTP/1.1 204 ") {
			t.Errorf("%s: %s", path, back)
		}
		d.want(key, "v")
		if back := d.raw("GET /v1/kv" + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"); !strings.HasSuffix(back, "\r\n\r\nv") || strings.Contains(back, "X-Evil") {
			t.Errorf("%s: %s", path, back)
		}
		if err := d.Delete(t.Context(), key); err != nil {
			t.Error(err)
		}
	}
	if n := d.Len(); n != 0 {
		t.Errorf("there are %d other keys", n)
	}
}

func TestKeysThatNoMapHas(t *testing.T) {
	t.Parallel()
	d := open(t, Options{})
	for _, path := range []string{"/a%00b", "/" + strings.Repeat("k", 255), ""} {
		for _, method := range []string{"GET", "PUT", "DELETE"} {
			d.expect(400, "invalid-key", method, "/v1/kv"+path, "v")
		}
	}
	if back := d.raw("GET /v1/kv/%zz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"); !strings.HasPrefix(back, "HTTP/1.1 400 ") {
		t.Error(back)
	}
	for _, path := range []string{"/", "/v1", "/v1/", "/v1/kvx", "/v2/kv/a", "/v1/lease/", "/v1/txn/", "/v1/../v1/kv/a", "//v1/kv/a"} {
		d.expect(404, "no-such-resource", "GET", path, "")
	}
	if back := d.raw("GET http:v1/kv/a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"); !strings.HasPrefix(back, "HTTP/1.1 40") {
		t.Error(back)
	}
}

func TestValuesAreAsTheyAre(t *testing.T) {
	t.Parallel()
	d := open(t, Options{})
	for i, value := range []string{"v", "<script>alert(1)</script>", "\x00\xff\r\n", strings.Repeat("x", 100_000), strings.Repeat("y", 5<<20)} {
		path := fmt.Sprintf("/v1/kv/%d", i)
		put := d.expect(204, "", "PUT", path, value)
		a := d.expect(200, "", "GET", path, "")
		if a.body != value || a.seq() != put.seq() || a.header.Get("Content-Type") != "application/octet-stream" || a.header.Get("X-Content-Type-Options") != "nosniff" || a.header.Get("Content-Length") != strconv.Itoa(len(value)) {
			t.Errorf("%d: %d bytes, %v after %v", i, len(a.body), a.header, put.header)
		}
		if head := d.expect(200, "", "HEAD", path, ""); head.body != "" || head.seq() != put.seq() || head.header.Get("Content-Length") != strconv.Itoa(len(value)) {
			t.Errorf("HEAD: %v", head)
		}
		// As a stream of no known length.
		r, err := http.NewRequestWithContext(t.Context(), "PUT", d.url+path, struct{ *strings.Reader }{strings.NewReader(value)})
		testenv.Must(t, err)
		r.ContentLength = -1
		if a := d.do(r); a.status != 204 {
			t.Errorf("%d %s", a.status, a.body)
		}
		d.want(fmt.Sprintf("/%d", i), value)
		d.expect(204, "", "DELETE", path, "")
		d.want(fmt.Sprintf("/%d", i), "")
		d.expect(404, "absent", "GET", path, "")
		d.expect(404, "", "HEAD", path, "")
		d.expect(204, "", "DELETE", path, "")
	}
	if n := d.memory.used.Load(); n != 0 {
		t.Errorf("%d bytes are counted", n)
	}
	d.expect(400, "empty-value", "PUT", "/v1/kv/a", "")
	d.expect(413, "body-too-large", "PUT", "/v1/kv/a", strings.Repeat("x", 16<<20+1))
	d.expect(415, "encoded-body", "PUT", "/v1/kv/a", "x", "Content-Encoding: gzip")
	d.expect(400, "bad-body", "PUT", "/v1/kv/a", "x", "Content-Range: bytes 0-0/2")
	small := openTo(t, served(t, chp.ServerOptions{MaxValueSize: 10}), Options{})
	small.expect(413, "body-too-large", "PUT", "/v1/kv/a", "12345678901")
}

func TestConditions(t *testing.T) {
	t.Parallel()
	d := open(t, Options{})
	for i, c := range []struct {
		there       bool   // the key exists
		header      string // NOW and OLD stand for the sequences of the last two updates
		get, change int
	}{
		{true, `If-Match: *`, 200, 204},
		{true, `If-Match: "NOW"`, 200, 204},
		{true, `If-Match: "OLD" , "NOW"`, 200, 204},
		{true, `If-Match: "OLD"`, 412, 412},
		{true, `If-Match: W/"NOW"`, 412, 412}, // weak tags do not match strongly
		{true, `If-Match: "x", "0NOW", "+NOW"`, 412, 412},
		{true, `If-Match: NOW`, 400, 400},
		{true, `If-Match: "1" "2"`, 400, 400},
		{true, `If-Match: "1`, 400, 400},
		{true, `If-Match: *, "1"`, 400, 400},
		{true, `If-Match: `, 400, 400},
		{true, `If-Match: ` + strings.Repeat(`"1",`, 65), 400, 400},
		{true, `If-None-Match: *`, 304, 412},
		{true, `If-None-Match: "NOW"`, 304, 412},
		{true, `If-None-Match: W/"NOW"`, 304, 412},
		{true, `If-None-Match: "OLD","NOW"`, 304, 412},
		{true, `If-None-Match: "OLD"`, 200, 204},
		{false, `If-Match: *`, 412, 412},
		{false, `If-Match: "NOW"`, 412, 412},
		{false, `If-Match: "0"`, 412, 412},
		{false, `If-None-Match: *`, 404, 204},
		{false, `If-None-Match: "NOW"`, 404, 204},
	} {
		for method, want := range map[string]int{"GET": c.get, "PUT": c.change, "DELETE": c.change} {
			key := fmt.Sprintf("/%d/%s", i, method)
			old, now := d.set(key, "old"), d.set(key, "now")
			header := strings.NewReplacer("OLD", strconv.FormatInt(old, 10), "NOW", strconv.FormatInt(now, 10)).Replace(c.header)
			if !c.there {
				testenv.Must(t, d.Delete(t.Context(), key))
				now = 0
			}
			a := d.ask(method, "/v1/kv"+key, "new", header)
			if a.status != want {
				t.Errorf("%s %s: %d %s, want %d", method, c.header, a.status, a.body, want)
			}
			after, presence := d.Lookup(key)
			switch {
			case want == 204 && method == "PUT":
				if string(after.Value) != "new" || a.seq() != strconv.FormatInt(after.Sequence, 10) {
					t.Errorf("%s: %q, %v", c.header, after.Value, a.header)
				}
			case want == 204:
				if presence != chp.PresenceAbsent {
					t.Errorf("%s: %q is there", c.header, after.Value)
				}
			case after.Sequence != now:
				t.Errorf("%s %s: it is changed", method, c.header)
			case want == 412:
				var p struct{ Key, Seq string }
				testenv.Must(t, json.Unmarshal([]byte(a.body), &p))
				if seq := strconv.FormatInt(now, 10); a.problem() != "conflict" || p.Key != key || p.Seq != seq || now > 0 && a.seq() != seq {
					t.Errorf("%s: %v", c.header, a)
				}
			}
		}
	}
	d.set("/k", "v")
	d.expect(400, "bad-condition", "PUT", "/v1/kv/k", "v", "If-Unmodified-Since: Sat, 29 Oct 1994 19:43:31 GMT")
	now := d.expect(200, "", "GET", "/v1/kv/k", "").header.Get("ETag")
	d.expect(412, "conflict", "PUT", "/v1/kv/k", "v", "If-Match: *", "If-None-Match: "+now)
	d.expect(204, "", "PUT", "/v1/kv/k", "v", "If-Match: "+now, `If-None-Match: "1"`)
}

// Of those who read a counter and write one more, nobody overwrites another.
func TestNoUpdateIsLost(t *testing.T) {
	t.Parallel()
	d := open(t, Options{})
	d.set("/n", "0")
	var all sync.WaitGroup
	const each = 25
	for i := range 8 {
		all.Go(func() {
			for done := 0; done < each; {
				a := d.ask("GET", "/v1/kv/n", "")
				n, err := strconv.Atoi(a.body)
				if err != nil {
					t.Error(err)
					return
				}
				condition := "If-Match: " + a.header.Get("ETag")
				if i%2 == 1 {
					condition += `, "1"`
				}
				switch put := d.ask("PUT", "/v1/kv/n", strconv.Itoa(n+1), condition); put.status {
				case 204:
					done++
				case 412:
				default:
					t.Errorf("%d %s", put.status, put.body)
					return
				}
			}
		})
	}
	all.Wait()
	d.want("/n", strconv.Itoa(8*each))
}

func TestPropertiesAreHeaders(t *testing.T) {
	t.Parallel()
	d := open(t, Options{})
	id, err := d.Grant(t.Context(), time.Hour)
	testenv.Must(t, err)
	d.expect(204, "", "PUT", "/v1/kv/k?ttl=100.5&lease="+id, "v", "CHP-Property: colour=dark%20red", "CHP-Property: %ff=%3D")
	a := d.expect(200, "v", "GET", "/v1/kv/k", "")
	if got := a.header.Values("CHP-Property"); len(got) != 2 || got[0] != "colour=dark%20red" || got[1] != "%FF==" {
		t.Errorf("%q", got)
	}
	if ttl, err := strconv.ParseFloat(a.header.Get("CHP-TTL"), 64); err != nil || ttl <= 90 || ttl > 100.5 || a.header.Get("CHP-Lease") != id {
		t.Errorf("%v", a.header)
	}
	for _, query := range []string{"ttl=", "ttl=0", "ttl=-1", "ttl=x", "ttl=NaN", "ttl=Inf", "ttl=1e30", "ttl=1&ttl=2", "tll=1", "lease=x", "lease=", "prefix", "a;b", "%zz"} {
		d.expect(400, "bad-parameter", "PUT", "/v1/kv/k?"+query, "v")
	}
	for _, property := range []string{"a", "a%=b", "=b", "a%3Db=c", "a=b%0Ac", "x-time=1", "ttl=5"} {
		if a := d.ask("PUT", "/v1/kv/k", "v", "CHP-Property: "+property); a.status != 400 && property != "ttl=5" {
			t.Errorf("%s: %d %s", property, a.status, a.body)
		}
	}
	d.expect(409, "lease-ended", "PUT", "/v1/kv/other?lease="+strings.Repeat("0", 32), "v")
	d.want("/other", "")
}

func TestPrefixesAreLinesOfOneMoment(t *testing.T) {
	t.Parallel()
	d := open(t, Options{})
	for _, key := range []string{"/a", "/a/", "/a/1", "/a/2", "/ab/1", "/b", "/a\xff", "outside"} {
		d.set(key, "v\xff", chp.WithProperty("p", "q"))
	}
	got := func(path string) (keys []string) {
		a := d.expect(200, "", "GET", "/v1/kv"+path, "")
		if a.header.Get("Content-Type") != "application/jsonl" {
			t.Errorf("%v", a.header)
		}
		for line := range strings.Lines(a.body) {
			var l struct {
				Key, Seq   string
				KeyBase64  []byte `json:"key_base64"`
				Value      []byte `json:"value_base64"`
				Size       int
				Properties map[string]string
			}
			testenv.Must(t, json.Unmarshal([]byte(line), &l))
			if l.Seq == "" || l.Properties["p"] != "q" || string(l.Value) != "v\xff" && l.Size != 2 {
				t.Errorf("%s", line)
			}
			keys = append(keys, l.Key+string(l.KeyBase64))
		}
		return keys
	}
	for path, want := range map[string]string{
		"?prefix": "[/a /a/ /a/1 /a/2 /ab/1 /a\xff /b outside]", "/?prefix=": "[/a /a/ /a/1 /a/2 /ab/1 /a\xff /b]",
		"/a/?prefix&keys": "[/a/ /a/1 /a/2]", "/ab/?prefix": "[/ab/1]", "/none/?prefix": "[]", "//?prefix": "[]",
	} {
		if keys := fmt.Sprint(got(path)); keys != want {
			t.Errorf("%s: %q, want %q", path, keys, want)
		}
	}
	d.expect(400, "bad-parameter", "GET", "/v1/kv/a?prefix", "")
	d.expect(400, "bad-parameter", "GET", "/v1/kv/a/?prefix&ttl=1", "")
	d.expect(400, "bad-parameter", "GET", "/v1/kv/a?keys", "")
	d.expect(400, "invalid-key", "GET", "/v1/kv/a%00/?prefix", "")
	d.expect(200, "", "HEAD", "/v1/kv?prefix", "")

	// Two keys always change together.
	var b chp.Batch
	stop := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			b.Reset()
			b.Set("/pair/1", strconv.AppendInt(nil, int64(i), 10))
			b.Set("/pair/2", strconv.AppendInt(nil, int64(i), 10))
			if _, err := d.ApplyIf(t.Context(), &b); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 100 {
		var values []string
		for line := range strings.Lines(d.expect(200, "", "GET", "/v1/kv/pair/?prefix", "").body) {
			var l struct{ Value string }
			testenv.Must(t, json.Unmarshal([]byte(line), &l))
			values = append(values, l.Value)
		}
		if len(values) == 1 || len(values) == 2 && values[0] != values[1] {
			t.Fatalf("%q", values)
		}
	}
	close(stop)
	all.Wait()
}

func TestTransactions(t *testing.T) {
	t.Parallel()
	d := open(t, Options{})
	seq := d.set("/a", "1")
	post := func(status int, want, body string) answered {
		t.Helper()
		return d.expect(status, want, "POST", "/v1/txn", body, "Content-Type: application/json")
	}
	post(200, `"updates":2`, fmt.Sprintf(`{"op":"check","key":"/a","seq":"%d"}
{"op":"del","key":"/a"}
{"op":"set","key":"/b","value":"2","ttl":100}
`, seq))
	d.want("/a", "")
	d.want("/b", "2")
	a := post(412, "conflict", `{"op":"check","key":"/b","absent":true}`+"\n"+`{"op":"set","key":"/c","value":"3"}`)
	if e, _ := d.Lookup("/b"); a.seq() != strconv.FormatInt(e.Sequence, 10) {
		t.Errorf("%v", a)
	}
	d.want("/c", "")
	post(200, `"updates":0`, `{"op":"check","key":"/b","present":true}`)
	post(400, "line 3: not a line of a transaction: the JSON object is cut off", `{"op":"del","key":"/b"}`+"\n\n"+`{"op":"`)
	post(400, "bad-body", "")
	post(400, "bad-body", strings.Repeat(`{"op":"del","key":"/b"}`+"\n", 1025))
	post(409, "lease-ended", `{"op":"set","key":"/c","value":"3","lease":"`+strings.Repeat("0", 32)+`"}`)
	for _, kind := range []string{"", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/json, text/plain", "text/plain; application/json"} {
		d.expect(415, "unsupported-body", "POST", "/v1/txn", `{"op":"set","key":"/csrf","value":"1"}`, "Content-Type: "+kind)
	}
	d.want("/csrf", "")
	d.expect(405, "method", "GET", "/v1/txn", "")
}

func TestLeases(t *testing.T) {
	t.Parallel()
	d := open(t, Options{})
	a := d.expect(201, `"ttl":60`, "POST", "/v1/lease", `{"ttl":60}`, "Content-Type: application/json")
	path := a.header.Get("Location")
	id := strings.TrimPrefix(path, "/v1/lease/")
	if len(id) != 32 || !strings.Contains(a.body, id) {
		t.Fatalf("%v", a)
	}
	d.expect(204, "", "PUT", "/v1/kv/k?lease="+id, "v")
	d.expect(200, `"left":`, "GET", path, "")
	d.expect(200, `"ttl":60`, "PUT", path, "")
	d.expect(200, `"keys":1}`, "GET", "/v1/lease", "")
	d.expect(204, "", "DELETE", path, "")
	d.want("/k", "")
	for _, method := range []string{"GET", "PUT", "DELETE"} {
		d.expect(404, "no-such-lease", method, path, "")
		d.expect(404, "no-such-lease", method, "/v1/lease/../kv", "")
	}
	d.expect(200, "", "GET", "/v1/lease", "")
	for _, body := range []string{"", "{}", `{"ttl":0}`, `{"ttl":"1"}`, `{"ttl":1,"x":2}`, `{"ttl":1}{}`, "[]"} {
		if a := d.expect(400, "", "POST", "/v1/lease", body, "Content-Type: application/json"); a.problem() == "" {
			t.Errorf("%s: %v", body, a)
		}
	}
	d.expect(400, "refused", "POST", "/v1/lease", `{"ttl":0.01}`, "Content-Type: application/json")
	d.expect(415, "unsupported-body", "POST", "/v1/lease", `{"ttl":60}`)
}

func TestServerThatIsNotThere(t *testing.T) {
	t.Parallel()
	d := openTo(t, nil, Options{})
	d.expect(503, "not-ready", "GET", "/v1/kv/k", "")
	s := served(t, chp.ServerOptions{})
	d.Attach(s)
	d.expect(404, "absent", "GET", "/v1/kv/k", "")
	testenv.Must(t, s.Close())
	d.expect(503, "not-active", "GET", "/v1/kv/k", "")
	d.Handler.Close()
	d.expect(503, "not-ready", "GET", "/v1/kv/k", "")
}

// A server of a pair that is passive names the other one, and one that nobody else asks becomes active.
func TestOnlyTheActiveServerOfAPairAnswers(t *testing.T) {
	t.Parallel()
	host := loopback.Own()
	at := func(port int) string { return "tcp://" + net.JoinHostPort(host, strconv.Itoa(port)) }
	options := func(backup bool, port, state, peer, peerState int) chp.ServerOptions {
		return chp.ServerOptions{Host: host, Port: port, HeartbeatInterval: 50 * time.Millisecond, Pair: &chp.PairOptions{
			Backup: backup, State: at(state), PeerState: at(peerState), Peer: at(peer), Interval: 50 * time.Millisecond, Timeout: time.Second,
		}}
	}
	primary := served(t, options(false, 5556, 5003, 5566, 5004))
	backup := served(t, options(true, 5566, 5004, 5556, 5003))
	first, second := openTo(t, primary, Options{}), openTo(t, backup, Options{})
	testenv.Eventually(t, "the backup is passive", func() bool { return backup.Status().State == chp.ServerPassive })
	testenv.Eventually(t, "the primary answers over HTTP", func() bool { return first.ask("PUT", "/v1/kv/k", "v").status == 204 })
	stream := first.watch("/")
	stream.expect("reset", "set /k", "synced")
	for _, path := range []string{"/v1/kv/k", "/v1/watch/", "/v1/kv?prefix", "/v1/lease"} {
		a := second.expect(503, "not-active", "GET", path, "")
		if !strings.Contains(a.body, backup.Status().Peer) || a.header.Get("Retry-After") == "" {
			t.Errorf("%v", a)
		}
	}
	testenv.Eventually(t, "the backup has the map, and can take over", func() bool { return primary.Status().InSync })
	testenv.Must(t, primary.Close())
	for {
		if _, err := stream.read(); err != nil {
			break
		}
	}
	testenv.Eventually(t, "the backup answers over HTTP", func() bool { return second.ask("GET", "/v1/kv/k", "").status == 200 })
}

func TestTags(t *testing.T) {
	t.Parallel()
	got, ok := parseTags([]string{`"1" , W/"2"`, ` ,,"3"`}, false)
	if !ok || fmt.Sprint(got.list) != "[1 2 3]" || got.any {
		t.Errorf("%+v", got)
	}
	if got, ok := parseTags([]string{" * "}, true); !ok || !got.any || got.has(0) || !got.has(1) {
		t.Errorf("%+v", got)
	}
}

func FuzzTags(f *testing.F) {
	for _, s := range []string{`"1"`, `*`, `W/"1", "x"`, `"`, `"1" "2"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, ok := parseTags([]string{text}, true)
		if ok && !got.any && len(got.list) > bytes.Count([]byte(text), []byte{'"'})/2 {
			t.Errorf("%q: %+v", text, got)
		}
	})
}

func TestProblemsOfErrors(t *testing.T) {
	t.Parallel()
	h := New(Options{})
	defer h.Close()
	for _, c := range []struct {
		err  error
		kind string
	}{
		{fmt.Errorf("%w: %w", chp.ErrUncertain, chp.ErrStandby), "uncertain"},
		{chp.ErrStandby, "not-active"}, {chp.ErrClosed, "not-ready"}, {errors.New("disk"), "server-failed"},
		{&chp.MessageError{Reason: chp.ReasonMapFull}, "map-full"}, {&chp.CompactedError{Since: 1, Oldest: 2}, "compacted"},
	} {
		if p := h.explain(c.err); p.kind != c.kind || titles[p.kind] == "" {
			t.Errorf("%v: %+v", c.err, p)
		}
	}
}
