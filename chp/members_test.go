package chp

import (
	"testing"

	"clustermap/chp/internal/wire"
	"clustermap/sockets"
)

// A client's session dials the collectors of the servers that it does not follow
// again by itself. Updates that the earlier connection delivers late are refused there
// too.
func TestFormerConnectionOfTheSameSession(t *testing.T) {
	t.Parallel()
	server := startServer(t, ServerOptions{})
	c := newPlainClient(t, server)
	id := wire.NewID()
	connect := func() *sockets.Pub {
		p, err := sockets.NewPub(sockets.Options{
			Metadata:   map[string]string{"X-CHP-Client": id, "X-CHP-Generation": "1"},
			FullPolicy: sockets.PolicyBlock, WaitSubscriber: true, Linger: hang,
		})
		must(t, err)
		t.Cleanup(func() { p.Close() })
		must(t, p.Connect(server.Endpoints().Collector))
		return p
	}
	send := func(p *sockets.Pub, value string) {
		must(t, p.Send(c.ctx, []byte("k"), make([]byte, 8), nil, nil, []byte(value)))
	}
	expect := func(value string) {
		if m := c.next(); m.value != value {
			t.Fatalf("got %v, want %s", m, value)
		}
	}
	former := connect()
	send(former, "1")
	expect("1")
	later := connect()
	send(former, "2") // nothing has come over the later one
	expect("2")
	send(later, "3")
	expect("3")
	send(former, "late")
	eventually(t, "the late update is refused", func() bool { return server.Stats().Refused[ReasonFormerConnection] == 1 })
	must(t, former.Close())
	send(later, "4")
	expect("4")
}
