package httpkv

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"clustermap/chp"
	"clustermap/internal/hosts"
	"clustermap/internal/testenv"
)

func TestWatchBeginsWithTheState(t *testing.T) {
	t.Parallel()
	d := open(t, Options{})
	d.set("/a/1", "1")
	d.set("/ab/1", "1")
	d.set("outside", "1")
	s := d.watch("/a/")
	if e := s.next(); e.name != "reset" || e.id != "" {
		t.Errorf("%+v", e)
	}
	if e := s.next(); e.name != "set" || e.key() != "/a/1" || e.id != "" {
		t.Errorf("%+v", e) // no id: from here nobody can go on
	}
	synced := s.next()
	if synced.name != "synced" || synced.id != strconv.FormatInt(d.Sequence(), 10) {
		t.Errorf("%+v", synced)
	}
	d.set("/ab/2", "2")
	seq := d.set("/a/2", "line\nbreak\r\xff", chp.WithTTL(time.Hour), chp.WithProperty("p", "q"))
	e := s.next()
	var line struct {
		Op, Cause, Key, Seq string
		Value               []byte `json:"value_base64"`
		TTL                 float64
		Properties          map[string]string
	}
	testenv.Must(t, json.Unmarshal([]byte(e.data), &line))
	if e.name != "set" || e.id != strconv.FormatInt(seq, 10) || line.Op != "set" || line.Cause != "set" || line.Key != "/a/2" || line.Seq != e.id || string(line.Value) != "line\nbreak\r\xff" || line.TTL < 3500 || line.Properties["p"] != "q" {
		t.Errorf("%+v", e)
	}
	testenv.Must(t, d.Delete(t.Context(), "/a/1"))
	s.expect("del /a/1")

	one := d.watch("/a/2") // a single key
	one.expect("reset", "set /a/2", "synced")
	all := d.watch("")
	all.expect("reset")
	found := map[string]bool{}
	for e := all.next(); e.name != "synced"; e = all.next() {
		found[e.key()] = true
	}
	if !found["outside"] || !found["/ab/1"] || !found["/a/2"] || len(found) != 4 {
		t.Errorf("%v", found)
	}
	slash := d.watch("/")
	slash.expect("reset")
	for e := slash.next(); e.name != "synced"; e = slash.next() {
		if e.key()[0] != '/' {
			t.Errorf("%+v", e)
		}
	}
	d.set("/a/2", "3")
	one.expect("set /a/2")
	d.expect(405, "", "HEAD", "/v1/watch/", "")
	d.expect(400, "invalid-key", "GET", "/v1/watch/a%00", "")
}

// An id is a point between two transactions, so whoever goes on there sees each as a whole, and every event
// once.
func TestWatchGoesOn(t *testing.T) {
	t.Parallel()
	d := open(t, Options{})
	begin := d.set("/a/0", "0")
	var b chp.Batch
	for i := range 3 {
		b.Set(fmt.Sprintf("/a/%d", i), []byte("1"))
		b.Set(fmt.Sprintf("/b/%d", i), []byte("1"))
	}
	first, err := d.ApplyIf(t.Context(), &b)
	testenv.Must(t, err)
	last := first + int64(b.Len()) - 1
	d.set("/a/single", "1")
	since := func(seq int64) string { return fmt.Sprintf("?since=%d", seq) }
	s := d.watch("/a/" + since(begin))
	for _, want := range []string{"/a/0", "/a/1", "/a/2"} {
		if e := s.next(); e.key() != want || e.id != "" || s.last != "" || !strings.Contains(e.data, fmt.Sprintf(`"transaction":"%d"`, last)) {
			t.Errorf("%+v, and the last id is %s", e, s.last)
		}
	}
	if e := s.next(); e.key() != "/a/single" || e.id == "" {
		t.Errorf("%+v", e)
	}
	s.expect("synced")

	// The end of the transaction is a point, although its last update is elsewhere.
	again := d.watch("/a/", "Last-Event-ID: "+strconv.FormatInt(last, 10))
	again.expect("set /a/single", "synced")
	both := d.watch("/a/"+since(begin), "Last-Event-ID: "+strconv.FormatInt(last, 10)) // as a browser does it
	both.expect("set /a/single", "synced")

	d.expect(410, "compacted", "GET", "/v1/watch/a/?since=1", "")
	d.expect(410, `"oldest":"`, "GET", "/v1/watch/a/"+since(begin+1<<40), "")
	for _, text := range []string{"0", "-1", "x", "1.5", "", "99999999999999999999"} {
		d.expect(400, "bad-parameter", "GET", "/v1/watch/a/?since="+text, "")
	}
	old := d.watch("/a/", "Last-Event-ID: 1")
	old.expect("reset", "set /a/0", "set /a/1", "set /a/2", "set /a/single", "synced")
}

