package majordomo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"clustermap/internal/loopback"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// TestMMI: the services of RFC 8, in both versions. A worker cannot register for them
// (TestUnexpectedCommand).
func TestMMI(t *testing.T) {
	t.Parallel()
	b, endpoint := startBroker(t, lasting)
	w := newRaw(t, endpoint, sockets.Options{})
	w.ready(b, "known")
	c := newRaw(t, endpoint, sockets.Options{})
	c.request("waits", "body") // a service without workers
	for _, q := range []struct{ service, body, code string }{
		{"mmi.service", "known", "200"},
		{"mmi.service", "unknown", "404"},
		{"mmi.service", "waits", "404"},
		{"mmi.service", "mmi.service", "404"},
		{"mmi.service", "", "404"},
		{"mmi.services", "", "501"},
		{"mmi.", "", "501"},
		{"mmi.x-other", "", "501"},
		{"mmi.service.", "known", "501"},
	} {
		c.request(q.service, q.body)
		c.await("", client01, q.service, q.code)
		c.send(client02, "\x01", q.service, q.body)
		c.await(client02, "\x03", q.service, q.code)
	}
	client := startClient(t, endpoint, ClientOptions{})
	for name, want := range map[string]bool{"known": true, "unknown": false} {
		if got, err := client.Available(testContext(t), name); got != want || err != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	all, err := client.Services(testContext(t))
	if err != nil || !slices.Equal(all, []ServiceStatus{{"known", 1, 0, 0}, {"waits", 0, 1, 0}}) {
		t.Errorf("%+v, %v", all, err)
	}
	w.Close()
	eventually(t, "the worker has gone", func() bool {
		known, err := client.Available(testContext(t), "known")
		return err == nil && !known
	})
}

// TestRequestNumber: the number that a REQ with ZMQ_REQ_CORRELATE sends before a request
// comes back with the reply.
func TestRequestNumber(t *testing.T) {
	t.Parallel()
	_, endpoint := startBroker(t, lasting)
	startWorker(t, "s", endpoint, echo, WorkerOptions{})
	req, err := sockets.NewReq(sockets.Options{ReqRelaxed: true, ReqCorrelate: true})
	must(t, err)
	defer req.Close()
	must(t, req.Connect(endpoint))
	for i := range 3 {
		body := fmt.Append(nil, i)
		must(t, req.Send(testContext(t), []byte(client01), []byte("s"), body))
		m, err := req.Recv(testContext(t))
		if err != nil || !slices.Equal(texts(m), []string{client01, "s", string(body)}) {
			t.Errorf("%q, %v", m, err)
		}
	}
}

// TestErrors: an error of a handler is an error at the client, in both versions. A
// client of another implementation gets three frames.
func TestErrors(t *testing.T) {
	t.Parallel()
	for _, v := range []Version{Version01, Version02} {
		_, endpoint := startBroker(t, lasting)
		startWorker(t, "s", endpoint, func(_ context.Context, request [][]byte) ([][]byte, error) {
			switch string(request[0]) {
			case "typed":
				return nil, fmt.Errorf("wrapped: %w", &Error{Code: 410, Text: "gone"})
			case "bad code":
				return nil, &Error{Code: 7, Text: "seven"}
			case "plain":
				return nil, os.ErrPermission
			}
			return nil, nil
		}, WorkerOptions{Version: v})
		c := startClient(t, endpoint, ClientOptions{Version: v})
		for body, want := range map[string]*Error{"typed": {410, "gone"}, "bad code": {CodeFailed, "seven"}, "plain": {CodeFailed, os.ErrPermission.Error()}} {
			_, err := c.Request(testContext(t), "s", []byte(body))
			var got *Error
			if !errors.As(err, &got) || *got != *want {
				t.Errorf("%s: %v", body, err)
			}
		}
		reply, err := c.Request(testContext(t), "s", []byte("nothing"))
		if err != nil || !slices.Equal(texts(reply), []string{""}) {
			t.Errorf("%q, %v", reply, err)
		}
		r := newRaw(t, endpoint, sockets.Options{})
		r.request("s", "typed")
		r.await("", client01, "s", "MDP-ERROR", "410", "gone")
	}
}

// TestSlowService: a service whose workers are slow does not delay another one.
func TestSlowService(t *testing.T) {
	t.Parallel()
	_, endpoint := startBroker(t, lasting)
	release := make(chan struct{})
	startWorker(t, "slow", endpoint, func(context.Context, [][]byte) ([][]byte, error) {
		<-release
		return nil, nil
	}, WorkerOptions{})
	startWorker(t, "fast", endpoint, echo, WorkerOptions{})
	c := startClient(t, endpoint, ClientOptions{})
	var slow sync.WaitGroup
	for range 50 {
		slow.Go(func() {
			if _, err := c.Request(testContext(t), "slow"); err != nil {
				t.Error(err)
			}
		})
	}
	for range 200 {
		if _, err := c.Request(testContext(t), "fast"); err != nil {
			t.Fatal(err)
		}
	}
	close(release)
	slow.Wait()
}

// TestGivenBack: requests that were sent ahead to a worker that becomes slow are executed
// by another one.
func TestGivenBack(t *testing.T) {
	t.Parallel()
	b, endpoint := startBroker(t, lasting)
	var blocked atomic.Bool
	release, stuck := make(chan struct{}), make(chan struct{})
	slow := startWorker(t, "s", endpoint, func(_ context.Context, request [][]byte) ([][]byte, error) {
		if string(request[0]) == "block" && blocked.CompareAndSwap(false, true) {
			close(stuck)
			<-release
		}
		return request, nil
	}, WorkerOptions{})
	c := startClient(t, endpoint, ClientOptions{})
	load := func(n int) *sync.WaitGroup {
		var all sync.WaitGroup
		for range n {
			all.Go(func() {
				for range 20 {
					if _, err := c.Request(testContext(t), "s", []byte("x")); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		return &all
	}
	// Until requests are sent ahead, and wait for a stuck one.
	var all []*sync.WaitGroup
	all = append(all, load(100))
	done := make(chan error, 1)
	go func() {
		_, err := c.Request(testContext(t), "s", []byte("block"))
		done <- err
	}()
	<-stuck
	all = append(all, load(100))
	other := startWorker(t, "s", endpoint, echo, WorkerOptions{})
	for _, some := range all {
		some.Wait() // all but one are executed while the first worker is stuck
	}
	select {
	case err := <-done:
		t.Errorf("the stuck request is done: %v", err)
	default:
	}
	close(release)
	must(t, <-done)
	if s := b.Stats(); s.Malformed != 0 || s.Lost != 0 ||
		s.Repeated != slow.Stats().Returned+other.Stats().Returned {
		t.Errorf("%+v, %+v, %+v", s, slow.Stats(), other.Stats())
	}
}

// TestBrokerTakesBack: a broker passes the requests that a worker gives back, those after
// the current one, to other workers. An impossible number is malformed.
func TestBrokerTakesBack(t *testing.T) {
	t.Parallel()
	b, endpoint := startBroker(t, lasting)
	w := newRaw(t, endpoint, sockets.Options{ReconnectInterval: -1, Metadata: map[string]string{propertyMDP: valueMDP, propertyAhead: "8"}})
	w.ready(b, "s")
	c := newRaw(t, endpoint, sockets.Options{})
	given := func() int { return b.Services()[0].Given }
	// A fast worker is sent more and more ahead.
	for n := 0; given() < 4; n++ {
		c.request("s", fmt.Sprint(n))
		if n < 3 {
			continue
		}
		eventually(t, "the request is there", func() bool { return b.Stats().Requests == uint64(n)+1 })
		if given() >= 4 {
			break
		}
		w.reply(w.awaitRequest(fmt.Sprint(n-3)), "done")
		c.await("", client01, "s", "done")
	}
	first := w.recv()
	var rest []string
	for range 3 {
		rest = append(rest, w.recv()[5])
	}
	w.send("", worker01, string(rune(codeGiveBack)), "3")
	other := newRaw(t, endpoint, sockets.Options{})
	other.ready(b, "s")
	for _, body := range rest {
		other.reply(other.awaitRequest(body), "other")
		c.await("", client01, "s", "other")
	}
	w.reply(first[3], "first")
	c.await("", client01, "s", "first")
	if s := b.Stats(); s.Repeated != 3 || s.Lost != 0 {
		t.Errorf("%+v", s)
	}
	w.send("", worker01, string(rune(codeGiveBack)), "1") // it has none
	eventually(t, "it is lost", func() bool { return b.Stats().Malformed == 1 && workersOf(b, "s") == 1 })
}

// TestWorkerGivesBack: a worker with a slow handler gives back the requests that were sent
// ahead.
func TestWorkerGivesBack(t *testing.T) {
	t.Parallel()
	r, err := sockets.NewRouter(sockets.Options{Metadata: map[string]string{propertyMDP: valueMDP}})
	must(t, err)
	defer r.Close()
	f := &fakeBroker{t, r, testContext(t), ""}
	must(t, r.Bind(f.ctx, anyPort))
	release := make(chan struct{})
	startWorker(t, "s", r.LastEndpoint(), func(_ context.Context, request [][]byte) ([][]byte, error) {
		if string(request[0]) == "slow" {
			<-release
		}
		return request, nil
	}, WorkerOptions{})
	peer := f.awaitReady("s")
	for _, body := range []string{"slow", "1", "2", "3"} {
		f.send(peer, "", worker01, cRequest, "client", "", body)
	}
	for n := 0; n < 3; { // usually in one command
		_, got := f.recv()
		if len(got) != 4 || got[2] != string(rune(codeGiveBack)) {
			t.Fatalf("%q", got)
		}
		count, err := strconv.Atoi(got[3])
		must(t, err)
		n += count
	}
	close(release)
	if _, got := f.recv(); !slices.Equal(got, []string{"", worker01, cReply, "client", "", "slow"}) {
		t.Errorf("%q", got)
	}
	f.send(peer, "", worker01, cRequest, "client", "", "4")
	if _, got := f.recv(); !slices.Equal(got, []string{"", worker01, cReply, "client", "", "4"}) {
		t.Errorf("%q", got)
	}
}

// mortal runs a worker that is sent requests ahead, and that disconnects when it gets the
// request "poison". It returns after that, or at stop.
func mortal(t *testing.T, endpoint string, stop <-chan struct{}) {
	d, err := sockets.NewDealer(sockets.Options{Linger: sockets.LingerNone, Metadata: map[string]string{propertyMDP: valueMDP, propertyAhead: "64"}})
	must(t, err)
	defer d.Close()
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	go func() {
		select {
		case <-stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	must(t, d.Connect(endpoint))
	if err := d.Send(ctx, []byte{}, []byte(worker01), []byte(cReady), []byte("s")); err != nil {
		return
	}
	for {
		m, err := d.Recv(ctx)
		switch {
		case err != nil:
			return
		case len(m) == 3: // a heartbeat
			continue
		case string(m[5]) == "poison":
			return
		}
		m[2] = []byte(cReply)
		if err := d.Send(ctx, m...); err != nil {
			return
		}
	}
}

// TestPoison: a request that ends its workers is dropped, and requests that were sent
// ahead after it are executed.
func TestPoison(t *testing.T) {
	t.Parallel()
	b, endpoint := startBroker(t, lasting)
	stop := make(chan struct{})
	var running sync.WaitGroup
	defer running.Wait()
	defer close(stop)
	for range 2 {
		running.Go(func() {
			for {
				mortal(t, endpoint, stop)
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	c := startClient(t, endpoint, ClientOptions{})
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			for j := range 50 {
				body := fmt.Append(nil, i, " ", j)
				if reply, err := c.Request(testContext(t), "s", body); err != nil || string(reply[0]) != string(body) {
					t.Errorf("%q, %v", reply, err)
					return
				}
			}
		})
	}
	if _, err := c.Request(testContext(t), "s", []byte("poison")); !errors.Is(err, ErrWorkerLost) {
		t.Error(err)
	}
	all.Wait()
	// The first loss may be charged to a request whose reply was lost with the worker,
	// not to the poison. Requests of lost workers are not sent ahead again.
	if s := b.Stats(); s.Undelivered != 1 || s.Lost < DefaultMaxDeliveries || s.Lost > 2*DefaultMaxDeliveries {
		t.Errorf("%+v", s)
	}
}

// TestBrokerRestarts: workers and clients continue by themselves when a broker is
// restarted under load.
func TestBrokerRestarts(t *testing.T) {
	t.Parallel()
	b, _ := startBroker(t, lasting)
	endpoint, err := b.Bind(testContext(t), "tcp://"+loopback.Own()+":*")
	must(t, err)
	const fast = 5 * time.Millisecond
	w := startWorker(t, "s", endpoint, echo, WorkerOptions{Concurrency: 2, Reconnect: fast, ReconnectMax: 4 * fast})
	clients := []*Client{
		startClient(t, endpoint, ClientOptions{Attempts: 1000, Reconnect: fast, ReconnectMax: 4 * fast}),
		startClient(t, endpoint, ClientOptions{Attempts: 1000, Reconnect: fast, ReconnectMax: 4 * fast, Version: Version02}),
	}
	stop := make(chan struct{})
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := 0; ; j++ {
				select {
				case <-stop:
					return
				default:
				}
				body := fmt.Sprint(i, " ", j)
				reply, err := clients[i%2].Request(testContext(t), "s", []byte(body))
				if err != nil || len(reply) != 1 || string(reply[0]) != body {
					t.Errorf("%q, %v, want %q", reply, err, body)
					return
				}
			}
		})
	}
	for range 5 {
		before := w.Stats().Requests
		eventually(t, "requests are done", func() bool { return w.Stats().Requests > before+50 })
		must(t, b.Close())
		b, err = NewBroker(lasting)
		must(t, err)
		defer b.Close()
		eventually(t, "the port is free", func() bool { _, err = b.Bind(testContext(t), endpoint); return err == nil })
	}
	before := w.Stats().Requests
	eventually(t, "requests are done", func() bool { return w.Stats().Requests > before+50 })
	close(stop)
	all.Wait()
}

// TestClientGone: the requests of a disconnected client are dropped, and so are replies
// to it.
func TestClientGone(t *testing.T) {
	t.Parallel()
	b, endpoint := startBroker(t, lasting)
	w := newRaw(t, endpoint, sockets.Options{})
	w.ready(b, "s")
	c := newRaw(t, endpoint, sockets.Options{})
	for range 10 {
		c.request("s", "body")
		c.request("other", "body")
	}
	address := w.awaitRequest("body")
	eventually(t, "all were taken", func() bool { return b.Stats().Requests == 20 })
	c.Close()
	eventually(t, "what waited is dropped", func() bool { return b.Stats().Abandoned == 19 })
	w.reply(address, "nobody wants it")
	eventually(t, "so is the reply", func() bool { return b.Stats().Abandoned == 20 })
	if s := b.Stats(); s.Bytes != 0 || s.Services != 1 {
		t.Errorf("%+v", s)
	}
}

// TestCancelled: the context ends a call, with brokers of both kinds, and later calls get
// their own replies.
func TestCancelled(t *testing.T) {
	t.Parallel()
	f := newFakeBroker(t)
	_, endpoint := startBroker(t, lasting)
	for _, at := range []string{endpoint, f.endpoint} {
		c := startClient(t, at, ClientOptions{})
		for range 3 {
			ctx, cancel := context.WithTimeout(testContext(t), 20*time.Millisecond)
			if _, err := c.Request(ctx, "nobody"); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			cancel()
		}
		must(t, c.Close())
		if _, err := c.Request(testContext(t), "s"); !errors.Is(err, ErrClosed) || !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		must(t, c.Close())
	}
}

// TestHostileBroker: invalid messages of a broker end only the connection of a worker or
// client; both reconnect.
func TestHostileBroker(t *testing.T) {
	t.Parallel()
	for _, m := range [][]string{
		{""},
		{"x"},
		{"", "x"},
		{"", worker01},
		{"", worker01, "\x09"},
		{"", worker01, cReady, "s"},
		{"", worker01, cReply, "a", "", "b"},
		{"", worker01, cRequest, "a", "b"},
		{"", worker01, cRequest, "a", ""},
		{worker02, "\x02", "a", "", "b"},
		{"", client01, "s", "body"},
	} {
		t.Run(fmt.Sprintf("worker %q", m), func(t *testing.T) {
			t.Parallel()
			f := newFakeBroker(t)
			w := startWorker(t, "s", f.endpoint, echo, WorkerOptions{Reconnect: time.Millisecond})
			first := f.awaitReady("s")
			f.send(first, m...)
			second := f.awaitReady("s")
			f.send(second, "", worker01, cRequest, "client", "", "body")
			if from, got := f.recv(); from != second || !slices.Equal(got, []string{"", worker01, cReply, "client", "", "body"}) {
				t.Errorf("%q", got)
			}
			if s := w.Stats(); s.Malformed != 1 {
				t.Errorf("%+v", s)
			}
		})
	}
	for _, m := range [][]string{
		{""},
		{"x"},
		{"", client01},
		{"", client01, "s"},
		{"", client01, "other", "body"},
		{"", worker01, cHeartbeat},
		{client02, "\x03", "s", "body"},
		{"12345678", "", client01, "s", "body"},
	} {
		t.Run(fmt.Sprintf("client %q", m), func(t *testing.T) {
			t.Parallel()
			f := newFakeBroker(t)
			c := startClient(t, f.endpoint, ClientOptions{})
			done := make(chan error, 1)
			go func() {
				_, err := c.Request(testContext(t), "s", []byte("body"))
				done <- err
			}()
			first, _ := f.recv()
			f.send(first, m...)
			second, _ := f.recv()
			f.send(second, "", client01, "s", "done")
			must(t, <-done)
			if s := c.Stats(); first == second || s.Malformed != 1 || s.Repeated != 1 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestFlood: a worker disconnects from a broker that sends too many requests.
func TestFlood(t *testing.T) {
	t.Parallel()
	f := newFakeBroker(t)
	w := startWorker(t, "s", f.endpoint, func(ctx context.Context, _ [][]byte) ([][]byte, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}, WorkerOptions{Ahead: 3, Reconnect: time.Millisecond})
	peer := f.awaitReady("s")
	for range 10 {
		f.send(peer, "", worker01, cRequest, "client", "", "body")
	}
	if again := f.awaitReady("s"); again == peer || w.Stats().Malformed != 1 {
		t.Errorf("%+v", w.Stats())
	}
}

// TestRandomMessages: random frames do not stop a broker.
func TestRandomMessages(t *testing.T) {
	t.Parallel()
	b, endpoint := startBroker(t, lasting)
	w := newRaw(t, endpoint, sockets.Options{})
	w.ready(b, "s")
	words := []string{"", "", client01, client02, worker01, worker02, "s", "mmi.service", "mmi.x-services", "body",
		"\x01", "\x02", "\x03", "\x04", "\x05", "\x06", "\x20", "1", "\x00\x00\x00\x00\x01", "99999999999999999999"}
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			bad, err := sockets.NewDealer(sockets.Options{ReconnectInterval: time.Millisecond, Linger: sockets.LingerNone})
			must(t, err)
			defer bad.Close()
			must(t, bad.Connect(endpoint))
			for range 2000 {
				m := make([][]byte, 1+random.IntN(6))
				for i := range m {
					m[i] = []byte(words[random.IntN(len(words))])
				}
				must(t, bad.Send(w.ctx, m...))
			}
		})
	}
	all.Wait()
	c := startClient(t, endpoint, ClientOptions{})
	eventually(t, "it is served", func() bool {
		for {
			m, err := w.TryRecv()
			if err != nil {
				break
			}
			if len(m) > 5 {
				w.reply(string(m[3]), "done")
			}
		}
		ok, err := c.Available(testContext(t), "s")
		return ok && err == nil && b.Stats().Malformed > 0
	})
}

// TestWorkerCloses: when a worker is closed, the broker passes its request to another one
// at once, up to MaxDeliveries.
func TestWorkerCloses(t *testing.T) {
	t.Parallel()
	b, endpoint := startBroker(t, lasting)
	c := startClient(t, endpoint, ClientOptions{})
	done := make(chan error, 1)
	go func() {
		_, err := c.Request(testContext(t), "s")
		done <- err
	}()
	for range DefaultMaxDeliveries {
		begun := make(chan struct{})
		w := startWorker(t, "s", endpoint, func(ctx context.Context, _ [][]byte) ([][]byte, error) {
			close(begun)
			<-ctx.Done()
			return nil, ctx.Err()
		}, WorkerOptions{Socket: sockets.Options{Linger: hang}}) // so that the broker gets its DISCONNECT
		must(t, w.WaitRegistered(testContext(t)))
		<-begun
		must(t, w.Close())
		must(t, w.Close())
	}
	if err := <-done; !errors.Is(err, ErrWorkerLost) {
		t.Error(err)
	}
	if s := b.Stats(); s.Lost != 0 || s.Undelivered != 1 {
		t.Errorf("%+v", s)
	}
}

// TestOptions: all invalid options are reported at once.
func TestOptions(t *testing.T) {
	t.Parallel()
	var fields func(err error) []string
	fields = func(err error) (all []string) {
		joined, ok := err.(interface{ Unwrap() []error })
		if !ok {
			return nil
		}
		for _, e := range joined.Unwrap() {
			if typed, ok := e.(*OptionError); ok {
				all = append(all, typed.Field)
			}
			all = append(all, fields(e)...)
		}
		return all
	}
	_, err := NewBroker(BrokerOptions{Heartbeat: -1, Liveness: -1, MaxDeliveries: -1, MaxServices: -1, MaxWorkers: -1, MaxWaiting: -1, MaxWaitingBytes: -1, MaxBytes: -1})
	if got := fields(err); len(got) != 8 {
		t.Errorf("%q", got)
	}
	_, err = NewWorker("", nil, WorkerOptions{Version: 9, Concurrency: -1, Ahead: maxAhead + 1, Reconnect: 2, ReconnectMax: 1})
	if got := fields(err); !slices.Equal(got, []string{"Broker", "Version", "ReconnectMax", "Concurrency", "Ahead", "Handler"}) || !errors.Is(err, ErrService) {
		t.Errorf("%q, %v", got, err)
	}
	_, err = NewClient(ClientOptions{Version: 9, Attempts: -1, Connections: -1, MaxReply: -1})
	if got := fields(err); !slices.Equal(got, []string{"Broker", "Version", "Attempts", "Connections", "MaxReply"}) {
		t.Errorf("%q", got)
	}
	if _, err := NewWorker("mmi.x", echo, WorkerOptions{Broker: anyPort}); !errors.Is(err, ErrReserved) {
		t.Error(err)
	}
	var malformed *sockets.EndpointError
	if _, err := NewWorker("s", echo, WorkerOptions{Broker: "nonsense", Concurrency: 2}); !errors.As(err, &malformed) {
		t.Error(err)
	}
	if _, err := NewClient(ClientOptions{Broker: "nonsense"}); !errors.As(err, &malformed) {
		t.Error(err)
	}
	if _, err := NewBroker(BrokerOptions{Socket: sockets.Options{MaxHandshakes: -1}}); err == nil {
		t.Error("the socket's options are not looked at")
	}

	message := []byte("x")
	mixed := sockets.Options{
		Notify: sockets.NotifyConnect, Mandatory: true, DisconnectMessage: message, ProbeRouter: true, HelloMessage: message, RecvTimeout: 1, SendTimeout: 1,
		Conflate: true, HiccupMessage: message, ReconnectStop: sockets.ReconnectStopOnRefused, ReconnectInterval: 1, ReconnectIntervalMax: 1,
	}
	exchange := []string{"Socket.ProbeRouter", "Socket.HelloMessage", "Socket.RecvTimeout", "Socket.SendTimeout"}
	connecting := append(slices.Clone(exchange), "Socket.Conflate", "Socket.HiccupMessage", "Socket.ReconnectStop", "Socket.ReconnectInterval")
	_, err = NewBroker(BrokerOptions{Socket: mixed})
	if got := fields(err); !slices.Equal(got, append([]string{"Socket.Notify", "Socket.Mandatory", "Socket.DisconnectMessage"}, exchange...)) {
		t.Errorf("%q", got)
	}
	_, err = NewWorker("s", echo, WorkerOptions{Broker: anyPort, Socket: mixed})
	if got := fields(err); !slices.Equal(got, connecting) {
		t.Errorf("%q", got)
	}
	_, err = NewClient(ClientOptions{Broker: anyPort, Socket: mixed})
	if got := fields(err); !slices.Equal(got, connecting) {
		t.Errorf("%q", got)
	}
}

// FuzzParse: any message can be parsed, on both sides. The byte 0xFE ends a frame.
func FuzzParse(f *testing.F) {
	for _, m := range [][]string{
		{"", client01, "s", "body"}, {client02, "\x01", "s", "body"}, {"number", "", client01, "s", "b"},
		{"", worker01, cReady, "s"}, {"", worker01, cReply, "a", "", "b"}, {worker02, "\x03", "a", "", "b"}, {worker02, "\x20", "1"},
	} {
		f.Add([]byte(strings.Join(m, "\xFE")))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		m := zmtp.WireMessage(zmtp.AppendMessage(nil, bytes.Split(text, []byte{0xFE})...))
		for _, toBroker := range []bool{true, false} {
			var p packet
			if p.parse(m, toBroker) && (p.command == request || p.command == reply || p.command == partial) && p.body.Len() == 0 {
				t.Errorf("no body in %q", m)
			}
		}
	})
}
