package majordomo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"clustermap/sockets"
)

// Each requirement of RFC 7 and RFC 18 has one or more tests.

// TestOneRouter: clients and workers use the same ROUTER socket of the broker.
func TestOneRouter(t *testing.T) {
	t.Parallel()
	b, endpoint := startBroker(t, lasting)
	w := newRaw(t, endpoint, sockets.Options{})
	w.ready(b, "s")
	c := newRaw(t, endpoint, sockets.Options{})
	c.request("s", "body")
	w.reply(w.awaitRequest("body"), "done")
	m, peer, err := c.RecvFrom(c.ctx)
	must(t, err)
	if got := texts(m); !slices.Equal(got, []string{"", client01, "s", "done"}) || peer.SocketType() != "ROUTER" {
		t.Errorf("%q from a %s", got, peer.SocketType())
	}
}

// TestClientsShareAService: a client with many requests does not delay another one by all of them.
func TestClientsShareAService(t *testing.T) {
	t.Parallel()
	b, endpoint := startBroker(t, lasting)
	greedy := newRaw(t, endpoint, sockets.Options{})
	for range 500 {
		greedy.request("s", "greedy")
	}
	waits := func(n int) {
		eventually(t, "requests wait", func() bool { s := b.Services(); return len(s) == 1 && s[0].Waiting == n })
	}
	waits(500)
	modest := newRaw(t, endpoint, sockets.Options{})
	modest.request("s", "modest")
	waits(501)
	w := newRaw(t, endpoint, sockets.Options{})
	w.ready(b, "s")
	for n := 1; ; n++ {
		got := w.recv()
		w.reply(got[3], "done")
		if got[5] == "modest" {
			if n > 2 {
				t.Errorf("served as number %d", n)
			}
			break
		}
	}
	modest.await("", client01, "s", "done")
}

// TestLongestIdle: of several workers, the one that has been idle longest gets the
// next request.
func TestLongestIdle(t *testing.T) {
	t.Parallel()
	b, endpoint := startBroker(t, lasting)
	var workers [3]*raw
	for i := range workers {
		workers[i] = newRaw(t, endpoint, sockets.Options{})
		workers[i].ready(b, "s")
	}
	c := newRaw(t, endpoint, sockets.Options{})
	for round := range 6 {
		body := fmt.Sprint(round)
		c.request("s", body)
		w := workers[round%3]
		w.reply(w.awaitRequest(body), body)
		c.await("", client01, "s", body)
	}
}

// TestExactName: a request goes only to workers of exactly the same name.
func TestExactName(t *testing.T) {
	t.Parallel()
	b, endpoint := startBroker(t, lasting)
	w := newRaw(t, endpoint, sockets.Options{})
	w.ready(b, "echo")
	c := newRaw(t, endpoint, sockets.Options{})
	others := []string{"ech", "echo ", "Echo", "echo\x00", "echo.x"}
	for _, name := range others {
		c.request(name, "no")
	}
	c.request("echo", "yes")
	w.reply(w.awaitRequest("yes"), "done")
	c.await("", client01, "echo", "done")
	if n := len(b.Services()); n != 1+len(others) {
		t.Errorf("%d services", n)
	}
}

// TestRequestWaitsForAWorker: a request for a service without workers waits for one.
func TestRequestWaitsForAWorker(t *testing.T) {
	t.Parallel()
	b, endpoint := startBroker(t, lasting)
	c := startClient(t, endpoint, ClientOptions{})
	done := make(chan error, 1)
	go func() {
		_, err := c.Request(testContext(t), "later", []byte("body"))
		done <- err
	}()
	eventually(t, "the request waits", func() bool {
		return slices.Equal(b.Services(), []ServiceStatus{{Name: "later", Waiting: 1}})
	})
	startWorker(t, "later", endpoint, echo, WorkerOptions{})
	must(t, <-done)
}

// TestWaitingRequestExpires: a request that has waited for Expiry is dropped with its service. A
// client of this package gets an error; one of another implementation gets nothing.
func TestWaitingRequestExpires(t *testing.T) {
	t.Parallel()
	o := lasting
	o.Expiry = 30 * time.Millisecond
	b, endpoint := startBroker(t, o)
	c := startClient(t, endpoint, ClientOptions{})
	if _, err := c.Request(testContext(t), "none", []byte("body")); !errors.Is(err, ErrExpired) {
		t.Errorf("%v", err)
	}
	r := newRaw(t, endpoint, sockets.Options{})
	r.request("none", "body")
	eventually(t, "both have expired", func() bool { return b.Stats().Expired == 2 })
	if s := b.Stats(); s.Services != 0 || s.Bytes != 0 {
		t.Errorf("%+v", s)
	}
	r.request(serviceLookup, "none")
	r.await("", client01, serviceLookup, "404")
}

