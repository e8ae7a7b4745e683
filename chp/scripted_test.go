package chp

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"clustermap/chp/internal/wire"
	"clustermap/internal/kvmsg"
	"clustermap/internal/loopback"
	"clustermap/internal/wake"
	"clustermap/sockets"
)

// scripted is a CHP server without a mind of its own: three sockets, and a test
// that decides which messages go over them and when.
type scripted struct {
	t    testing.TB
	ctx  context.Context
	host string // of its own: its clients may go on dialling when it is dead
	port int

	router *sockets.Router
	pub    *sockets.Pub
	sub    *sockets.Sub

	mu    sync.Mutex
	peers []string // socket types that connected, with P, P+1 or P+2
}

const (
	asOurs  = true  // announces itself as a server of this package
	asPlain = false // is a server of RFC 12
)

// newScripted binds three consecutive free ports.
func newScripted(t testing.TB, ours bool) *scripted {
	t.Helper()
	if ours {
		return newScriptedWith(t, wire.Properties())
	}
	return newScriptedWith(t, nil)
}

// newScriptedWith is newScripted for a server that announces some properties.
func newScriptedWith(t testing.TB, announced map[string]string) *scripted {
	t.Helper()
	for host := loopback.Own(); ; {
		probe, err := sockets.NewRouter(sockets.Options{Linger: sockets.LingerNone})
		must(t, err)
		must(t, probe.Bind(testContext(t), "tcp://"+host+":0"))
		port := portOf(probe.LastEndpoint())
		must(t, probe.Close())
		if s, err := scriptedAt(t, announced, host, port); err == nil {
			return s
		}
	}
}

// scriptedAt binds P, P+1 and P+2.
func scriptedAt(t testing.TB, announced map[string]string, host string, port int) (*scripted, error) {
	t.Helper()
	s := &scripted{t: t, ctx: testContext(t), host: host, port: port}
	options := func(offset int) sockets.Options {
		o := sockets.Options{Linger: sockets.LingerNone, Metadata: announced, Monitor: func(e sockets.Event) {
			if e.Kind == sockets.EventHandshakeSucceeded {
				s.mu.Lock()
				s.peers = append(s.peers, fmt.Sprintf("%s at P+%d", e.Peer.SocketType(), offset))
				s.mu.Unlock()
			}
		}}
		return o
	}
	var err error
	s.router, err = sockets.NewRouter(options(0))
	must(t, err)
	s.pub, err = sockets.NewPub(options(1))
	must(t, err)
	s.sub, err = sockets.NewSub(options(2))
	must(t, err)
	t.Cleanup(s.close)
	must(t, s.sub.Subscribe(""))
	for i, b := range []interface {
		Bind(context.Context, string) error
	}{s.router, s.pub, s.sub} {
		if err := b.Bind(s.ctx, fmt.Sprintf("tcp://%s:%d", host, port+i)); err != nil {
			s.close()
			return nil, err
		}
	}
	return s, nil
}

// close is the death of the server: all its connections break.
func (s *scripted) close() {
	_ = s.router.Close() // closing a socket does not fail
	_ = s.pub.Close()
	_ = s.sub.Close()
}

func (s *scripted) name() string { return fmt.Sprintf("tcp://%s:%d", s.host, s.port) }

// connected returns how many sockets connected as described.
func (s *scripted) connected(peer string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, p := range s.peers {
		if p == peer {
			n++
		}
	}
	return n
}

// ask returns the next snapshot request: the client's identity and the subtree.
func (s *scripted) ask() (id []byte, subtree string) {
	s.t.Helper()
	m, err := s.router.Recv(s.ctx)
	must(s.t, err)
	if len(m) != 3 || string(m[1]) != "ICANHAZ?" {
		s.t.Fatalf("the client begins with %q", m)
	}
	return m[0], string(m[2])
}

// nobodyAsks checks that no request is queued.
func (s *scripted) nobodyAsks() {
	s.t.Helper()
	if m, err := s.router.Recv(wake.Ended); err == nil {
		s.t.Errorf("unexpected request %q", m)
	}
}

func seqBytes(seq int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(seq)) }

func (s *scripted) kvsync(id []byte, p pub) {
	s.t.Helper()
	must(s.t, s.router.Send(s.ctx, id, []byte(p.key), seqBytes(p.seq), nil, nil, []byte(p.value)))
}