// Readers that are cut off at any byte, and go on at the last id that they have read, see every value of a
// counter that rises in transactions, in order.
func TestWatchLosesNothing(t *testing.T) {
	t.Parallel()
	d := open(t, Options{})
	d.set("/n/1", "0")
	d.set("/n/2", "0")
	const last = 300
	var writer sync.WaitGroup
	defer writer.Wait()
	began := make(chan struct{})
	writer.Go(func() {
		<-began
		for i := 1; i <= last; i++ {
			var b chp.Batch
			b.Set("/n/1", strconv.AppendInt(nil, int64(i), 10))
			b.Set("/n/2", strconv.AppendInt(nil, int64(i), 10))
			if _, err := d.ApplyIf(t.Context(), &b); err != nil {
				t.Error(err)
				return
			}
		}
	})
	state := map[string]int{}
	done, id := 0, "" // what is complete, and where
	for round := 1; done < last; round++ {
		var s *events
		if id == "" {
			s = d.watch("/n/")
		} else {
			s = d.watch("/n/", "Last-Event-ID: "+id)
		}
		if round == 1 {
			close(began)
		}
		for n := 0; n < 20*round; n++ {
			e, err := s.read()
			if err != nil {
				t.Fatal(err)
			}
			if e.name == "set" {
				var line struct{ Key, Value string }
				testenv.Must(t, json.Unmarshal([]byte(e.data), &line))
				v, err := strconv.Atoi(line.Value)
				testenv.Must(t, err)
				if had, ok := state[line.Key]; ok && v > had+1 {
					t.Fatalf("%s is %d after %d", line.Key, v, had)
				}
				state[line.Key] = v
			}
			if e.id != "" {
				if state["/n/1"] != state["/n/2"] {
					t.Fatalf("at %s: %v", e.id, state)
				}
				id, done = e.id, state["/n/1"]
			}
			if done == last {
				break
			}
		}
		s.stop()
		state = map[string]int{"/n/1": done, "/n/2": done}
	}
}

func TestWatchIsQuiet(t *testing.T) {
	t.Parallel()
	d := openTo(t, served(t, chp.ServerOptions{HeartbeatInterval: time.Millisecond}), Options{}, func(h *Handler) { h.heartbeat, h.lookAgain = 20*time.Millisecond, 10*time.Millisecond })
	s := d.watch("/a/")
	s.expect("reset", "synced")
	for range 3 {
		for e, err := s.read(); e.name != ":"; e, err = s.read() {
			testenv.Must(t, err)
			if e.id != "" {
				t.Errorf("a server on which nothing happens: %+v", e)
			}
		}
	}
	// What happens elsewhere moves the point to go on at.
	seq := strconv.FormatInt(d.set("/b", "1"), 10)
	for s.last != seq {
		e, err := s.read()
		testenv.Must(t, err)
		if e.name != "" && e.name != ":" || e.data != "" {
			t.Errorf("%+v", e)
		}
	}
}

func TestWatchEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*door){
		"with the server": func(d *door) { d.Server.Close() }, "with the handler": func(d *door) { d.Handler.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t, Options{})
			s := d.watch("/a/")
			s.expect("reset", "synced")
			go end(d)
			if rest, err := io.ReadAll(s.in); err != nil {
				t.Errorf("%q, %v", rest, err)
			}
			testenv.Eventually(t, "there is no stream", func() bool {
				d.streams.mu.Lock()
				defer d.streams.mu.Unlock()
				return d.streams.open == 0 && len(d.streams.of) == 0
			})
		})
	}
}

// Somebody who loses a right loses the streams and the lists that need it.
func TestWatchEndsWithItsRight(t *testing.T) {
	t.Parallel()
	rights := new(some)
	d := open(t, Options{Access: rights}, func(h *Handler) { h.lookAgain = 10 * time.Millisecond })
	s := d.watch("/a/")
	other := d.watch("/b/")
	s.expect("reset", "synced")
	other.expect("reset", "synced")
	rights.not.Store("/a/")
	if _, err := io.ReadAll(s.in); err != nil {
		t.Error(err)
	}
	d.set("/a/1", "1")
	d.set("/b/1", "1")
	other.expect("set /b/1")
	d.expect(403, "forbidden", "GET", "/v1/watch/a/", "")

	// In the midst of a list that is not read.
	for i := range 40 {
		d.set(fmt.Sprintf("/b/%d", i), strings.Repeat("x", 1<<20))
	}
	answer, err := d.client.Get(d.url + "/v1/kv/b/?prefix")
	testenv.Must(t, err)
	defer answer.Body.Close()
	_, err = answer.Body.Read(make([]byte, 1000))
	testenv.Must(t, err)
	rights.not.Store("/b/")
	if n, err := io.Copy(io.Discard, answer.Body); err == nil {
		t.Errorf("the list went on for %d bytes", n)
	}
}

// some is an Access that forbids one subtree to everybody.
type some struct{ not atomic.Value }

func (*some) Who(r *http.Request) (string, error) { return Bearer(r), nil }

