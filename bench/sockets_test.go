package bench

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"clustermap/sockets"
	"clustermap/zmtp"
)

// transports are the endpoints to bind to. Each benchmark has a namespace of its own for
// inproc.
var transports = []struct{ name, endpoint string }{
	{"tcp", "tcp://127.0.0.1:*"},
	{"ipc", "ipc://*"},
	{"inproc", "inproc://bench"},
}

// socketSizes are sizes of messages in bytes, at least 8, and allSizes those of the pairs that
// are compared with other libraries.
var (
	socketSizes = []int{64, 1 << 10, 64 << 10}
	allSizes    = []int{16, 64, 256, 1 << 10, 4 << 10, 64 << 10, 1 << 20}
)

// secure returns the options of the side that binds and of the one that connects: with CURVE
// or without, and with a namespace of their own for inproc.
func secure(b *testing.B, curve bool) (bound, connected sockets.Options) {
	b.Helper()
	names := new(sockets.Inproc)
	bound.Inproc, connected.Inproc = names, names
	if !curve {
		return bound, connected
	}
	server, client := zmtp.GenerateKeyPair(), zmtp.GenerateKeyPair()
	bound.Security = sockets.Security{CurveServer: true, CurveSecretKey: server.Secret, Authenticate: sockets.AllowKeys(client.Public)}
	connected.Security = sockets.Security{CurveSecretKey: client.Secret, CurveServerKey: server.Public}
	return bound, connected
}

// securities are names of what secure does on a transport.
func securities(transport string) []string {
	if transport == "inproc" {
		return []string{"null"}
	}
	return []string{"null", "curve"}
}

// stream is the content of numbered messages of a size: 8 bytes of number, and then a
// pattern.
type stream struct {
	body   []byte // of the next message to send
	want   []byte // of the next message to arrive
	number uint64 // of that
}

func newStream(size int) *stream {
	s := &stream{body: make([]byte, size)}
	for i := range s.body[8:] {
		s.body[8+i] = byte(i)
	}
	s.want = bytes.Clone(s.body)
	return s
}

// next returns the i-th message. It is valid until next is called again.
func (s *stream) next(i int) []byte {
	binary.LittleEndian.PutUint64(s.body, uint64(i))
	return s.body
}

// full is up to which size the whole of each message is compared; of larger ones it is
// every sixteenth, and the number and the end of all.
const full = 1 << 10

// check fails unless body is the message after the one before.
func (s *stream) check(body []byte) error {
	binary.LittleEndian.PutUint64(s.want, s.number)
	same := len(body) == len(s.want)
	if same && len(body) > full && s.number%16 != 0 {
		end := len(body) - full
		same = bytes.Equal(body[:8], s.want[:8]) && bytes.Equal(body[end:], s.want[end:])
	} else {
		same = same && bytes.Equal(body, s.want)
	}
	if !same {
		return fmt.Errorf("message %d is not as sent: %d bytes, which begin with %x", s.number, len(body), body[:min(len(body), 8)])
	}
	s.number++
	return nil
}

// sender has the methods that a benchmark needs of a socket that sends.
type sender interface {
	sockets.Socket
	Send(ctx context.Context, frames ...[]byte) error
}

// batcher can also send many messages with a call.
type batcher interface {
	sender
	SendBatch(ctx context.Context, bodies [][]byte) (int, error)
}

// receiver has the methods that a benchmark needs of a socket that receives.
type receiver interface {
	sockets.Socket
	RecvBatch(ctx context.Context, b *sockets.Batch) error
	Recv(ctx context.Context) (sockets.Message, error)
	RecvInto(ctx context.Context, m *sockets.Message) error
}

// closeAtEnd closes a socket when the benchmark ends.
func closeAtEnd(b *testing.B, s sockets.Socket) {
	b.Helper()
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
}

