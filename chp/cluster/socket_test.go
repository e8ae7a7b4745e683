package cluster

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"clustermap/internal/testenv"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// TestTransportWithKeys shows that messages pass between nodes with keys of their own, that others
// are not heard, and that a transport prints no key.
func TestTransportWithKeys(t *testing.T) {
	keys := map[uint64]zmtp.KeyPair{1: zmtp.GenerateKeyPair(), 2: zmtp.GenerateKeyPair(), 3: zmtp.GenerateKeyPair()}
	allowed := sockets.AllowKeys(keys[1].Public, keys[2].Public)
	heard := make(chan *Message, 100)
	begin := func(id uint64) *SocketTransport {
		o := SocketOptions{
			Node: id, Cluster: ID{7}, Listen: "tcp://127.0.0.1:*",
			Bound: sockets.Options{Security: sockets.Security{CurveServer: true, CurveSecretKey: keys[id].Secret, Authenticate: allowed}},
			Peer: func(node uint64, o *sockets.Options) {
				o.Security = sockets.Security{CurveSecretKey: keys[id].Secret, CurveServerKey: keys[node].Public}
			},
		}
		tr, err := NewSocketTransport(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { tr.Close() })
		for _, s := range []string{fmt.Sprintf("%+v", o), fmt.Sprintf("%+v", tr)} {
			if !strings.HasPrefix(s, "transport of node ") {
				t.Errorf("printed as %q", s)
			}
		}
		if err := tr.Start(func(m *Message) { heard <- m }); err != nil {
			t.Fatal(err)
		}
		return tr
	}
	a, b, c := begin(1), begin(2), begin(3)
	a.Peers(map[uint64]string{2: b.Address()})
	b.Peers(map[uint64]string{1: a.Address()})
	c.Peers(map[uint64]string{1: a.Address()})
	send := func(tr *SocketTransport, from, to uint64) bool {
		return tr.Send(&Message{Kind: KindRaft, From: from, To: to, Raft: raftpb.Message{Type: raftpb.MsgHeartbeat, From: from, To: to}})
	}
	if send(a, 1, 9) {
		t.Error("sent to a node without an address")
	}
	testenv.Eventually(t, "1 cannot send to 2", func() bool { return send(a, 1, 2) })
	if m := <-heard; m.From != 1 || m.To != 2 {
		t.Errorf("heard %d to %d", m.From, m.To)
	}
	testenv.Eventually(t, "2 cannot send to 1", func() bool { return send(b, 2, 1) })
	if m := <-heard; m.From != 2 || m.To != 1 {
		t.Errorf("heard %d to %d", m.From, m.To)
	}
	if send(c, 3, 1) {
		t.Error("a node whose key is not allowed could send")
	}
}

// TestTransportDropsWhatIsTooMuch shows that a peer that does not read makes no sender wait, and
// occupies no more than its queue.
func TestTransportDropsWhatIsTooMuch(t *testing.T) {
	pull, err := sockets.NewPull(sockets.Options{RecvHWM: 1, RecvHWMBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer pull.Close()
	if err := pull.Bind(t.Context(), "tcp://127.0.0.1:*"); err != nil {
		t.Fatal(err)
	}
	tr, err := NewSocketTransport(t.Context(), SocketOptions{Node: 1, Listen: "tcp://127.0.0.1:*", QueueBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	tr.Peers(map[uint64]string{2: pull.LastEndpoint()})
	m := &Message{Kind: KindRaft, From: 1, To: 2, Raft: raftpb.Message{Type: raftpb.MsgApp, From: 1, To: 2, Entries: []raftpb.Entry{{Data: make([]byte, 256<<10)}}}}
	testenv.Eventually(t, "not connected", func() bool { return tr.Send(m) })
	testenv.Eventually(t, "nothing is dropped", func() bool { return !tr.Send(m) })
}

// TestStrangersAreNamed shows that a node says why it does not hear another one: that is of another cluster, or takes it for another
// node.
func TestStrangersAreNamed(t *testing.T) {
	for _, c := range []struct {
		change func(*SocketTransport, *Message)
		want   string
	}{
		{func(tr *SocketTransport, _ *Message) { tr.options.Cluster = ID{8} }, "node 2 belongs to another cluster"},
		{func(_ *SocketTransport, m *Message) { m.To = 3 }, "it is for node 3"},
	} {
		said := make(chan string, 1)
		a, err := NewSocketTransport(t.Context(), SocketOptions{Node: 1, Cluster: ID{7}, Listen: "tcp://127.0.0.1:*", Logger: slog.New(slog.NewTextHandler(said1(said), nil))})
		testenv.Must(t, err)
		defer a.Close()
		testenv.Must(t, a.Start(func(m *Message) { t.Errorf("heard %d", m.From) }))
		b, err := NewSocketTransport(t.Context(), SocketOptions{Node: 2, Cluster: ID{7}, Listen: "tcp://127.0.0.1:*"})
		testenv.Must(t, err)
		defer b.Close()
		m := &Message{Kind: KindRaft, From: 2, To: 1, Raft: raftpb.Message{Type: raftpb.MsgHeartbeat, From: 2, To: 1}}
		c.change(b, m)
		m.Raft.To = m.To
		b.Peers(map[uint64]string{m.To: a.Address()})
		testenv.Eventually(t, "cannot send", func() bool { return b.Send(m) })
		if line := <-said; !strings.Contains(line, c.want) {
			t.Errorf("it says %q, not %q", line, c.want)
		}
	}
}

// said1 passes the first line.
type said1 chan string

func (s said1) Write(b []byte) (int, error) {
	select {
	case s <- string(b):
	default:
	}
	return len(b), nil
}