// TestWaitingRequestsAreBounded: waiting requests are bounded in number and bytes, for a service and in
// total. One client cannot use all of the room.
func TestWaitingRequestsAreBounded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		o    BrokerOptions
		body int
		most int // requests that may wait
	}{
		{"number", BrokerOptions{MaxWaiting: 10}, 1, 5},
		{"bytes", BrokerOptions{MaxWaitingBytes: 10 * (1000 + jobCost)}, 1000, 5},
		{"all bytes", BrokerOptions{MaxBytes: 10 * (1000 + jobCost)}, 1000, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b, endpoint := startBroker(t, c.o)
			body := strings.Repeat("x", c.body)
			greedy := newRaw(t, endpoint, sockets.Options{})
			for range 100 {
				greedy.request("s", body)
			}
			eventually(t, "all were judged", func() bool { return b.Stats().Requests == 100 })
			waiting := b.Services()[0].Waiting
			if s := b.Stats(); waiting < c.most-1 || waiting > c.most || s.Refused != 100-uint64(waiting) {
				t.Errorf("%d wait, want %d: %+v", waiting, c.most, s)
			}
			modest := startClient(t, endpoint, ClientOptions{})
			ctx, cancel := context.WithCancel(testContext(t))
			defer cancel()
			go func() { _, _ = modest.Request(ctx, "s", []byte(body)) }()
			eventually(t, "the other client's is judged", func() bool { return b.Stats().Requests == 101 })
			if n := b.Services()[0].Waiting; n != waiting+1 {
				t.Errorf("%d wait", n)
			}
		})
	}
}

// TestServiceNamesAreBounded: requests for many names do not exceed MaxServices, and do not prevent
// a worker from registering.
func TestServiceNamesAreBounded(t *testing.T) {
	t.Parallel()
	o := lasting
	o.MaxServices = 20
	b, endpoint := startBroker(t, o)
	for range 4 {
		c := newRaw(t, endpoint, sockets.Options{})
		for i := range 100 {
			c.request(fmt.Sprintf("name %d %p", i, c), "body")
		}
	}
	eventually(t, "all were judged", func() bool { return b.Stats().Requests == 400 })
	if s := b.Stats(); s.Services > 20 || s.Services < 10 {
		t.Errorf("%d services", s.Services)
	}
	for i := range 20 {
		newRaw(t, endpoint, sockets.Options{}).ready(b, fmt.Sprint("real ", i))
	}
	if s := b.Stats(); s.Services != 20 || s.Workers != 20 || s.Bytes != 0 {
		t.Errorf("%+v", s)
	}
	one := newRaw(t, endpoint, sockets.Options{})
	one.send("", worker01, cReady, "one too many")
	one.await("", worker01, cDisconnect)
	if _, err := startClient(t, endpoint, ClientOptions{}).Request(one.ctx, "one too many"); !errors.Is(err, ErrNoService) {
		t.Error(err)
	}
}

// TestWorkersAreBounded: a worker beyond MaxWorkers is sent DISCONNECT.
func TestWorkersAreBounded(t *testing.T) {
	t.Parallel()
	o := lasting
	o.MaxWorkers = 1
	b, endpoint := startBroker(t, o)
	newRaw(t, endpoint, sockets.Options{}).ready(b, "s")
	two := newRaw(t, endpoint, sockets.Options{})
	two.send("", worker01, cReady, "s")
	two.await("", worker01, cDisconnect)
}

// TestSecondReady: a worker that sends READY again is sent DISCONNECT.
func TestSecondReady(t *testing.T) {
	t.Parallel()
	b, endpoint := startBroker(t, lasting)
	w := newRaw(t, endpoint, sockets.Options{})
	w.ready(b, "s")
	w.send("", worker01, cReady, "other")
	w.await("", worker01, cDisconnect)
	if s := b.Services(); len(s) != 0 {
		t.Errorf("%+v", s)
	}
}

