package httpkv

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"clustermap/chp"
	"clustermap/internal/testenv"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// served is a server that serves until the test ends.
func served(t testing.TB, o chp.ServerOptions) *chp.Server {
	t.Helper()
	if o.Host == "" {
		o.Host = "127.0.0.1"
	}
	s, err := chp.NewServer(o)
	testenv.Must(t, err)
	testenv.Must(t, s.Listen(context.Background()))
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(context.Background()) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	<-s.Ready()
	return s
}

// door is a Handler that is served over TCP.
type door struct {
	t *testing.T
	*Handler
	*chp.Server
	url, address string
	client       *http.Client
}

// open opens a door to a server of its own, for which requests may write.
func open(t *testing.T, o Options, change ...func(*Handler)) *door {
	t.Helper()
	return openTo(t, served(t, chp.ServerOptions{}), o, change...)
}

func openTo(t *testing.T, s *chp.Server, o Options, change ...func(*Handler)) *door {
	t.Helper()
	o.Write = true
	h := New(o)
	for _, c := range change {
		c(h)
	}
	if s != nil {
		h.Attach(s)
	}
	web := httptest.NewUnstartedServer(h)
	// As chp serve has them: they end no stream, nor an answer that may take longer.
	web.Config.ReadTimeout, web.Config.WriteTimeout = h.patience, h.patience
	web.Start()
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	d := &door{t: t, Handler: h, Server: s, url: web.URL, address: web.Listener.Addr().String(), client: &http.Client{Transport: transport}}
	t.Cleanup(func() {
		h.Close()
		transport.CloseIdleConnections()
		web.Close()
	})
	return d
}

// answered is an answer that was read.
type answered struct {
	status int
	header http.Header
	body   string
}

func (a answered) problem() string {
	var p struct{ Type string }
	if a.header.Get("Content-Type") != "application/problem+json" || json.Unmarshal([]byte(a.body), &p) != nil {
		return ""
	}
	return strings.TrimPrefix(p.Type, typePrefix)
}

// seq is the sequence of the entity tag.
func (a answered) seq() string { return strings.Trim(a.header.Get("ETag"), `"`) }

// ask makes a request with headers, as name: value.
func (d *door) ask(method, path, body string, headers ...string) answered {
	d.t.Helper()
	r, err := http.NewRequestWithContext(d.t.Context(), method, d.url+path, strings.NewReader(body))
	testenv.Must(d.t, err)
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		if name == "Host" {
			r.Host = value
		} else {
			r.Header.Add(name, value)
		}
	}
	return d.do(r)
}

func (d *door) do(r *http.Request) answered {
	d.t.Helper()
	answer, err := d.client.Do(r)
	testenv.Must(d.t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	testenv.Must(d.t, err)
	return answered{answer.StatusCode, answer.Header, string(text)}
}

// expect makes a request, and wants a status and a part of the body or, if that has no other letters than
// those of a kind, a problem.
func (d *door) expect(status int, want, method, path, body string, headers ...string) answered {
	d.t.Helper()
	a := d.ask(method, path, body, headers...)
	if a.status != status || want != "" && a.problem() != want && !strings.Contains(a.body, want) {
		d.t.Errorf("%s %s %q: %d %q, want %d %s", method, path, headers, a.status, a.body, status, want)
	}
	return a
}

// raw sends bytes over a connection of their own, and returns what comes back until that is closed.
func (d *door) raw(text string) string {
	d.t.Helper()
	c, err := net.Dial("tcp", d.address)
	testenv.Must(d.t, err)
	defer c.Close()
	_, err = io.WriteString(c, text)
	testenv.Must(d.t, err)
	back, _ := io.ReadAll(c)
	return string(back)
}

func (d *door) want(key, value string) {
	d.t.Helper()
	if got, ok := d.Server.Get(key); string(got) != value || ok != (value != "") {
		d.t.Errorf("%q is %q, want %q", key, got, value)
	}
}

func (d *door) set(key, value string, o ...chp.SetOption) int64 {
	d.t.Helper()
	seq, err := d.Server.SetSync(d.t.Context(), key, []byte(value), o...)
	testenv.Must(d.t, err)
	return seq
}

// event is a server-sent event, or a comment with the name ":".
type event struct{ name, id, data string }

func (e event) key() string {
	var line struct{ Key string }
	_ = json.Unmarshal([]byte(e.data), &line) // then there is none
	return line.Key
}

// events is an open stream.
type events struct {
	t    *testing.T
	in   *bufio.Reader
	stop func()
	last string // the last id, as a browser has it
}

// watch opens a stream, which must be one.
func (d *door) watch(path string, headers ...string) *events {
	d.t.Helper()
	ctx, cancel := context.WithCancel(d.t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url+"/v1/watch"+path, nil)
	testenv.Must(d.t, err)
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	answer, err := d.client.Do(r)
	if err != nil {
		cancel()
		d.t.Fatal(err)
	}
	stop := func() {
		cancel()
		answer.Body.Close()
	}
	d.t.Cleanup(stop)
	if answer.StatusCode != 200 || answer.Header.Get("Content-Type") != "text/event-stream" {
		text, _ := io.ReadAll(answer.Body)
		d.t.Fatalf("%s: %d %s", path, answer.StatusCode, text)
	}
	return &events{t: d.t, in: bufio.NewReader(answer.Body), stop: stop}
}

// read returns the next event, as HTML says that it is read, or the error of a stream that has ended.
func (s *events) read() (e event, err error) {
	for {
		line, err := s.in.ReadString('\n')
		if err != nil {
			return e, err
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "\n":
			return e, nil
		case name == "":
			e.name = ":"
		case name == "event":
			e.name = value
		case name == "data":
			e.data += value
		case name == "id":
			e.id, s.last = value, value
		default:
			return e, fmt.Errorf("a line %q", line)
		}
	}
}

// next returns the next event that has a name, and is no comment.
func (s *events) next() event {
	s.t.Helper()
	for {
		e, err := s.read()
		if err != nil {
			s.t.Fatal(err)
		}
		if e.name != "" && e.name != ":" {
			return e
		}
	}
}

// expect wants events, each a name and a key.
func (s *events) expect(want ...string) {
	s.t.Helper()
	for _, w := range want {
		if e := s.next(); strings.TrimSpace(e.name+" "+e.key()) != w {
			s.t.Fatalf("got %+v, want %s", e, w)
		}
	}
}

// short makes all waits short.
func short(h *Handler) {
	h.patience, h.heartbeat, h.lookAgain = 300*time.Millisecond, 20*time.Millisecond, 10*time.Millisecond
}