func (s *scripted) kthxbai(id []byte, seq int64, subtree string) {
	s.t.Helper()
	must(s.t, s.router.Send(s.ctx, id, []byte(kvmsg.KeyKTHXBAI), seqBytes(seq), nil, nil, []byte(subtree)))
}

// answer waits for a snapshot request and answers it. Like any server it sends
// heartbeats meanwhile.
func (s *scripted) answer(seq int64, snapshot ...pub) {
	s.t.Helper()
	stop := s.beat(0)
	id, subtree := s.ask()
	stop()
	for _, p := range snapshot {
		s.kvsync(id, p)
	}
	s.kthxbai(id, seq, subtree)
}

// beat sends heartbeats with a sequence until stop is called.
func (s *scripted) beat(seq int64) (stop func()) {
	ctx, cancel := context.WithCancel(s.ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil && s.pub.Send(ctx, []byte(kvmsg.KeyHUGZ), seqBytes(seq), nil, nil, nil) == nil {
			wake.Pause(ctx, 5*time.Millisecond)
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

// subscribed waits until n clients have subscribed to a topic.
func (s *scripted) subscribed(topic string, n int) {
	s.t.Helper()
	must(s.t, s.pub.WaitSubscribers(s.ctx, topic, n))
}

func (s *scripted) kvpub(messages ...pub) {
	s.t.Helper()
	for _, p := range messages {
		s.publish(p.key, p.seq, nil, "", p.value)
	}
}

func (s *scripted) publish(key string, seq int64, id []byte, properties, value string) {
	s.t.Helper()
	must(s.t, s.pub.Send(s.ctx, []byte(key), seqBytes(seq), id, []byte(properties), []byte(value)))
}

// kvset returns the next KVSET.
func (s *scripted) kvset() kv {
	s.t.Helper()
	m, err := s.sub.Recv(s.ctx)
	must(s.t, err)
	return toKV(s.t, m)
}

// follow makes a client of scripted servers. Its time-outs are long: only a
// test of a time-out shortens them.
func followScripted(t testing.TB, o ClientOptions, servers ...*scripted) *Client {
	t.Helper()
	for _, s := range servers {
		o.Servers = append(o.Servers, s.name())
	}
	if o.SyncTimeout == 0 {
		o.SyncTimeout = hang
	}
	if o.HeartbeatTimeout == 0 {
		o.HeartbeatTimeout = hang
	}
	c, err := NewClient(o)
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	return c
}

// meanwhile lets another client join another server. So much time passes for a client that
// must not do something, however loaded the machine is.
func meanwhile(t testing.TB) {
	t.Helper()
	s := newScripted(t, asPlain)
	defer s.close()
	c := followScripted(t, ClientOptions{}, s)
	s.answer(1)
	must(t, c.WaitActive(s.ctx))
}

// silence lets another client lose a server that has sent nothing for that long.
func silence(t testing.TB, timeout time.Duration) {
	t.Helper()
	s := newScripted(t, asPlain)
	defer s.close()
	lost := make(chan struct{}, 1)
	c := followScripted(t, ClientOptions{HeartbeatTimeout: timeout, OnLink: func(e LinkEvent) {
		if e.Kind == LinkLost {
			wake.Signal(lost)
		}
	}}, s)
	s.answer(1)
	must(t, c.WaitActive(s.ctx))
	<-lost
}

// have returns the client's contents.
func have(c *Client) map[string]string {
	m := map[string]string{}
	c.Range(func(key, value []byte) bool {
		m[string(key)] = string(value)
		return true
	})
	return m
}

// wantContents waits until the client has applied the given sequence, and
// compares its contents then.
func wantContents(t testing.TB, c *Client, seq int64, want map[string]string) {
	t.Helper()
	eventually(t, fmt.Sprintf("the client is at %d", seq), func() bool { return c.Sequence() == seq && c.State() == StateActive })
	if got := have(c); !maps.Equal(got, want) || c.Len() != len(want) {
		t.Errorf("the client has %v and %d keys, want %v", got, c.Len(), want)
	}
	for key, value := range want {
		if got, ok := c.Get(key); !ok || string(got) != value {
			t.Errorf("Get(%s) = %q, %v; want %q", key, got, ok, value)
		}
	}
}
