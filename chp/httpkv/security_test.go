package httpkv

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"clustermap/chp"
	"clustermap/internal/hosts"
	"clustermap/internal/testenv"
)

func TestRequestsNameTheServer(t *testing.T) {
	t.Parallel()
	d := open(t, Options{Hosts: []string{"map.example"}})
	for _, host := range []string{"evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", "map.example.evil", ""} {
		back := d.raw("PUT /v1/kv/k HTTP/1.1\r\nHost: " + host + "\r\nContent-Length: 1\r\nConnection: close\r\n\r\nv")
		if !strings.HasPrefix(back, "HTTP/1.1 421 ") {
			t.Errorf("%s: %q", host, back)
		}
	}
	// The form with a whole URI has its own host, which counts.
	if back := d.raw("GET http://evil.example/v1/kv/k HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"); !strings.HasPrefix(back, "HTTP/1.1 421 ") {
		t.Errorf("%q", back)
	}
	d.want("/k", "")
	d.expect(204, "", "PUT", "/v1/kv/k", "v", "Host: map.example:80")
}

// A page of another origin changes nothing, reads nothing, and holds no streams.
func TestPagesOfOthersCanDoNothing(t *testing.T) {
	t.Parallel()
	d := open(t, Options{})
	d.set("/k", "v")
	for _, browser := range [][]string{
		{"Origin: http://evil.example", "Sec-Fetch-Site: cross-site"}, {"Origin: null", "Sec-Fetch-Site: cross-site"},
		{"Origin: http://evil.example"}, {"Origin: null"}, {"Sec-Fetch-Site: same-site"}, {"Sec-Fetch-Site: cross-site"},
	} {
		for method, path := range map[string]string{"PUT": "/v1/kv/k", "DELETE": "/v1/kv/k", "POST": "/v1/txn"} {
			a := d.ask(method, path, `{"op":"del","key":"/k"}`, append(browser, "Content-Type: application/json")...)
			if a.problem() != "cross-origin" || a.header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("%s %s: %d %s", browser, method, a.status, a.body)
			}
		}
		if len(browser) == 2 {
			d.expect(403, "cross-origin", "OPTIONS", "/v1/kv/k", "", append(browser, "Access-Control-Request-Method: PUT")...)
			d.expect(403, "cross-origin", "GET", "/v1/watch/", "", browser...)
			d.expect(403, "cross-origin", "GET", "/v1/kv/k", "", browser...)
		}
	}
	d.want("/k", "v")
	// A browser says no more if the server is neither HTTPS nor on its machine.
	for _, origin := range []string{"http://evil.example", "null", strings.Replace(d.url, "http:", "https:", 1) + "1"} {
		for _, path := range []string{"/v1/kv/k", "/v1/watch/", "/v1/kv?prefix", "/v1/lease"} {
			d.expect(403, "cross-origin", "GET", path, "", "Origin: "+origin)
		}
		d.expect(403, "cross-origin", "OPTIONS", "/v1/kv/k", "", "Origin: "+origin, "Access-Control-Request-Method: PUT")
	}
	d.expect(200, "v", "GET", "/v1/kv/k", "", "Origin: "+d.url)
	// Its own page, and programs.
	d.expect(204, "", "PUT", "/v1/kv/k", "w", "Origin: "+d.url, "Sec-Fetch-Site: same-origin")
	d.expect(200, "w", "GET", "/v1/kv/k", "", "Sec-Fetch-Site: none")
}