// join binds one socket and connects the other ones to it, and closes all in the end.
func join(b *testing.B, endpoint string, bound sockets.Socket, connected ...sockets.Socket) {
	b.Helper()
	closeAtEnd(b, bound)
	if err := bound.Bind(b.Context(), endpoint); err != nil {
		b.Fatal(err)
	}
	for _, s := range connected {
		closeAtEnd(b, s)
		if err := s.Connect(bound.LastEndpoint()); err != nil {
			b.Fatal(err)
		}
	}
}

// opened returns a socket, or ends the benchmark.
func opened[S sockets.Socket](b *testing.B, open func(sockets.Options) (S, error), o sockets.Options) S {
	b.Helper()
	s, err := open(o)
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// sending sends n messages.
type sending func(ctx context.Context, n int) error

// oneByOne sends messages with a call of Send each.
func oneByOne(to sender, size int) sending {
	s := newStream(size)
	return func(ctx context.Context, n int) error {
		for i := range n {
			if err := to.Send(ctx, s.next(i)); err != nil {
				return err
			}
		}
		return nil
	}
}

// inBatches sends messages with a call of SendBatch for each hundred.
func inBatches(to batcher, size int) sending {
	const perCall = 100
	streams, bodies := make([]*stream, perCall), make([][]byte, perCall)
	for i := range streams {
		streams[i] = newStream(size)
	}
	return func(ctx context.Context, n int) error {
		for i := 0; i < n; i += perCall {
			count := min(n-i, perCall)
			for j := range count {
				bodies[j] = streams[j].next(i + j)
			}
			if _, err := to.SendBatch(ctx, bodies[:count]); err != nil {
				return err
			}
		}
		return nil
	}
}

// receiving receives n messages and checks them.
type receiving func(ctx context.Context, from receiver, size, n int) error

// receive receives batches.
func receive(ctx context.Context, from receiver, size, n int) error {
	s := newStream(size)
	var batch sockets.Batch
	defer batch.Release()
	for s.number < uint64(n) {
		if err := from.RecvBatch(ctx, &batch); err != nil {
			return err
		}
		for i := range batch.Len() {
			body, rest := batch.Message(i).Next()
			if len(rest) > 0 {
				return errors.New("a message of more than one frame")
			}
			if err := s.check(body); err != nil {
				return err
			}
		}
	}
	if s.number > uint64(n) {
		return fmt.Errorf("%d messages, want %d", s.number, n)
	}
	return nil
}

// receiveEach is receive with a call of Recv for each message.
func receiveEach(ctx context.Context, from receiver, size, n int) error {
	for s := newStream(size); s.number < uint64(n); {
		m, err := from.Recv(ctx)
		if err != nil {
			return err
		}
		if len(m) != 1 {
			return errors.New("a message of more than one frame")
		}
		if err := s.check(m[0]); err != nil {
			return err
		}
	}
	return nil
}

// receiveInto is receiveEach with RecvInto, which reuses the memory of one message.
func receiveInto(ctx context.Context, from receiver, size, n int) error {
	var m sockets.Message
	for s := newStream(size); s.number < uint64(n); {
		if err := from.RecvInto(ctx, &m); err != nil {
			return err
		}
		if len(m) != 1 {
			return errors.New("a message of more than one frame")
		}
		if err := s.check(m[0]); err != nil {
			return err
		}
	}
	return nil
}

// run has one goroutine send and others, each with its number, receive, and takes the time
// until all have returned.
func run(b *testing.B, send func(ctx context.Context) error, receivers int, receive func(ctx context.Context, i int) error) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), limit)
	defer cancel()
	b.ReportAllocs()
	done := make(chan error, receivers+1)
	b.ResetTimer()
	go func() { done <- send(ctx) }()
	for i := range receivers {
		go func() { done <- receive(ctx, i) }()
	}
	var all error
	for range receivers + 1 {
		if err := <-done; err != nil {
			all = errors.Join(all, err)
			cancel() // so that the others do not wait without end
		}
	}
	b.StopTimer()
	if all != nil {
		b.Fatal(all)
	}
}

