//go:build unix

package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"clustermap/internal/bench/figures"
	"clustermap/internal/bench/worker"
	"clustermap/internal/hooks"
	"clustermap/sockets"
	"clustermap/zmtp"
)

var (
	fanDeliveries = flag.Int("fanout.deliveries", 500_000, "deliveries of each run of BenchmarkFanOut")
	fanUpdates    = flag.Int("fanout.updates", 50_000, "updates of each run of BenchmarkSubtrees")
)

// BenchmarkFanOut sends updates from a process through a server in this one to replicas
// in a third one, and does the same with a bare loop, which copies its input to as many
// TCP connections, one after the other. Both get the same bytes, and both have the same
// replicas: connections that check that each update has arrived once and in order, and
// store nothing, so that most of the time goes to the server. A round has one run of
// each, in turn. deliveries/s and bare/s are medians, ratio is the median of the rounds'
// ratios. For figures:
//
//	go test -run '^$' -bench FanOut -benchtime 5x ./bench -fanout.deliveries 20000000
func BenchmarkFanOut(b *testing.B) {
	for _, replicas := range []int{4, 64, 1000} {
		b.Run(fmt.Sprintf("replicas=%d", replicas), func(b *testing.B) {
			f := fan{Connections: replicas, Updates: max(*fanDeliveries/replicas, 100)}
			ours, bare := f.compare(b)
			deliveries := float64(f.Updates * replicas)
			b.ReportMetric(deliveries/ours.elapsed, "deliveries/s")
			b.ReportMetric(deliveries/bare.elapsed, "bare/s")
		})
	}
}

// BenchmarkSubtrees is BenchmarkFanOut with replicas each of which has subscribed to
// subtrees of its own, up to a thousand connections, and to more subtrees each beyond
// that. Either all updates are of the first subtree, so that one replica gets all and
// the others cost nothing but their subscriptions, or each is of the next one. The bare
// loop knows the connection of a subtree by its number. ns/update and bare-ns/update are
// the processor time of this process. For figures:
//
//	go test -run '^$' -bench Subtrees -benchtime 5x ./bench -fanout.updates 2000000
func BenchmarkSubtrees(b *testing.B) {
	for _, spread := range []bool{false, true} {
		for _, subtrees := range []int{10, 100, 1000, 10_000} {
			updates := "first"
			if spread {
				updates = "next"
			}
			b.Run(fmt.Sprintf("updates=%s/subscriptions=%d", updates, subtrees), func(b *testing.B) {
				f := fan{Connections: min(subtrees, 1000), Subtrees: subtrees, Spread: spread, Updates: *fanUpdates}
				ours, bare := f.compare(b)
				b.ReportMetric(float64(f.Updates)/ours.elapsed, "updates/s")
				b.ReportMetric(ours.processor*1e9/float64(f.Updates), "ns/update")
				b.ReportMetric(bare.processor*1e9/float64(f.Updates), "bare-ns/update")
			})
		}
	}
}

// fan is the configuration that the processes of a run share.
type fan struct {
	Role        string // "publish" or "receive"
	Bare        bool
	Endpoint    string // to connect to: tcp://address:port
	Connections int    // of replicas
	Subtrees    int    // 0: each replica gets all updates
	Spread      bool   // update i is of subtree i modulo Subtrees; otherwise all are of subtree 0
	Updates     int    // that are measured; there are a tenth of them before
}

func (f *fan) warmup() int { return f.Updates/10 + 1 }

const (
	fanValue   = 32 // bytes
	fanKeys    = 1000
	fanKeySize = len("/00000/00000")
	// fanMessage is the size of an update on the wire: key, sequence, UUID, no
	// properties, value.
	fanMessage = 2 + fanKeySize + 2 + 8 + 2 + 16 + 2 + 2 + fanValue
	// Where its key, sequence and value begin.
	fanKeyAt, fanSequenceAt, fanValueAt = 2, 2 + fanKeySize + 2, fanMessage - fanValue
	// fanRead is how many bytes the bare loop and the replicas read at once.
	fanRead = 128 << 10
)

// subtree returns the number of the subtree of update i.
func (f *fan) subtree(i int) int {
	if f.Spread {
		return i % f.Subtrees
	}
	return 0
}