func (s *some) Allow(name string, verb Verb, key string) error {
	if not, _ := s.not.Load().(string); not != "" && strings.HasPrefix(key, not) {
		return fmt.Errorf("%s may not %s %s", name, verb, key)
	}
	return nil
}

func TestStreamsAreLimited(t *testing.T) {
	t.Parallel()
	d := open(t, Options{MaxStreams: 10, MaxStreamsEach: 2})
	one, two := d.watch("/"), d.watch("/")
	one.expect("reset", "synced")
	two.expect("reset", "synced")
	d.expect(429, "too-many-streams", "GET", "/v1/watch/", "")
	d.expect(404, "absent", "GET", "/v1/kv/k", "")
	one.stop()
	testenv.Eventually(t, "there is room", func() bool {
		ok := d.streams.begin(hosts.Of("127.0.0.1:1"))
		if ok {
			d.streams.end(hosts.Of("127.0.0.1:1"))
		}
		return ok
	})
	d.watch("/").expect("reset", "synced")
	var s = streams{most: 3, each: 2}
	for i, want := range []bool{true, true, false} {
		if s.begin(hosts.Of("[2001:db8::1]:1")) != want {
			t.Error(i)
		}
	}
	if s.begin(hosts.Of("[2001:db8::2]:1")) || !s.begin(hosts.Of("[2001:db8:0:1::1]:1")) || s.begin(hosts.Of("10.0.0.1:1")) {
		t.Error("the addresses of a network of IPv6 count as one, and there are three at most")
	}
}

// Who asks for much and does not read it is dropped, and holds little of the server's memory until then: of the
// map, of streams, of a large value.
func TestSlowReadersAreDropped(t *testing.T) { // alone: it looks at the heap of the process
	s := served(t, chp.ServerOptions{WatchQueue: 1 << 20})
	value := bytes.Repeat([]byte{'x'}, 1<<20)
	for i := range 48 {
		testenv.Must(t, s.Set(t.Context(), fmt.Sprintf("/big/%d", i), value))
	}
	testenv.Must(t, s.Set(t.Context(), "/value", bytes.Repeat([]byte{'y'}, 15<<20)))
	d := openTo(t, s, Options{}, func(h *Handler) { h.patience = 2 * time.Second })
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	before := m.HeapAlloc
	var all []net.Conn
	for _, path := range []string{"/v1/kv/big/?prefix", "/v1/watch/big/", "/v1/kv/value"} {
		for range 2 {
			c, err := net.Dial("tcp", d.address)
			testenv.Must(t, err)
			defer c.Close()
			testenv.Must(t, c.(*net.TCPConn).SetReadBuffer(4096))
			_, err = fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path)
			testenv.Must(t, err)
			all = append(all, c)
		}
	}
	for _, c := range all {
		if _, err := c.Read(make([]byte, 1)); err != nil {
			t.Error(err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&m)
	if grown := int64(m.HeapAlloc) - int64(before); grown > 60<<20 {
		t.Errorf("the heap has %d MiB more", grown>>20)
	}
	testenv.Eventually(t, "all are dropped", func() bool {
		d.streams.mu.Lock()
		defer d.streams.mu.Unlock()
		return d.memory.used.Load() == 0 && len(d.lists) == 0 && d.streams.open == 0
	})
}

func TestListsAreLimited(t *testing.T) {
	t.Parallel()
	d := open(t, Options{})
	for range maxLists {
		d.lists <- struct{}{}
	}
	for _, path := range []string{"/v1/kv?prefix", "/v1/lease"} {
		d.expect(503, "busy", "GET", path, "")
	}
	d.expect(200, "", "HEAD", "/v1/kv?prefix", "")
}

// Who stops in the midst of a body is given up, and bodies share the memory for them.
func TestBodiesAreLimited(t *testing.T) {
	t.Parallel()
	d := open(t, Options{}, short)
	if back := d.raw("PUT /v1/kv/k HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nxyz"); !strings.HasPrefix(back, "HTTP/1.1 408 ") {
		t.Errorf("%q", back)
	}
	if back := d.raw("PUT /v1/kv/k HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000000\r\n\r\nxyz"); !strings.HasPrefix(back, "HTTP/1.1 413 ") {
		t.Errorf("too long: %q", back)
	}
	d.memory.used.Store(maxBodies - smallBody)
	d.expect(503, "busy", "PUT", "/v1/kv/k", strings.Repeat("x", 4*smallBody))
	d.expect(204, "", "PUT", "/v1/kv/k", strings.Repeat("x", smallBody))
	d.expect(200, "", "GET", "/v1/kv/k", "")
	if n := d.memory.used.Load(); n != maxBodies-smallBody {
		t.Errorf("%d bytes are counted", n)
	}
	d.memory.used.Store(maxBodies)
	d.set("/large", strings.Repeat("x", 2*smallBody))
	d.expect(503, "busy", "GET", "/v1/kv/large", "")
}