// pass sends b.N messages, all of which each of the receivers receives, and reports how
// many arrived a second, at all together.
func pass(b *testing.B, size int, send sending, receive receiving, from ...receiver) {
	b.Helper()
	b.SetBytes(int64(size * len(from)))
	run(b, func(ctx context.Context) error { return send(ctx, b.N) }, len(from),
		func(ctx context.Context, i int) error { return receive(ctx, from[i], size, b.N) })
	b.ReportMetric(float64(b.N)*float64(len(from))/b.Elapsed().Seconds(), "msgs/s")
}

// BenchmarkOneWay sends messages from one socket to another one in the same process, with
// Send, or a hundred at once with SendBatch. The other side receives batches.
func BenchmarkOneWay(b *testing.B) {
	for _, pair := range []struct {
		name string
		open func(b *testing.B, o sockets.Options) (sender, receiver)
	}{
		{"push-pull", func(b *testing.B, o sockets.Options) (sender, receiver) {
			return opened(b, sockets.NewPush, o), opened(b, sockets.NewPull, o)
		}},
		{"dealer-dealer", func(b *testing.B, o sockets.Options) (sender, receiver) {
			return opened(b, sockets.NewDealer, o), opened(b, sockets.NewDealer, o)
		}},
		{"pair-pair", func(b *testing.B, o sockets.Options) (sender, receiver) {
			return opened(b, sockets.NewPair, o), opened(b, sockets.NewPair, o)
		}},
	} {
		for _, t := range transports {
			for _, size := range socketSizes {
				for _, call := range []string{"Send", "SendBatch"} {
					b.Run(fmt.Sprintf("pair=%s/transport=%s/size=%d/call=%s", pair.name, t.name, size, call), func(b *testing.B) {
						to, from := pair.open(b, sockets.Options{Inproc: new(sockets.Inproc)})
						all, ok := to.(batcher)
						if call == "SendBatch" && !ok {
							b.Skip("it has no SendBatch")
						}
						join(b, t.endpoint, from, to)
						send := oneByOne(to, size)
						if call == "SendBatch" {
							send = inBatches(all, size)
						}
						pass(b, size, send, receive, from)
					})
				}
			}
		}
	}
}

// BenchmarkPubSub publishes messages to one subscriber and to 16, each of which receives
// all of them in a goroutine of its own. The publisher waits for the slowest. msgs/s and
// MB/s count the messages that arrive.
func BenchmarkPubSub(b *testing.B) {
	for _, t := range transports {
		for _, size := range socketSizes {
			for _, subscribers := range []int{1, 16} {
				b.Run(fmt.Sprintf("transport=%s/size=%d/subscribers=%d", t.name, size, subscribers), func(b *testing.B) {
					o := sockets.Options{Inproc: new(sockets.Inproc)}
					from, connected := make([]receiver, subscribers), make([]sockets.Socket, subscribers)
					for i := range from {
						sub := opened(b, sockets.NewSub, o)
						if err := sub.Subscribe(""); err != nil {
							b.Fatal(err)
						}
						from[i], connected[i] = sub, sub
					}
					o.FullPolicy = sockets.PolicyBlock
					pub := opened(b, sockets.NewPub, o)
					join(b, t.endpoint, pub, connected...)
					if err := pub.WaitSubscribers(b.Context(), "", subscribers); err != nil {
						b.Fatal(err)
					}
					pass(b, size, oneByOne(pub, size), receive, from...)
				})
			}
		}
	}
}