func TestOriginsThatAreAllowed(t *testing.T) {
	t.Parallel()
	d := open(t, Options{Origins: []string{"https://app.example"}})
	page := []string{"Origin: https://app.example", "Sec-Fetch-Site: cross-site"}
	a := d.expect(204, "", "OPTIONS", "/v1/kv/k", "", append(page, "Access-Control-Request-Method: PUT")...)
	if a.header.Get("Access-Control-Allow-Origin") != "https://app.example" || !strings.Contains(a.header.Get("Access-Control-Allow-Methods"), "PUT") || a.header.Get("Vary") != "Origin" || a.header.Get("Access-Control-Allow-Credentials") != "" {
		t.Errorf("%v", a.header)
	}
	d.expect(204, "", "PUT", "/v1/kv/k", "v", page...)
	if a := d.expect(200, "v", "GET", "/v1/kv/k", "", page...); !strings.Contains(a.header.Get("Access-Control-Expose-Headers"), "ETag") {
		t.Errorf("%v", a.header)
	}
	for _, origin := range []string{"https://app.example.evil", "http://app.example", "https://app.example:444", "null"} {
		d.expect(403, "cross-origin", "PUT", "/v1/kv/k", "w", "Origin: "+origin, "Sec-Fetch-Site: cross-site")
	}
	all := open(t, Options{Origins: []string{"*"}})
	all.expect(204, "", "PUT", "/v1/kv/k", "v", "Origin: https://any.example", "Sec-Fetch-Site: cross-site")
}

// Nothing in a request is another one.
func TestRequestsAreNotSmuggled(t *testing.T) {
	t.Parallel()
	d := open(t, Options{}, short)
	inner := "PUT /v1/kv/smuggled HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nConnection: close\r\n\r\nv"
	for name, outer := range map[string]string{
		"a body of GET":      fmt.Sprintf("GET /v1/kv/k HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", len(inner)),
		"a body of DELETE":   fmt.Sprintf("DELETE /v1/kv/k HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", len(inner)),
		"a refused body":     fmt.Sprintf("PUT /v1/kv/k HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n", len(inner)),
		"of another host":    fmt.Sprintf("PUT /v1/kv/k HTTP/1.1\r\nHost: evil.example\r\nContent-Length: %d\r\n\r\n", len(inner)),
		"a body of no use":   fmt.Sprintf("POST /v1/nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", len(inner)),
		"two lengths":        fmt.Sprintf("PUT /v1/kv/k HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: %d\r\n\r\n", len(inner)),
		"a length of no sum": "PUT /v1/kv/k HTTP/1.1\r\nHost: localhost\r\nContent-Length: +0\r\n\r\n",
		"other encodings":    "PUT /v1/kv/k HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
		"a bare line feed":   "PUT /v1/kv/k HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\n",
		"a space":            "PUT /v1/kv/k HTTP/1.1\r\nHost: localhost\r\nContent-Length : 0\r\n\r\n",
	} {
		d.raw(outer + inner)
		if _, ok := d.Server.Get("/smuggled"); ok {
			t.Errorf("%s", name)
			testenv.Must(t, d.Delete(t.Context(), "/smuggled"))
		}
	}
	// With both, what came before is one request, and the connection ends.
	back := d.raw("PUT /v1/kv/k HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nv\r\n0\r\n\r\n" + inner)
	if strings.Count(back, "HTTP/1.1 204") > 1 {
		t.Errorf("%q", back)
	}
}

// A body that means nothing, and does not arrive, holds neither an answer nor a place among those that may read the
// map, whatever time-outs the http.Server has.
func TestBodiesThatMeanNothingAreNotAwaited(t *testing.T) {
	t.Parallel()
	server := served(t, chp.ServerOptions{})
	h := New(Options{Write: true, Access: prefixes{"/a/"}, Hosts: []string{"map.example"}})
	short(h)
	h.Attach(server)
	web := httptest.NewServer(h)
	t.Cleanup(web.Close)
	t.Cleanup(h.Close)
	d := &door{t: t, Handler: h, Server: server, url: web.URL, address: web.Listener.Addr().String(), client: web.Client()}
	d.set("/a/k", strings.Repeat("v", 2*writeChunk)) // it is not sent in one piece
	for request, want := range map[string]string{
		"GET /v1/kv/a/?prefix": "408", "GET /v1/kv/a/k": "408", "GET /v1/watch/a/": "408", "DELETE /v1/kv/a/k": "408", "GET /v1/lease/0": "408",
		"GET /v1/kv/b": "408", "PUT /v1/kv/b": "403", "PATCH /v1/kv/a/k": "405", "GET /v1/nothing": "404", "GET /v1/openapi.yaml": "200",
	} {
		back := d.raw(request + " HTTP/1.1\r\nHost: map.example\r\nContent-Length: 1\r\n\r\n")
		if !strings.HasPrefix(back, "HTTP/1.1 "+want) {
			t.Errorf("%s: %.80q, want %s", request, back, want)
		}
	}
	d = open(t, Options{})
	d.set("/a/k", "v")
	d.expect(200, `"/a/k"`, "GET", "/v1/kv/a/?prefix", "a body")
}

