package docs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"clustermap/chp"
	"clustermap/chp/commit"
	"clustermap/chp/durable"
	"clustermap/internal/loopback"
	"clustermap/internal/testenv"
	"clustermap/patterns/binarystar"
	"clustermap/patterns/blackbox"
	"clustermap/patterns/espresso"
	"clustermap/patterns/freelance"
	"clustermap/patterns/lastvalue"
	"clustermap/patterns/majordomo"
	"clustermap/patterns/snail"
	"clustermap/patterns/titanic"
	"clustermap/sockets"
)

// The code of the pages about the patterns.

// places returns a function that translates the addresses of a page to one that only
// this test uses, with the same ports.
func places() func(string) string { return placesAt(loopback.Own()) }

func placesAt(host string) func(string) string {
	return func(endpoint string) string {
		var port int
		for i := len(endpoint); i > 0 && endpoint[i-1] != ':'; i-- {
			fmt.Sscan(endpoint[i-1:], &port)
		}
		return fmt.Sprintf("tcp://%s:%d", host, port)
	}
}

// publish publishes messages made by next until the test ends.
func publish(t *testing.T, ctx context.Context, endpoint string, next func(send func(frames ...[]byte) error) error) {
	t.Helper()
	pub, err := sockets.NewPub(sockets.Options{})
	testenv.Must(t, err)
	testenv.Must(t, pub.Bind(ctx, endpoint))
	ended := make(chan struct{})
	ctx, stop := context.WithCancel(ctx)
	t.Cleanup(func() { stop(); <-ended; pub.Close() })
	go func() {
		defer close(ended)
		for tick := time.Tick(time.Millisecond); ctx.Err() == nil; <-tick {
			if err := next(func(frames ...[]byte) error { return pub.Send(ctx, frames...) }); err != nil && ctx.Err() == nil {
				t.Error(err)
				return
			}
		}
	}()
}

func TestBinaryStar(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	endpoint := places()
	var epoch uint64
	store := func(e uint64) error { epoch = e; return nil }
	requests := make(chan string)
	served := make(chan string, 1)
	serve := func(request string) {
		select {
		case served <- request:
		default:
		}
	}
	ended := make(chan error, 1)
	go func() {
		ended <- func() error {
			node, err := binarystar.New(ctx, binarystar.Options{
				Role:       binarystar.RolePrimary,                // the other one is RoleBackup
				Bind:       endpoint("tcp://*:5003"),              // where this node publishes its state
				Peer:       endpoint("tcp://backup.example:5004"), // where the other one does
				Epoch:      epoch,                                 // from the last call of StoreEpoch
				StoreEpoch: store,                                 // to disk: it survives a restart
			})
			if err != nil {
				return err
			}
			defer node.Close()
			for request := range requests {
				accept, err := node.Vote(ctx)
				if err != nil {
					return err
				}
				if accept {
					serve(request) // else drop it: the client will try the other server
				}
			}
			return nil
		}()
	}()
	testenv.Eventually(t, "a request is served", func() bool {
		select {
		case requests <- "hello":
			return false
		case <-served:
			return true
		case err := <-ended:
			t.Fatal(err)
			return false
		}
	})
	close(requests)
	testenv.Must(t, <-ended)
	if epoch == 0 {
		t.Error("no epoch is stored")
	}
}

func TestBlackBox(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	endpoint := places()
	var i byte
	publish(t, ctx, endpoint("tcp://feed.example:5556"), func(send func(...[]byte) error) error {
		i++
		return send([]byte{i, 'x'}, []byte("body"))
	})
	var received atomic.Int64
	run := func() error {
		totals := make([]int, 8) // one for each worker: no lock
		box, err := blackbox.New(blackbox.Options{
			Connect: []string{endpoint("tcp://feed.example:5556")},
			Shards:  blackbox.SpreadAll(2), // by the first byte of the topic
			Workers: 4,                     // of each shard
			Cores:   blackbox.AllowedCores(),
			Handle: func(b *blackbox.Batch) {
				for i := range b.Len() {
					topic, rest := b.Message(i).Next() // views: valid until Handle returns
					body, _ := rest.Next()
					totals[b.Worker()] += len(topic) + len(body)
				}
				received.Add(int64(b.Len()))
			},
		})
		if err != nil {
			return err
		}
		defer box.Close()
		testenv.Eventually(t, "a hundred messages", func() bool { return received.Load() >= 100 })
		box.Close()
		sum := 0
		for _, n := range totals {
			sum += n
		}
		if want := int(received.Load()) * 6; sum != want {
			t.Errorf("the workers have %d bytes, want %d", sum, want)
		}
		return nil
	}
	testenv.Must(t, run())
}