// BenchmarkPushPull is BenchmarkOneWay at all sizes, by the calls of both sides and with CURVE:
// the rows of the comparison with libzmq (bench/peers/cmd/compare), both ends in a process.
func BenchmarkPushPull(b *testing.B) {
	calls := []struct {
		name    string
		batches bool
		receive receiving
	}{{"Send,Recv", false, receiveEach}, {"Send,RecvInto", false, receiveInto}, {"Send,RecvBatch", false, receive}, {"SendBatch,RecvBatch", true, receive}}
	for _, t := range transports {
		for _, security := range securities(t.name) {
			for _, size := range allSizes {
				for _, call := range calls {
					b.Run(fmt.Sprintf("transport=%s/security=%s/size=%d/calls=%s", t.name, security, size, call.name), func(b *testing.B) {
						bound, connected := secure(b, security == "curve")
						to, from := opened(b, sockets.NewPush, connected), opened(b, sockets.NewPull, bound)
						join(b, t.endpoint, from, to)
						send := oneByOne(to, size)
						if call.batches {
							send = inBatches(to, size)
						}
						pass(b, size, send, call.receive, from)
					})
				}
			}
		}
	}
}

// BenchmarkRoundTrip sends requests and receives the replies, which are the same, within a
// process. The next request is sent when the last reply has come, or, between DEALER and
// ROUTER with a window, when fewer than so many replies are missing. The percentiles are of
// the time from a request to its reply.
func BenchmarkRoundTrip(b *testing.B) {
	for _, t := range transports {
		for _, security := range securities(t.name) {
			for _, size := range allSizes {
				name := fmt.Sprintf("pair=req-rep/transport=%s/size=%d/window=1", t.name, size)
				if security == "curve" {
					name += "/security=curve"
				}
				b.Run(name, func(b *testing.B) {
					bound, connected := secure(b, security == "curve")
					req, rep := opened(b, sockets.NewReq, connected), opened(b, sockets.NewRep, bound)
					join(b, t.endpoint, rep, req)
					ask(b, size, 1, req, func(ctx context.Context) error { return answer(ctx, rep) })
				})
			}
		}
		for _, size := range socketSizes {
			for _, window := range []int{1, 100} {
				b.Run(fmt.Sprintf("pair=dealer-router/transport=%s/size=%d/window=%d", t.name, size, window), func(b *testing.B) {
					o := sockets.Options{Inproc: new(sockets.Inproc)}
					dealer, router := opened(b, sockets.NewDealer, o), opened(b, sockets.NewRouter, o)
					join(b, t.endpoint, router, dealer)
					ask(b, size, window, dealer, func(ctx context.Context) error { return answer(ctx, router) })
				})
			}
		}
	}
}

// asker has the methods that BenchmarkRoundTrip needs of either socket.
type asker interface {
	sender
	Recv(ctx context.Context) (sockets.Message, error)
}

// answer sends each message back, until the context or the socket ends.
func answer(ctx context.Context, s asker) error {
	for {
		m, err := s.Recv(ctx)
		if err != nil {
			return err
		}
		if err := s.Send(ctx, m...); err != nil {
			return err
		}
	}
}

// ask sends b.N requests, at most window of which have no reply yet, while answer answers.
func ask(b *testing.B, size, window int, peer asker, answer func(ctx context.Context) error) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), limit)
	defer cancel()
	answering := make(chan error, 1)
	go func() {
		err := answer(ctx)
		cancel() // so that no asker waits for a reply without end
		answering <- err
	}()
	s := newStream(size)
	begun, took := make([]time.Time, window), make(times, 0, b.N)
	sent := 0
	one := func() error {
		for ; sent < b.N && sent-len(took) < window; sent++ {
			begun[sent%window] = time.Now()
			if err := peer.Send(ctx, s.next(sent)); err != nil {
				return err
			}
		}
		m, err := peer.Recv(ctx)
		if err != nil {
			return err
		}
		if len(m) != 1 {
			return fmt.Errorf("a reply of %d frames", len(m))
		}
		if err := s.check(m[0]); err != nil {
			return err
		}
		took = append(took, time.Since(begun[len(took)%window]))
		return nil
	}
	b.ReportAllocs()
	b.ResetTimer()
	var err error
	for len(took) < b.N && err == nil {
		err = one()
	}
	b.StopTimer()
	cancel()
	if stopped := <-answering; err != nil {
		b.Fatal(err, stopped)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
	took.percentiles(b)
}