// append appends update i.
func (f *fan) append(wire []byte, i int) []byte {
	var room [fanKeySize]byte
	var sequence [8]byte
	var uuid [16]byte
	var value [fanValue]byte
	key := fmt.Appendf(room[:0], "/%05d/%05d", f.subtree(i), i%fanKeys)
	if f.Bare { // otherwise the server writes it
		binary.BigEndian.PutUint64(sequence[:], uint64(i+1))
	}
	binary.LittleEndian.PutUint64(value[:], uint64(i))
	return zmtp.AppendMessage(wire, key, sequence[:], uuid[:], nil, value[:])
}

// cost is the time of the measured updates of a run, in seconds: the time until the last
// replica had the last one, and this process's processor time.
type cost struct{ elapsed, processor float64 }

// compare measures a run of each side in each round, in turn, and returns the medians. It
// reports the median of the ratios.
func (f *fan) compare(b *testing.B) (ours, bare cost) {
	b.Helper()
	var sides [2][]cost
	var ratios []float64
	for round := 0; b.Loop(); round++ {
		for turn := range 2 {
			side := (round + turn) % 2
			run := *f
			run.Bare = side == 1
			sides[side] = append(sides[side], run.run(b))
		}
		ratios = append(ratios, sides[1][round].elapsed/sides[0][round].elapsed)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(figures.Median(ratios), "ratio")
	median := func(all []cost) (c cost) {
		var elapsed, processor []float64
		for _, c := range all {
			elapsed, processor = append(elapsed, c.elapsed), append(processor, c.processor)
		}
		return cost{figures.Median(elapsed), figures.Median(processor)}
	}
	return median(sides[0]), median(sides[1])
}

// run is one run of one side.
func (f fan) run(b *testing.B) cost {
	ctx, cancel := context.WithTimeout(b.Context(), limit)
	defer cancel()
	var replicas, publisher string
	var attached func() error
	if f.Bare {
		var stop func()
		replicas, publisher, attached, stop = f.bare(b)
		defer stop()
	} else {
		at, stop := startServer(b, "tcp")
		defer stop()
		replicas, publisher, attached = at.Publisher, at.Collector, func() error { return nil }
	}
	f.Role, f.Endpoint = "receive", replicas
	receivers := f.start(ctx, b)
	defer receivers.Stop()
	receivers.wait("ready")
	f.Role, f.Endpoint = "publish", publisher
	publishers := f.start(ctx, b)
	defer publishers.Stop()
	publishers.wait("ready")
	if err := attached(); err != nil {
		b.Fatal(err)
	}
	publishers.tell()
	receivers.wait("warm")
	publishers.wait("sent")

	before, begun := processorTime(b), time.Now()
	publishers.tell()
	receivers.wait("done")
	return cost{time.Since(begun).Seconds(), processorTime(b) - before}
}

// processorTime returns the processor time that this process has used, in seconds.
func processorTime(b *testing.B) float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// bare starts the bare loop and returns where it listens. attached waits until all
// have connected.
func (f *fan) bare(b *testing.B) (replicas, publisher string, attached func() error, stop func()) {
	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		return l
	}
	in, out := listen(), listen()
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- f.loop(in, out, ready) }()
	attached = func() error {
		select {
		case <-ready:
			return nil
		case err := <-ended:
			ended <- err
			return err
		}
	}
	stop = func() {
		in.Close()
		out.Close()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	}
	return "tcp://" + out.Addr().String(), "tcp://" + in.Addr().String(), attached, stop
}

// loop is the bare loop: it copies its input to the replicas, until the publisher leaves.
func (f *fan) loop(in, out net.Listener, ready chan<- struct{}) error {
	to := make([]net.Conn, f.Connections)
	for range to {
		c, err := out.Accept()
		if err != nil {
			return nil // the benchmark has failed, and says why
		}
		defer c.Close()
		var number [4]byte
		if _, err := io.ReadFull(c, number[:]); err != nil {
			return nil
		}
		to[binary.BigEndian.Uint32(number[:])] = c
	}
	from, err := in.Accept()
	if err != nil {
		return nil
	}
	defer from.Close()
	close(ready)
	buf, held := make([]byte, fanRead), 0
	each := make([][]byte, len(to))
	for {
		n, err := from.Read(buf[held:])
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		held += n
		whole := held / fanMessage * fanMessage
		if f.Subtrees == 0 {
			for _, c := range to {
				if _, err := c.Write(buf[:whole]); err != nil {
					return err
				}
			}
		} else {
			for m := 0; m < whole; m += fanMessage {
				subtree := 0
				for _, digit := range buf[m+fanKeyAt+1 : m+fanKeyAt+6] {
					subtree = 10*subtree + int(digit-'0')
				}
				i := subtree % len(to)
				each[i] = append(each[i], buf[m:m+fanMessage]...)
			}
			for i, all := range each {
				if len(all) == 0 {
					continue
				}
				if _, err := to[i].Write(all); err != nil {
					return err
				}
				each[i] = all[:0]
			}
		}
		held = copy(buf, buf[whole:held])
	}
}

