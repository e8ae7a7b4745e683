package majordomo

import (
	"fmt"
	"testing"
	"unsafe"

	"clustermap/sockets"
)

// TestSmallRequestsCount: what a request occupies besides its bytes counts, so that requests
// without a body are as bounded as others, however many services they are for.
func TestSmallRequestsCount(t *testing.T) {
	t.Parallel()
	const most, services, n = 1 << 20, 1000, 20_000
	o := lasting
	o.MaxBytes = most
	b, endpoint := startBroker(t, o)
	r := newRaw(t, endpoint, sockets.Options{})
	for i := range n {
		r.request(fmt.Sprint("service ", i%services), "")
	}
	eventually(t, "all were judged", func() bool { return b.Stats().Requests == n })
	b.mu.Lock()
	defer b.mu.Unlock()
	waiting, occupied := 0, 0
	for j := range b.backlog.deadlines.All() {
		waiting++
		occupied += int(unsafe.Sizeof(*j)) + cap(j.data)
	}
	for key, l := range b.backlog.lanes {
		occupied += int(unsafe.Sizeof(key)+unsafe.Sizeof(l)) + int(unsafe.Sizeof(*l))
	}
	if waiting < 100 || occupied > most {
		t.Errorf("%d requests wait and occupy %d bytes, bound %d", waiting, occupied, most)
	}
	if b.backlog.bytes < occupied {
		t.Errorf("%d bytes are occupied, and %d count", occupied, b.backlog.bytes)
	}
}

// TestClientsLeaveRoomInTheBroker: neither a connection nor a client with many connections
// fills the broker with requests for services without workers, so that those of others, for
// which a worker is idle, were refused.
func TestClientsLeaveRoomInTheBroker(t *testing.T) {
	t.Parallel()
	const size = 1000 + jobCost
	o, err := BrokerOptions{MaxBytes: 1000 * size}.withDefaults()
	must(t, err)
	b := backlog{opts: &o, lanes: map[laneKey]*lane{}, accounts: map[any]*account{}}
	connect := func(key any) *conn {
		c := new(conn)
		b.join(c, key)
		return c
	}
	fill := func(c *conn) (n int) {
		for s := new(service); b.hasRoom(c, s, size); n++ {
			b.wait(b.newJob(c, s, &packet{body: make([]byte, 1000)}, 0), false)
			s = new(service)
		}
		return n
	}
	if n := fill(connect("one")); n != 500 {
		t.Errorf("one connection has %d requests of 1000", n)
	}
	greedy := 500
	for range 100 {
		greedy += fill(connect("one"))
	}
	if greedy != 875 {
		t.Errorf("one client has %d requests of 1000", greedy)
	}
	other := connect("other")
	if n := fill(other); n != 62 {
		t.Errorf("another client has %d requests of the 125 that are free", n)
	}
	for l := other.lanes.Front(); l != nil; l = other.lanes.Front() {
		j := l.jobs.Front()
		b.unwait(j)
		b.drop(j)
	}
	b.leave(other)
	if a := other.account; a.bytes != 0 || other.bytes != 0 || len(b.accounts) != 1 || b.bytes != greedy*size {
		t.Errorf("%d bytes of a client that has gone, %d clients, %d bytes of all", a.bytes, len(b.accounts), b.bytes)
	}
}