func TestTokens(t *testing.T) {
	t.Parallel()
	const token = "correct-horse-battery-staple"
	proven, err := NewProven(strings.NewReader("# of the sensors\n\n" + token + "\n"))
	testenv.Must(t, err)
	d := open(t, Options{Access: proven})
	d.expect(204, "", "PUT", "/v1/kv/k", "v", "Authorization: Bearer "+token)
	d.expect(200, "v", "GET", "/v1/kv/k", "", "Authorization: bearer  "+token)
	for _, headers := range [][]string{nil, {"Authorization: Bearer wrong-horse-battery-staple"}, {"Authorization: Bearer"}, {"Authorization: Basic " + token}, {"Authorization: " + token}} {
		for _, path := range []string{"/v1/kv/k", "/v1/watch/", "/v1/kv?prefix", "/v1/lease"} {
			a := d.expect(401, "unauthorized", "GET", path, "", headers...)
			if a.header.Get("WWW-Authenticate") != "Bearer" || strings.Contains(fmt.Sprint(a), "horse") {
				t.Errorf("%v", a)
			}
		}
	}
	d.expect(401, "unauthorized", "GET", "/v1/kv/k?access_token="+token, "")
	if text := fmt.Sprintf("%v %+v %#v", d.Handler, d.Handler, d.Handler); strings.Contains(text, "horse") {
		t.Error(text)
	}
	for _, file := range []string{"", "# nothing\n", "short\n", "a token with some spaces\n"} {
		if _, err := NewProven(strings.NewReader(file)); err == nil || strings.Contains(err.Error(), "spaces\n") {
			t.Errorf("%q: %v", file, err)
		}
	}
}

// A certificate proves something for as long as it, and those of whoever certifies it, are valid.
func TestCertificatesExpire(t *testing.T) {
	t.Parallel()
	certificate := func(name string, from, until time.Duration) *x509.Certificate {
		return &x509.Certificate{Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(from), NotAfter: time.Now().Add(until)}
	}
	valid, over, early := certificate("anna", -time.Hour, time.Hour), certificate("anna", -2*time.Hour, -time.Hour), certificate("anna", time.Hour, 2*time.Hour)
	for i, test := range []struct {
		chains [][]*x509.Certificate
		want   bool
	}{
		{nil, false}, {[][]*x509.Certificate{{valid}}, true}, {[][]*x509.Certificate{{valid, valid}}, true}, {[][]*x509.Certificate{{over, valid}}, false},
		{[][]*x509.Certificate{{valid, over}}, false}, {[][]*x509.Certificate{{early}}, false}, {[][]*x509.Certificate{{valid, over}, {valid, valid}}, true},
	} {
		r := httptest.NewRequest("GET", "/v1/kv/k", nil)
		r.TLS = &tls.ConnectionState{VerifiedChains: test.chains, PeerCertificates: []*x509.Certificate{valid}}
		if name, ok := Certified(r); ok != test.want || ok != (name == "anna") {
			t.Errorf("%d: %q, %v", i, name, ok)
		}
		proven, err := NewProven(nil)
		testenv.Must(t, err)
		if _, err := proven.Who(r); (err == nil) != test.want {
			t.Errorf("%d: %v", i, err)
		}
	}
	if _, ok := Certified(httptest.NewRequest("GET", "/v1/kv/k", nil)); ok {
		t.Error("a request without TLS is certified")
	}
}