// fanProcess is another process of a run.
type fanProcess struct {
	*worker.Worker
	b    *testing.B
	role string
}

func (f *fan) start(ctx context.Context, b *testing.B) *fanProcess {
	b.Helper()
	w, err := worker.Start(ctx, "fan", f)
	if err != nil {
		b.Fatal(err)
	}
	return &fanProcess{w, b, f.Role}
}

// wait waits for a word.
func (p *fanProcess) wait(word string) {
	p.b.Helper()
	var got string
	if err := p.Next(&got); err != nil || got != word {
		p.b.Fatalf("%s: %q, not %s: %v", p.role, got, word, err)
	}
}

// tell lets the process go on.
func (p *fanProcess) tell() {
	if err := p.Tell("go"); err != nil {
		p.b.Fatal(err)
	}
}

// runFan is the work of such a process.
func runFan(f fan, say func(any)) error {
	if f.Role == "publish" {
		return f.publish(say)
	}
	return f.receive(say)
}

// publish sends the updates of the warm-up, and the others, each when it is told.
func (f *fan) publish(say func(any)) error {
	const perCall = 100
	var send func(wire []byte, count int) error
	ctx := context.Background()
	if f.Bare {
		c, err := net.Dial("tcp", strings.TrimPrefix(f.Endpoint, "tcp://"))
		if err != nil {
			return err
		}
		defer c.Close()
		var buf []byte
		send = func(wire []byte, count int) (err error) {
			if buf = append(buf, wire...); count == 0 || len(buf) >= fanRead {
				_, err = c.Write(buf)
				buf = buf[:0]
			}
			return err
		}
	} else {
		pub, err := sockets.NewPub(sockets.Options{FullPolicy: sockets.PolicyBlock})
		if err != nil {
			return err
		}
		defer pub.Close()
		if err := pub.Connect(f.Endpoint); err != nil {
			return err
		}
		if err := pub.WaitSubscribers(ctx, "", 1); err != nil {
			return err
		}
		send = func(wire []byte, count int) error { return hooks.SendWire(ctx, pub, wire, count, nil) }
	}
	say("ready")
	var wire []byte
	i, end := 0, 0
	for _, n := range []int{f.warmup(), f.Updates} {
		worker.Hear()
		end += n
		for i < end {
			wire = wire[:0]
			count := min(end-i, perCall)
			for range count {
				wire = f.append(wire, i)
				i++
			}
			if err := send(wire, count); err != nil {
				return err
			}
		}
		if f.Bare {
			if err := send(nil, 0); err != nil {
				return err
			}
		}
		say("sent")
	}
	select {} // what was sent may not have arrived
}

// receive connects the replicas, and says when each of them is ready, has the warm-up,
// and has all.
func (f *fan) receive(say func(any)) error {
	failed := make(chan error, f.Connections)
	var ready, warm, done sync.WaitGroup
	for i := range f.Connections {
		ready.Add(1)
		warm.Add(1)
		done.Add(1)
		r := fanReplica{fan: f, number: i, ready: ready.Done, warm: warm.Done, done: done.Done}
		go func() {
			if err := r.run(); err != nil {
				failed <- fmt.Errorf("replica %d: %w", i, err)
			}
		}()
		if i%64 == 63 {
			runtime.Gosched() // a listener's backlog is limited
		}
	}
	for _, phase := range []struct {
		name string
		wait func()
	}{{"ready", ready.Wait}, {"warm", warm.Wait}, {"done", done.Wait}} {
		ended := make(chan struct{})
		go func() {
			phase.wait()
			close(ended)
		}()
		select {
		case <-ended:
			say(phase.name)
		case err := <-failed:
			return err
		}
	}
	return <-failed // until it is killed
}

