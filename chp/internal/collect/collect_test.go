package collect

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"clustermap/chp/internal/wire"
	"clustermap/internal/kvmsg"
	"clustermap/sockets"
)

// The server remembers a bounded number of clients.
func TestMembersAreBounded(t *testing.T) {
	t.Parallel()
	var m members
	m.init("", nil)
	now := time.Now()
	for range maxGone + 100 {
		id := wire.NewID()
		m.addConnection(id)
		m.removeConnection(id, 0, nil)
	}
	if n := len(m.byID); n != maxGone || m.gone.Len() != maxGone {
		t.Errorf("%d are remembered, %d of them gone; want %d", n, m.gone.Len(), maxGone)
	}
	for who := range m.gone.All() {
		who.since = now.Add(-2 * goneTime)
	}
	there, back := wire.NewID(), m.gone.Front().id
	m.addConnection(there)
	m.addConnection(back)
	last := wire.NewID()
	m.addConnection(last)
	m.removeConnection(last, 0, nil)
	if n := len(m.byID); n != 3 {
		t.Errorf("after a long time %d are remembered, want those with a connection and the last", n)
	}
}

// The order numbers of a batch rise or are all 0: otherwise the first and the last one
// would not tell the ones between them.
func TestNumberOrder(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ in, want []uint64 }{
		{[]uint64{0, 0, 0}, []uint64{0, 0, 0}},
		{[]uint64{1, 2, 5}, []uint64{1, 2, 5}},
		{[]uint64{0, 1, 0}, []uint64{0, 0}},
		{[]uint64{5, 0, 5, 4, 6, 1 << 63, 1<<64 - 1, 0}, []uint64{5, 6, 1 << 63, 1<<64 - 1}},
	} {
		var o numberOrder
		var got []uint64
		for _, n := range test.in {
			if o.next(n) {
				got = append(got, n)
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("of %d %d are in order, want %d", test.in, got, test.want)
		}
	}
}

// The refusals kept for a client that does not read them are bounded: beyond the
// bound the client is disconnected, and the memory is given back.
func TestReportsToAClientAreBounded(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	router, err := sockets.NewRouter(sockets.Options{SendHWM: -1, SendHWMBytes: 1 << 10, SendBuffer: 4 << 10, Monitor: func(e sockets.Event) {
		if e.Kind == sockets.EventDisconnected {
			close(gone)
		}
	}})
	must(t, err)
	must(t, router.Bind(t.Context(), "tcp://127.0.0.1:*"))
	dealer, err := sockets.NewDealer(sockets.Options{
		RecvHWM: 1, RecvHWMBytes: 1, RecvBuffer: 4 << 10, ReconnectInterval: -1, Linger: sockets.LingerNone,
	})
	must(t, err)
	must(t, dealer.Connect(router.LastEndpoint()))
	must(t, dealer.Send(t.Context(), []byte("hello")))
	var b sockets.Batch
	must(t, router.RecvBatch(t.Context(), &b))
	peer := b.Peer()
	b.Release()

	notifier := newNotifier(router, nil, time.Minute)
	n := refusalNotice{peer: peer, messages: 1000}
	for range n.messages {
		n.wire = wire.AppendRefusal(n.wire, make([]byte, kvmsg.UUIDSize), kvmsg.ReasonMapFull)
	}
	owed := func() int {
		notifier.mu.Lock()
		defer notifier.mu.Unlock()
		return notifier.bytes
	}
	// The kernel takes some megabytes on loopback as well.
	for i := 0; i < 10_000; i++ {
		select {
		case <-gone:
			i = 10_000
		default:
			notifier.notify(&n)
			if got := owed(); got > maxPending+len(n.wire)+notifyPortion*30 {
				t.Fatalf("%d bytes are kept", got)
			}
		}
	}
	<-gone            // the client is disconnected
	for owed() != 0 { // soon nothing is kept any more
		runtime.Gosched()
	}
	notifier.close()
	must(t, router.Close())
	must(t, dealer.Close())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