// Each right is asked for the key that is meant, and not for one that looks like it.
func TestRights(t *testing.T) {
	t.Parallel()
	d := open(t, Options{Access: prefixes{"/a/", "$lease/"}})
	allowed := func(method, path, body string, headers ...string) {
		t.Helper()
		if a := d.ask(method, path, body, headers...); a.status == 403 {
			t.Errorf("%s %s: %d %s", method, path, a.status, a.body)
		}
	}
	const txn = "Content-Type: application/json"
	for _, path := range []string{"/a/1", "/a/", "/a%2F1", "/%61/1", "/a/../b"} { // the last one is a key
		allowed("PUT", "/v1/kv"+path, "v")
		allowed("GET", "/v1/kv"+path, "")
	}
	allowed("GET", "/v1/kv/a/?prefix", "")
	allowed("GET", "/v1/kv/a/b/?prefix", "")
	d.watch("/a/").expect("reset")
	d.watch("/a/1").expect("reset")
	allowed("POST", "/v1/txn", `{"op":"check","key":"/a/1","present":true}`+"\n"+`{"op":"set","key":"/a/2","value":"2"}`, txn)
	allowed("POST", "/v1/lease", `{"ttl":5}`, txn)
	for _, path := range []string{"/a", "/ab/1", "/A/1", "/", "//a/1", "/%2e/a/1", "/b/../a/1", "/%C3%A1/1"} {
		for _, method := range []string{"GET", "HEAD", "PUT", "DELETE"} {
			d.expect(403, "", method, "/v1/kv"+path, "v")
		}
		d.expect(403, "forbidden", "GET", "/v1/watch"+path, "")
	}
	for _, path := range []string{"", "/", "//", "/ab/"} {
		d.expect(403, "forbidden", "GET", "/v1/kv"+path+"?prefix", "")
		d.expect(403, "forbidden", "GET", "/v1/watch"+path, "")
	}
	for _, line := range []string{`{"op":"check","key":"/b","absent":true}`, `{"op":"set","key":"/b","value":"1"}`, `{"op":"del","key":"/b"}`, `{"op":"set","key_base64":"L2I=","value":"1"}`} {
		d.expect(403, "forbidden", "POST", "/v1/txn", `{"op":"set","key":"/a/3","value":"3"}`+"\n"+line, txn)
	}
	d.want("/a/3", "")
	d.expect(403, "forbidden", "GET", "/v1/lease", "")
}

// OPTIONS says what whoever asks may do, and no more.
func TestMethodsAreThoseOfWhoAsks(t *testing.T) {
	t.Parallel()
	d := open(t, Options{Access: prefixes{"/a/"}})
	for path, want := range map[string]string{"/a/1": "OPTIONS, GET, HEAD, PUT, DELETE", "/a/": "OPTIONS, GET, HEAD, PUT, DELETE", "/b": "OPTIONS", "": "OPTIONS"} {
		if a := d.expect(204, "", "OPTIONS", "/v1/kv"+path, ""); a.header.Get("Allow") != want {
			t.Errorf("%q: %q, want %q", path, a.header.Get("Allow"), want)
		}
	}
	d.o.Write = false
	if a := d.expect(204, "", "OPTIONS", "/v1/kv/a/1", ""); a.header.Get("Allow") != "OPTIONS, GET, HEAD" {
		t.Errorf("%q", a.header.Get("Allow"))
	}
	d.expect(400, "bad-parameter", "OPTIONS", "/v1/kv/a/1?prefix", "")
	proven, err := NewProven(strings.NewReader("a-token-of-sixteen-or-more\n"))
	if err != nil {
		t.Fatal(err)
	}
	closed := open(t, Options{Access: proven})
	closed.expect(401, "unauthorized", "OPTIONS", "/v1/kv/a/1", "")
	closed.expect(204, "", "OPTIONS", "/v1/kv/a/1", "", "Authorization: Bearer a-token-of-sixteen-or-more")
}