// fanReplica is one connection. With a server it is a SUB of ZMTP 3.0 (RFC 23), which
// does nothing but subscribe and check.
type fanReplica struct {
	*fan
	number            int
	ready, warm, done func()

	connected bool
	base      uint64 // sequence of update 0; 0: not known yet
	next      int    // number of the next update to arrive
}

// step is by how much the numbers of the replica's updates differ.
func (r *fanReplica) step() int {
	if r.Subtrees > 0 && r.Spread {
		return r.Connections // so that replica i has the subtrees i, i + Connections and so on
	}
	return 1
}

// expects reports whether any of n updates are for this replica.
func (r *fanReplica) expects(n int) bool {
	return (r.Subtrees == 0 || r.Spread || r.number == 0) && r.next < n
}

func (r *fanReplica) run() error {
	c, err := net.Dial("tcp", strings.TrimPrefix(r.Endpoint, "tcp://"))
	if err != nil {
		return err
	}
	defer c.Close()
	if r.Spread {
		r.next = r.number
	}
	if r.Bare {
		if _, err := c.Write(binary.BigEndian.AppendUint32(nil, uint32(r.number))); err != nil {
			return err
		}
		r.connect()
	} else if err := r.subscribe(c); err != nil {
		return err
	}
	buf, held := make([]byte, fanRead), 0
	for warmed := false; ; {
		if !warmed && r.connected && !r.expects(r.warmup()) {
			warmed = true
			r.warm()
		}
		if warmed && !r.expects(r.warmup()+r.Updates) {
			r.done()
			break
		}
		n, err := c.Read(buf[held:])
		if err != nil {
			return err
		}
		held += n
		used, err := r.take(buf[:held])
		if err != nil {
			return err
		}
		held = copy(buf, buf[used:held])
	}
	_, err = io.Copy(io.Discard, c)
	return err
}

func (r *fanReplica) connect() {
	if !r.connected {
		r.connected = true
		r.ready()
	}
}

// subscribe does the handshake. The last subscription is to heartbeats: when one comes,
// all the others are in effect.
func (r *fanReplica) subscribe(c net.Conn) error {
	var hello [64]byte
	hello[0], hello[9], hello[10] = 0xff, 0x7f, 3
	copy(hello[12:], "NULL")
	out := append(hello[:], "\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03SUB"...)
	topic := func(t string) { out = append(append(out, 0, byte(1+len(t)), 1), t...) }
	for s := r.number; s < r.Subtrees; s += r.Connections {
		topic(fmt.Sprintf("/%05d/", s))
	}
	if r.Subtrees == 0 {
		topic("")
	} else {
		topic("HUGZ")
	}
	if _, err := c.Write(out); err != nil {
		return err
	}
	// The greeting, and the command READY.
	in := make([]byte, 66)
	if _, err := io.ReadFull(c, in); err != nil {
		return err
	}
	if in[64] != 4 {
		return fmt.Errorf("a frame with the flags %x instead of READY", in[64])
	}
	_, err := io.CopyN(io.Discard, c, int64(in[65]))
	return err
}

// take checks the whole messages in b, and returns how many bytes they have.
func (r *fanReplica) take(b []byte) (used int, err error) {
	const hugz = 2 + 4 + 2 + 8 + 2 + 2 + 2 // key, sequence, no UUID, no properties, no value
	for len(b)-used >= hugz {
		m := b[used:]
		if m[1] == 4 && string(m[2:6]) == "HUGZ" {
			r.connect()
			used += hugz
			continue
		}
		if len(m) < fanMessage {
			break
		}
		sequence, number := binary.BigEndian.Uint64(m[fanSequenceAt:]), binary.LittleEndian.Uint64(m[fanValueAt:])
		if m[0] != 1 || m[1] != byte(fanKeySize) || m[fanMessage-fanValue-1] != fanValue || number != uint64(r.next) || r.base > 0 && sequence != r.base+number {
			return used, fmt.Errorf("update %d, sequence %d, where update %d was due", number, sequence, r.next)
		}
		r.base = sequence - number
		r.next += r.step()
		used += fanMessage
	}
	return used, nil
}