// TestReadyHasNoAnswer: after READY the broker sends only heartbeats.
func TestReadyHasNoAnswer(t *testing.T) {
	t.Parallel()
	b, endpoint := startBroker(t, lasting)
	w := newRaw(t, endpoint, sockets.Options{})
	w.ready(b, "s")
	for range 3 {
		m, err := w.Recv(w.ctx)
		must(t, err)
		if got := texts(m); !slices.Equal(got, []string{"", worker01, cHeartbeat}) {
			t.Errorf("%q", got)
		}
	}
}

// TestWorkerDisconnects: after a worker's DISCONNECT, before or after READY, the broker sends
// it nothing more, and its requests go to others.
func TestWorkerDisconnects(t *testing.T) {
	t.Parallel()
	b, endpoint := startBroker(t, lasting)
	watch := newRaw(t, endpoint, sockets.Options{})
	watch.ready(b, "watch")

	early := newRaw(t, endpoint, sockets.Options{})
	early.send("", worker01, cDisconnect)
	w := newRaw(t, endpoint, sockets.Options{})
	w.ready(b, "s")
	c := newRaw(t, endpoint, sockets.Options{})
	c.request("s", "1")
	address := w.awaitRequest("1")
	w.send("", worker01, cDisconnect)
	w.reply(address, "too late")
	eventually(t, "the request waits again", func() bool {
		return slices.Contains(b.Services(), ServiceStatus{Name: "s", Waiting: 1})
	})
	silent(t, b, watch, early, w)

	other := newRaw(t, endpoint, sockets.Options{})
	other.ready(b, "s")
	other.reply(other.awaitRequest("1"), "done")
	c.await("", client01, "s", "done")
}

// TestBrokerDisconnects: a broker that ends sends DISCONNECT to its workers, which
// connect to the next one at once.
func TestBrokerDisconnects(t *testing.T) {
	t.Parallel()
	o := lasting
	o.Socket.Linger = hang
	b, endpoint := startBroker(t, o)
	w := newRaw(t, endpoint, sockets.Options{})
	w.ready(b, "s")
	must(t, b.Close())
	w.await("", worker01, cDisconnect)
}

// TestUnexpectedCommand: a valid but unexpected command is answered with DISCONNECT, and that
// worker is sent nothing else, even if it sends more.
func TestUnexpectedCommand(t *testing.T) {
	t.Parallel()
	for _, v := range []Version{Version01, Version02} {
		head, code := []string{"", worker01}, func(c command) string { return string(workerCode(v, c)) }
		if v == Version02 {
			head = []string{worker02}
		}
		do := func(c command, frames ...string) []string {
			return append(append(slices.Clone(head), code(c)), frames...)
		}
		scripts := map[string][][]string{
			"HEARTBEAT before READY": {do(heartbeat)},
			"REPLY before READY":     {do(reply, "address", "", "body")},
			"READY twice":            {do(ready, "s"), do(ready, "s")},
			"REPLY while idle":       {do(ready, "s"), do(reply, "address", "", "body")},
			"READY for mmi.":         {do(ready, "mmi.service")},
		}
		if v == Version02 {
			scripts["PARTIAL while idle"] = [][]string{do(ready, "s"), do(partial, "address", "", "body")}
		}
		for name, script := range scripts {
			t.Run(v.String()+" "+name, func(t *testing.T) {
				t.Parallel()
				b, endpoint := startBroker(t, lasting)
				watch := newRaw(t, endpoint, sockets.Options{})
				watch.ready(b, "watch")
				w := newRaw(t, endpoint, sockets.Options{})
				for _, m := range script {
					w.send(m...)
				}
				w.await(do(disconnect)...)
				w.send(do(heartbeat)...)
				w.send(do(ready, "s")...)
				silent(t, b, watch, w)
				if s := b.Stats(); s.Dismissed != 1 || s.Workers != 1 {
					t.Errorf("%+v", s)
				}
			})
		}
	}
}