// Who loses a right while a body arrives changes nothing with it.
func TestBodiesDoNotOutliveRights(t *testing.T) {
	t.Parallel()
	for _, ends := range []string{"proof", "right"} {
		for request, body := range map[string]string{"PUT /v1/kv/a/k": "v", "POST /v1/txn": `{"op":"set","key":"/a/k","value":"v"}`} {
			var may fading
			d := open(t, Options{Access: &may})
			c, err := net.Dial("tcp", d.address)
			testenv.Must(t, err)
			defer c.Close()
			_, err = fmt.Fprintf(c, "%s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n", request, len(body))
			testenv.Must(t, err)
			testenv.Eventually(t, "the request is there", may.asked.Load)
			may.lost.Store(&ends)
			_, err = io.WriteString(c, body)
			testenv.Must(t, err)
			back, err := io.ReadAll(c)
			testenv.Must(t, err)
			if text := string(back); !strings.HasPrefix(text, "HTTP/1.1 401 ") && !strings.HasPrefix(text, "HTTP/1.1 403 ") {
				t.Errorf("%s, and the %s has ended: %.80q", request, ends, text)
			}
			d.want("/a/k", "")
		}
	}
}

// fading is an Access of one who has a proof and rights until one of them is lost.
type fading struct {
	asked atomic.Bool
	lost  atomic.Pointer[string]
}

func (f *fading) has(what string) bool { lost := f.lost.Load(); return lost == nil || *lost != what }

func (f *fading) Who(*http.Request) (string, error) {
	defer f.asked.Store(true)
	if !f.has("proof") {
		return "", ErrToken
	}
	return "anna", nil
}

func (f *fading) Allow(string, Verb, string) error {
	if !f.has("right") {
		return errors.New("no right")
	}
	return nil
}

// prefixes is an Access to what begins with some.
type prefixes []string

func (prefixes) Who(*http.Request) (string, error) { return "", nil }

func (p prefixes) Allow(_ string, _ Verb, key string) error {
	for _, prefix := range p {
		if strings.HasPrefix(key, prefix) {
			return nil
		}
	}
	return fmt.Errorf("not %q", key)
}

func TestReadOnly(t *testing.T) {
	t.Parallel()
	d := open(t, Options{})
	d.set("/k", "v")
	d.o.Write = false
	for _, r := range [][2]string{{"PUT", "/v1/kv/k"}, {"DELETE", "/v1/kv/k"}, {"POST", "/v1/txn"}, {"POST", "/v1/lease"}, {"PUT", "/v1/lease/" + strings.Repeat("0", 32)}, {"DELETE", "/v1/lease/" + strings.Repeat("0", 32)}} {
		d.expect(403, "read-only", r[0], r[1], `{"op":"del","key":"/k"}`, "Content-Type: application/json")
	}
	d.expect(200, "v", "GET", "/v1/kv/k", "")
	d.watch("/").expect("reset")
}

func TestRates(t *testing.T) {
	t.Parallel()
	r := rates{each: time.Second / 10}
	now := time.Now()
	a, b := hosts.Of("10.0.0.1:1"), hosts.Of("10.0.0.2:1")
	for i := range 10 {
		if !r.admit(a, now) {
			t.Errorf("request %d", i)
		}
	}
	if r.admit(a, now) || !r.admit(b, now) || !r.admit(a, now.Add(time.Second/10)) || r.admit(a, now.Add(time.Second/10)) {
		t.Error("want ten at once, and ten a second")
	}
	for i := range 3 * maxRates {
		r.admit(hosts.Of(fmt.Sprintf("10.1.%d.%d:1", i>>8, i&255)), now)
	}
	if len(r.due) > maxRates+1 {
		t.Errorf("%d addresses", len(r.due))
	}
	if r.admit(hosts.Of("10.200.0.1:1"), now) {
		t.Error("the others share one")
	}
	if !r.admit(hosts.Of("10.200.0.1:1"), now.Add(time.Minute)) || len(r.due) > 2 {
		t.Errorf("after a minute there are %d addresses", len(r.due))
	}
	d := open(t, Options{Rate: 1})
	d.expect(404, "absent", "GET", "/v1/kv/k", "")
	if a := d.expect(429, "too-many-requests", "GET", "/v1/kv/k", ""); a.header.Get("Retry-After") == "" {
		t.Errorf("%v", a)
	}
}