func TestEspresso(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(testenv.Context(t))
	defer stop()
	frontend, err := sockets.NewSub(sockets.Options{})
	testenv.Must(t, err)
	defer frontend.Close()
	backend, err := sockets.NewPush(sockets.Options{})
	testenv.Must(t, err)
	defer backend.Close()
	endpoint := places()
	publish(t, ctx, endpoint("tcp://feed.example:5556"), func(send func(...[]byte) error) error {
		return send([]byte("A-91164"))
	})
	testenv.Must(t, frontend.Subscribe("A"))
	testenv.Must(t, frontend.Connect(endpoint("tcp://feed.example:5556")))
	pull, err := sockets.NewPull(sockets.Options{})
	testenv.Must(t, err)
	defer pull.Close()
	testenv.Must(t, pull.Bind(ctx, "tcp://127.0.0.1:*"))
	testenv.Must(t, backend.Connect(pull.LastEndpoint()))
	out := &counter{three: stop}
	run := func() error {
		tap, err := espresso.NewTap(frontend, backend, espresso.Options{}) // sockets that you bind and connect
		if err != nil {
			return err
		}
		observer := tap.Observe(espresso.Filter{Topics: []string{"A"}})
		defer observer.Close()
		go tap.Run(ctx)
		for {
			var e espresso.Event
			if err := observer.Next(ctx, &e); err != nil {
				return err // io.EOF when the tap has ended
			}
			fmt.Fprintln(out, e.Time, e.From, e.Op, string(e.Topic()), e.Size())
		}
	}
	if err := run(); !errors.Is(err, io.EOF) && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// counter calls three when it has been written to three times.
type counter struct {
	n     int
	three func()
}

func (c *counter) Write(p []byte) (int, error) {
	if c.n++; c.n == 3 {
		c.three()
	}
	return len(p), nil
}

func TestFreelance(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	endpoint := places()
	client := func() ([][]byte, error) {
		client, err := freelance.NewClient(freelance.ClientOptions{
			Servers: []string{endpoint("tcp://server1.example:5555"), endpoint("tcp://server2.example:5556")},
		})
		if err != nil {
			return nil, err
		}
		defer client.Close()
		return client.Request(ctx, []byte("world"))
	}
	run := func() error {
		server, err := freelance.NewServer(ctx, freelance.ServerOptions{
			Bind:      endpoint("tcp://*:5555"),
			Advertise: endpoint("tcp://server1.example:5555"), // what clients connect to
			Handler: func(ctx context.Context, request [][]byte) (reply [][]byte, err error) {
				return [][]byte{[]byte("hello " + string(request[0]))}, nil
			},
		})
		if err != nil {
			return err
		}
		defer server.Close()
		reply, err := client()
		if err == nil && string(reply[0]) != "hello world" {
			t.Errorf("the reply is %q", reply)
		}
		return err
	}
	testenv.Must(t, run())
}

func TestLastValue(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	endpoint := places()
	publish(t, ctx, endpoint("tcp://feed.example:5557"), func(send func(...[]byte) error) error {
		return send([]byte("price/A"), []byte("42"))
	})
	run := func() error {
		cache, err := lastvalue.New(lastvalue.Options{Expiry: time.Hour})
		if err != nil {
			return err
		}
		defer cache.Close()
		if err := cache.ConnectPublisher(endpoint("tcp://feed.example:5557")); err != nil {
			return err
		}
		if _, err := cache.Bind(ctx, endpoint("tcp://*:5558")); err != nil {
			return err
		}
		testenv.Eventually(t, "a value", func() bool {
			message, ok := cache.Get("price/A")
			return ok && string(message[1]) == "42"
		})
		return nil
	}
	testenv.Must(t, run())
}

func TestMajordomo(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	run := func() error {
		broker, err := majordomo.NewBroker(majordomo.BrokerOptions{})
		if err != nil {
			return err
		}
		defer broker.Close()
		endpoint, err := broker.Bind(ctx, "tcp://127.0.0.1:*")
		if err != nil {
			return err
		}

		worker, err := majordomo.NewWorker("upper", func(ctx context.Context, request [][]byte) ([][]byte, error) {
			return [][]byte{bytes.ToUpper(request[0])}, nil
		}, majordomo.WorkerOptions{Broker: endpoint})
		if err != nil {
			return err
		}
		defer worker.Close()

		client, err := majordomo.NewClient(majordomo.ClientOptions{Broker: endpoint})
		if err != nil {
			return err
		}
		defer client.Close()
		reply, err := client.Request(ctx, "upper", []byte("hello"))
		if err == nil && string(reply[0]) != "HELLO" {
			t.Errorf("the reply is %q", reply)
		}
		return err
	}
	testenv.Must(t, run())
}

func TestSnail(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	endpoint := places()
	pub, err := sockets.NewPub(sockets.Options{})
	testenv.Must(t, err)
	defer pub.Close()
	testenv.Must(t, pub.Bind(ctx, endpoint("tcp://feed.example:5556")))
	value := []byte("42")
	publisher := func() error {
		stamped := snail.NewPublisher(pub, snail.PublisherOptions{Sequence: true})
		return stamped.Send(ctx, []byte("price/A"), value) // adds number and stamp
	}
	run := func() error {
		sub, err := snail.NewSubscriber(snail.Options{
			Endpoints: []string{endpoint("tcp://feed.example:5556")},
			Topics:    []string{"price/"},
			MaxDelay:  time.Second,
			Policy:    snail.PolicyResubscribe,
			OnLag:     func(l snail.Lag) { log.Print("behind: ", l.Delay) },
		})
		if err != nil {
			return err
		}
		defer sub.Close()
		testenv.Must(t, pub.WaitSubscribers(ctx, "price/", 1))
		received := make(chan struct{})
		var publishing sync.WaitGroup
		defer publishing.Wait()
		defer close(received)
		publishing.Go(func() { // again, because one that takes longer than MaxDelay is dropped
			for tick := time.Tick(time.Second); ; {
				if err := publisher(); err != nil {
					t.Error(err)
				}
				select {
				case <-received:
					return
				case <-tick:
				}
			}
		})
		m, err := sub.Recv(ctx) // with the policy Stop: errors.Is(err, snail.ErrLagged)
		if err == nil && string(m[1]) != "42" {
			t.Errorf("the message is %q", m)
		}
		return err
	}
	testenv.Must(t, run())
}

func TestTitanic(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	broker, err := majordomo.NewBroker(majordomo.BrokerOptions{})
	testenv.Must(t, err)
	defer broker.Close()
	address, err := broker.Bind(ctx, "tcp://127.0.0.1:*")
	testenv.Must(t, err)
	endpoint := func(string) string { return address }
	worker, err := majordomo.NewWorker("thumbnail", func(_ context.Context, request [][]byte) ([][]byte, error) {
		return request, nil
	}, majordomo.WorkerOptions{Broker: address})
	testenv.Must(t, err)
	defer worker.Close()
	photo := []byte("photo")
	use := func() error {
		client, err := titanic.NewClient(titanic.ClientOptions{Broker: endpoint("tcp://broker.example:5555")})
		if err != nil {
			return err
		}
		defer client.Close()
		id, err := client.Submit(ctx, "thumbnail", photo) // returns when it is on disk
		if err != nil {
			return err
		}
		reply, err := client.Wait(ctx, id) // maybe tomorrow, in another program
		if err != nil {
			return err
		}
		if string(reply[0]) != "photo" {
			t.Errorf("the reply is %q", reply)
		}
		return client.Discard(ctx, id)
	}
	dir := t.TempDir()
	serve := func() error {
		server, err := titanic.New(titanic.Options{Broker: endpoint("tcp://broker.example:5555"), Dir: dir})
		if err != nil {
			return err
		}
		defer server.Close()
		return use()
	}
	testenv.Must(t, serve())
}

func TestDurable(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(testenv.Context(t))
	stop()
	dir := t.TempDir()
	run := func() error {
		log, err := durable.Open(dir, durable.Options{})
		if err != nil {
			return err
		}
		server, err := chp.NewServer(chp.ServerOptions{Log: log, Sync: commit.Always()})
		if err != nil {
			return err
		}
		return server.Serve(ctx) // closes the log, too
	}
	testenv.Must(t, run())
}