// TestMalformedMessage: an invalid message is dropped and counted, and its sender is
// disconnected. Others are not affected.
func TestMalformedMessage(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("n", MaxServiceName+1)
	for _, m := range [][]string{
		{"x"},
		{"", "x"},
		{"", "MDPC03", "s", "body"},
		{"", client01},
		{"", client01, "s"},
		{"", client01, "", "body"},
		{"", client01, long, "body"},
		{client01, "s", "body"},
		{"", client02, "\x01", "s", "body"},
		{client02},
		{client02, "\x01"},
		{client02, "\x01", "s"},
		{client02, "\x02", "s", "body"},
		{client02, "\x01\x01", "s", "body"},
		{client02, "", "s", "body"},
		{"number", client01, "s", "body"},
		{"number", ""},
		{"number of more than 16 bytes", "", client01, "s", "body"},
		{"number", "", worker01, cReady, "s"},
		{"", worker01},
		{"", worker01, ""},
		{"", worker01, "\x00"},
		{"", worker01, "\xff"},
		{"", worker01, "\x01\x01", "s"},
		{"", worker01, cReady},
		{"", worker01, cReady, ""},
		{"", worker01, cReady, long},
		{"", worker01, cReady, "s", "more"},
		{"", worker01, cHeartbeat, "more"},
		{"", worker01, cDisconnect, "more"},
		{"", worker01, cRequest, "address", "", "body"},
		{worker01, cReady, "s"},
		{"", worker02, cReady, "s"},
		{worker02, "\x07"},
	} {
		t.Run(fmt.Sprintf("%.60q", m), func(t *testing.T) {
			t.Parallel()
			var why atomic.Pointer[error]
			o := lasting
			o.Socket.Monitor = func(e sockets.Event) {
				if e.Kind == sockets.EventDisconnected {
					why.Store(&e.Err)
				}
			}
			b, endpoint := startBroker(t, o)
			w := newRaw(t, endpoint, sockets.Options{})
			w.ready(b, "s")
			bad := newRaw(t, endpoint, sockets.Options{ReconnectInterval: -1})
			bad.send(m...)
			eventually(t, "the peer is disconnected", func() bool {
				return why.Load() != nil && errors.Is(*why.Load(), ErrMalformed)
			})
			c := newRaw(t, endpoint, sockets.Options{})
			c.request("s", "body")
			w.reply(w.awaitRequest("body"), "done")
			c.await("", client01, "s", "done")
			if s := b.Stats(); s.Malformed != 1 || s.Workers != 1 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestNewSocket: a worker that is sent DISCONNECT reconnects with a new socket.
func TestNewSocket(t *testing.T) {
	t.Parallel()
	f := newFakeBroker(t)
	begun, ended := make(chan struct{}), make(chan struct{})
	handler := func(ctx context.Context, _ [][]byte) ([][]byte, error) {
		close(begun)
		<-ctx.Done()
		close(ended)
		return nil, ctx.Err()
	}
	startWorker(t, "s", f.endpoint, handler, WorkerOptions{Reconnect: time.Millisecond})
	first := f.awaitReady("s")
	f.send(first, "", worker01, cRequest, "client", "", "body")
	<-begun
	f.send(first, "", worker01, cDisconnect)
	if second := f.awaitReady("s"); second == first {
		t.Error("the worker came back on the same connection")
	}
	<-ended
}

// TestOneAddress: between broker and worker there is exactly one address and an empty
// frame. A reply without them, or to another client, is invalid, and the request goes to
// another worker.
func TestOneAddress(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		reply func(address string) []string
	}{
		{"no address", func(string) []string { return []string{"", "body"} }},
		{"no empty frame", func(a string) []string { return []string{a, "body"} }},
		{"two addresses", func(a string) []string { return []string{a, a, "", "body"} }},
		{"no body", func(a string) []string { return []string{a, ""} }},
		{"other client", func(a string) []string { return []string{a + "x", "", "body"} }},
		{"long address", func(a string) []string { return []string{strings.Repeat("a", 256), "", "body"} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b, endpoint := startBroker(t, lasting)
			bad := newRaw(t, endpoint, sockets.Options{ReconnectInterval: -1})
			bad.ready(b, "s")
			client := newRaw(t, endpoint, sockets.Options{})
			client.request("s", "1", "2")
			address := bad.awaitRequest("1", "2")
			bad.send(append([]string{"", worker01, cReply}, c.reply(address)...)...)
			good := newRaw(t, endpoint, sockets.Options{})
			good.send("", worker01, cReady, "s")
			good.reply(good.awaitRequest("1", "2"), "3", "", "4")
			client.await("", client01, "s", "3", "", "4")
			if s := b.Stats(); s.Malformed != 1 || s.Repeated != 1 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestPartialReplies: in version 0.2 a client gets the parts of a reply as they arrive, then
// the final one, and nothing after that.
func TestPartialReplies(t *testing.T) {
	t.Parallel()
	b, endpoint := startBroker(t, lasting)
	w := newRaw(t, endpoint, sockets.Options{})
	w.send(worker02, "\x01", "s")
	c := newRaw(t, endpoint, sockets.Options{})
	c.send(client02, "\x01", "s", "body")
	got := w.recv()
	if len(got) != 5 || got[0] != worker02 || got[1] != "\x02" || got[3] != "" || got[4] != "body" {
		t.Fatalf("%q", got)
	}
	address := got[2]
	w.send(worker02, "\x03", address, "", "one")
	c.await(client02, "\x02", "s", "one")
	w.send(worker02, "\x03", address, "", "two", "three")
	c.await(client02, "\x02", "s", "two", "three")
	w.send(worker02, "\x04", address, "", "end")
	c.await(client02, "\x03", "s", "end")
	w.send(worker02, "\x03", address, "", "late")
	w.await(worker02, "\x06")
	c.send(client02, "\x01", serviceLookup, "s")
	c.await(client02, "\x03", serviceLookup, "404")
	if s := b.Stats(); s.Partials != 2 || s.Replies != 1 || s.Dismissed != 1 {
		t.Errorf("%+v", s)
	}
}

// TestHandlerSendsParts: a handler sends parts, and a client gets them one by one or in one
// reply; a client of version 0.1 gets them in one reply.
func TestHandlerSendsParts(t *testing.T) {
	t.Parallel()
	b, endpoint := startBroker(t, lasting)
	late := make(chan context.Context, 100)
	startWorker(t, "count", endpoint, func(ctx context.Context, request [][]byte) ([][]byte, error) {
		for i := range 5 {
			if err := Partial(ctx, fmt.Append(nil, i)); err != nil {
				return nil, err
			}
		}
		late <- ctx
		return [][]byte{[]byte("end")}, nil
	}, WorkerOptions{Version: Version02})
	want := []string{"0", "1", "2", "3", "4", "end"}
	for _, v := range []Version{Version01, Version02} {
		reply, err := startClient(t, endpoint, ClientOptions{Version: v}).Request(testContext(t), "count")
		if err != nil || !slices.Equal(texts(reply), want) {
			t.Errorf("%v: %q, %v", v, reply, err)
		}
	}
	var parts []string
	last, err := startClient(t, endpoint, ClientOptions{Version: Version02}).RequestParts(testContext(t), "count",
		func(frames [][]byte) error { parts = append(parts, texts(frames)...); return nil })
	if err != nil || !slices.Equal(append(parts, texts(last)...), want) {
		t.Errorf("%q, %q, %v", parts, last, err)
	}
	if err := Partial(<-late, []byte("late")); !errors.Is(err, ErrNotPartial) {
		t.Errorf("after the reply: %v", err)
	}
	if err := Partial(context.Background()); !errors.Is(err, ErrNotPartial) {
		t.Errorf("without a request: %v", err)
	}
	if s := b.Stats(); s.Bytes != 0 {
		t.Errorf("%+v", s)
	}
}

// TestLostAfterPart: if a worker is lost that has sent a part of a reply, the request
// is not passed to another one, since the client would get that part twice.
func TestLostAfterPart(t *testing.T) {
	t.Parallel()
	b, endpoint := startBroker(t, lasting)
	w := newRaw(t, endpoint, sockets.Options{})
	w.send(worker02, "\x01", "s")
	c := startClient(t, endpoint, ClientOptions{Version: Version02})
	done := make(chan error, 1)
	got := make(chan []string, 1)
	go func() {
		_, err := c.RequestParts(testContext(t), "s", func(frames [][]byte) error { got <- texts(frames); return nil })
		done <- err
	}()
	w.send(worker02, "\x03", w.recv()[2], "", "part")
	if part := <-got; !slices.Equal(part, []string{"part"}) {
		t.Errorf("%q", part)
	}
	w.Close()
	if err := <-done; !errors.Is(err, ErrWorkerLost) {
		t.Error(err)
	}
	if s := b.Stats(); s.Undelivered != 1 || s.Repeated != 0 {
		t.Errorf("%+v", s)
	}
}

// TestAnyCommandCounts: a worker that sends replies but no heartbeats is alive; one
// that sends nothing is removed.
func TestAnyCommandCounts(t *testing.T) {
	t.Parallel()
	b, endpoint := startBroker(t, BrokerOptions{Heartbeat: 100 * time.Millisecond, Liveness: 10})
	w := newRaw(t, endpoint, sockets.Options{})
	w.send(worker02, "\x01", "s")
	eventually(t, "it is registered", func() bool { return workersOf(b, "s") == 1 })
	c := newRaw(t, endpoint, sockets.Options{})
	c.send(client02, "\x01", "s", "body")
	address := w.recv()[2]
	last, slow := time.Now(), false
	for end := last.Add(1500 * time.Millisecond); time.Now().Before(end) && !slow; time.Sleep(5 * time.Millisecond) {
		w.send(worker02, "\x03", address, "", "part")
		c.await(client02, "\x02", "s", "part")
		slow = time.Since(last) > 500*time.Millisecond // this machine is too busy for the test
		last = time.Now()
	}
	lost := workersOf(b, "s") != 1
	slow = slow || time.Since(last) > 400*time.Millisecond
	if lost && !slow {
		t.Error("the worker was given up")
	}
	eventually(t, "it is given up", func() bool { return workersOf(b, "s") == 0 })
}

// TestNoIdleHeartbeats: while requests are sent, heartbeats are not.
func TestNoIdleHeartbeats(t *testing.T) {
	t.Parallel()
	b, endpoint := startBroker(t, BrokerOptions{Heartbeat: time.Second})
	w := newRaw(t, endpoint, sockets.Options{})
	w.ready(b, "s")
	c := newRaw(t, endpoint, sockets.Options{})
	beats := 0
	last := time.Now()
	for began := last; time.Since(began) < 1500*time.Millisecond; {
		c.request("s", "body")
		m, err := w.Recv(w.ctx)
		must(t, err)
		if time.Since(last) > 500*time.Millisecond {
			return // no requests were sent, so a heartbeat may be
		}
		last = time.Now()
		if len(m) == 3 {
			beats++
			continue
		}
		w.reply(string(m[3]), "done")
		_, err = c.Recv(c.ctx)
		must(t, err)
	}
	if beats > 0 {
		t.Errorf("%d heartbeats", beats)
	}
}

// TestSilentWorker: a worker that sends nothing for its liveness, idle or busy, is
// removed, and its request goes to another one.
func TestSilentWorker(t *testing.T) {
	t.Parallel()
	o := quick
	o.MaxDeliveries = 1000 // on a slow machine, the other worker may also be removed
	b, endpoint := startBroker(t, o)
	idle := newRaw(t, endpoint, sockets.Options{})
	idle.send("", worker01, cReady, "idle")
	idle.await("", worker01, cDisconnect)

	stuck := newRaw(t, endpoint, sockets.Options{})
	c := newRaw(t, endpoint, sockets.Options{})
	c.request("s", "body")
	eventually(t, "the request waits", func() bool { return b.Stats().Requests == 1 })
	stuck.send("", worker01, cReady, "s")
	stuck.awaitRequest("body")
	stuck.await("", worker01, cDisconnect)
	startWorker(t, "s", endpoint, echo, WorkerOptions{Heartbeat: quick.Heartbeat, Liveness: 1000})
	c.await("", client01, "s", "body")
	if s := b.Stats(); s.Lost < 2 || s.Repeated < 1 {
		t.Errorf("%+v", s)
	}
}

// TestSilentBroker: a worker reconnects with a new socket if the broker sends nothing.
func TestSilentBroker(t *testing.T) {
	t.Parallel()
	f := newFakeBroker(t)
	w := startWorker(t, "s", f.endpoint, echo, WorkerOptions{Heartbeat: 10 * time.Millisecond, Liveness: 3, Reconnect: time.Millisecond})
	first := f.awaitReady("s")
	if second := f.awaitReady("s"); second == first {
		t.Error("the worker came back on the same connection")
	}
	eventually(t, "it is counted", func() bool { return w.Stats().Silent > 0 })
}

// TestBusyWorkerBeats: a worker of this package sends heartbeats while its handler
// runs, so it is not removed however long that takes.
func TestBusyWorkerBeats(t *testing.T) {
	t.Parallel()
	b, endpoint := startBroker(t, BrokerOptions{Heartbeat: 100 * time.Millisecond, Liveness: 30})
	// The handler runs until the broker has removed another worker, which came later and
	// is silent.
	begun, end := make(chan struct{}, 10), make(chan struct{})
	startWorker(t, "slow", endpoint, func(context.Context, [][]byte) ([][]byte, error) {
		begun <- struct{}{}
		<-end
		return nil, nil
	}, WorkerOptions{Heartbeat: 10 * time.Millisecond, Liveness: 1000})
	c := startClient(t, endpoint, ClientOptions{})
	done := make(chan error, 1)
	go func() {
		_, err := c.Request(testContext(t), "slow")
		done <- err
	}()
	<-begun
	newRaw(t, endpoint, sockets.Options{}).ready(b, "silent")
	eventually(t, "the silent worker is removed", func() bool { return workersOf(b, "silent") == 0 })
	close(end)
	must(t, <-done)
	if s := b.Stats(); s.Lost != 1 || s.Repeated != 0 {
		t.Errorf("%+v", s)
	}
}

// TestBusyWithGuideBroker: a broker of the guide sends nothing to a busy worker, which
// keeps the connection nevertheless.
func TestBusyWithGuideBroker(t *testing.T) {
	t.Parallel()
	f := newFakeBroker(t)
	o := WorkerOptions{Heartbeat: 50 * time.Millisecond, Liveness: 2}
	idle := startWorker(t, "idle", newFakeBroker(t).endpoint, func(context.Context, [][]byte) ([][]byte, error) { return nil, nil }, o)
	startWorker(t, "s", f.endpoint, func(context.Context, [][]byte) ([][]byte, error) {
		before := idle.Stats().Silent
		eventually(t, "an idle worker has given up such a broker twice", func() bool { return idle.Stats().Silent >= before+2 })
		return [][]byte{[]byte("done")}, nil
	}, o)
	peer := f.awaitReady("s")
	f.send(peer, "", worker01, cRequest, "client", "", "body")
	from, got := f.recv()
	for len(got) == 4 || got[2] == cDisconnect { // the request was sent after the liveness
		if got[2] == cReady {
			peer = from
			f.send(peer, "", worker01, cRequest, "client", "", "body")
		}
		from, got = f.recv()
	}
	if from != peer || !slices.Equal(got, []string{"", worker01, cReply, "client", "", "done"}) {
		t.Errorf("%q from %q", got, from)
	}
}

// TestLostWorker: a worker whose connection ends is lost at once: nothing more is sent to
// it, and its requests go to others. It registers again when it reconnects.
func TestLostWorker(t *testing.T) {
	t.Parallel()
	b, endpoint := startBroker(t, lasting)
	w := newRaw(t, endpoint, sockets.Options{})
	w.ready(b, "s")
	c := newRaw(t, endpoint, sockets.Options{})
	for i := range 3 {
		c.request("s", fmt.Sprint(i))
	}
	w.awaitRequest("0")
	w.Close()
	eventually(t, "the worker is lost", func() bool { return b.Stats().Lost == 1 })
	again := newRaw(t, endpoint, sockets.Options{})
	again.ready(b, "s")
	for i := range 3 {
		body := fmt.Sprint(i)
		again.reply(again.awaitRequest(body), body)
		c.await("", client01, "s", body)
	}
}

// TestDeliveriesAreBounded: a request that loses MaxDeliveries workers is dropped, and the client
// gets an error.
func TestDeliveriesAreBounded(t *testing.T) {
	t.Parallel()
	o := lasting
	o.MaxDeliveries = 4
	b, endpoint := startBroker(t, o)
	c := startClient(t, endpoint, ClientOptions{})
	done := make(chan error, 1)
	go func() {
		_, err := c.Request(testContext(t), "poison")
		done <- err
	}()
	for range o.MaxDeliveries {
		w := newRaw(t, endpoint, sockets.Options{})
		w.send("", worker01, cReady, "poison")
		w.awaitRequest("")
		w.Close()
	}
	if err := <-done; !errors.Is(err, ErrWorkerLost) {
		t.Error(err)
	}
	if s := b.Stats(); s.Undelivered != 1 || s.Repeated != 3 || s.Bytes != 0 {
		t.Errorf("%+v", s)
	}
}

// lostWith takes a request on each of n connections of one worker, or until the context ends,
// and closes them.
func lostWith(ctx context.Context, t *testing.T, endpoint string, n int) {
	for range n {
		w := newRaw(t, endpoint, sockets.Options{Metadata: map[string]string{propertyInstance: "one"}})
		w.send("", worker01, cReady, "s")
		for {
			m, err := w.Recv(ctx)
			if err != nil {
				return
			}
			if string(m[2]) == cRequest {
				break
			}
		}
		w.Close()
	}
}

// TestConnectionsOfOneWorkerCountOnce: a process that ends with a request on one of its
// connections loses the others, too, one after the other. The request goes to another
// process.
func TestConnectionsOfOneWorkerCountOnce(t *testing.T) {
	t.Parallel()
	b, endpoint := startBroker(t, BrokerOptions{Heartbeat: time.Hour})
	c := startClient(t, endpoint, ClientOptions{})
	done := make(chan error, 1)
	go func() {
		_, err := c.Request(testContext(t), "s")
		done <- err
	}()
	lostWith(testContext(t), t, endpoint, 3*DefaultMaxDeliveries)
	startWorker(t, "s", endpoint, echo, WorkerOptions{})
	if err := <-done; err != nil {
		t.Error(err)
	}
	if s := b.Stats(); s.Undelivered != 0 || s.Repeated != 3*DefaultMaxDeliveries {
		t.Errorf("%+v", s)
	}
}

// TestRequestThatBreaksConnectionsEnds: a request that makes a worker of several connections
// lose them again and again is dropped in the end.
func TestRequestThatBreaksConnectionsEnds(t *testing.T) {
	t.Parallel()
	_, endpoint := startBroker(t, BrokerOptions{Heartbeat: 50 * time.Millisecond, Liveness: 1000})
	c := startClient(t, endpoint, ClientOptions{})
	ctx, cancel := context.WithCancel(testContext(t))
	done := make(chan error, 1)
	go func() {
		_, err := c.Request(ctx, "s")
		done <- err
		cancel()
	}()
	lostWith(ctx, t, endpoint, 1<<20)
	if err := <-done; !errors.Is(err, ErrWorkerLost) {
		t.Error(err)
	}
}

// TestOneAtATime: a worker handles one request at a time on each connection, also when
// more are sent ahead.
func TestOneAtATime(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			b, endpoint := startBroker(t, lasting)
			var running, most atomic.Int32
			end := make(chan struct{})
			startWorker(t, "s", endpoint, func(context.Context, [][]byte) ([][]byte, error) {
				now := running.Add(1)
				defer running.Add(-1)
				for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
				}
				<-end
				return nil, nil
			}, WorkerOptions{Concurrency: n})
			eventually(t, "all are registered", func() bool { return workersOf(b, "s") == n })
			c := startClient(t, endpoint, ClientOptions{})
			var requests sync.WaitGroup
			for range 20 {
				requests.Go(func() {
					for range 10 {
						if _, err := c.Request(testContext(t), "s"); err != nil {
							t.Error(err)
						}
					}
				})
			}
			eventually(t, "all wait for the first", func() bool { return int(running.Load()) >= n && c.Stats().Requests == 20 })
			// Meanwhile another worker gets a request that comes later.
			startWorker(t, "other", endpoint, func(context.Context, [][]byte) ([][]byte, error) { return nil, nil }, WorkerOptions{})
			_, err := startClient(t, endpoint, ClientOptions{}).Request(testContext(t), "other")
			must(t, err)
			close(end)
			requests.Wait()
			if int(most.Load()) != n {
				t.Errorf("%d at a time", most.Load())
			}
		})
	}
}

// TestClientRepeats: if a broker does not answer, a client repeats a request on a new
// connection, up to a number of attempts.
func TestClientRepeats(t *testing.T) {
	t.Parallel()
	f := newFakeBroker(t)
	// A request sent just before the timeout is written nevertheless.
	lingers := sockets.Options{Linger: hang}
	c := startClient(t, f.endpoint, ClientOptions{Timeout: 20 * time.Millisecond, Attempts: 3, Socket: lingers})
	done := make(chan error, 1)
	ask := func() {
		_, err := c.Request(testContext(t), "s", []byte("body"))
		done <- err
	}
	go ask()
	seen := map[string]bool{}
	for range 3 {
		peer, got := f.recv()
		if seen[peer] || !slices.Equal(got, []string{"", client01, "s", "body"}) {
			t.Errorf("%q from %q", got, peer)
		}
		seen[peer] = true
	}
	if err := <-done; !errors.Is(err, ErrNoReply) {
		t.Error(err)
	}

	c = startClient(t, f.endpoint, ClientOptions{Timeout: 100 * time.Millisecond, Attempts: 1000})
	go ask()
	var answering sync.WaitGroup
	defer answering.Wait()
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	answering.Go(func() {
		for n := 0; ; n++ {
			m, err := f.Recv(ctx)
			if err != nil {
				return
			}
			if n >= 2 { // some replies may come too late
				_ = f.Send(ctx, m[0], m[1], m[2], m[3], []byte("done"))
			}
		}
	})
	must(t, <-done)
	if n := c.Stats().Repeated; n < 2 {
		t.Errorf("repeated %d times", n)
	}
}
