package chp

import (
	"fmt"
	"testing"
)

// TestStaleRead: what docs/CONSISTENCY.md says of stale reads. What the server publishes is held
// back from one of two clients.
func TestStaleRead(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	server := startServer(t, ServerOptions{})
	alice := startClient(t, server, ClientOptions{})
	proxies, address := newProxies(t, server.Endpoints())
	bob, err := NewClient(ClientOptions{Servers: []string{address}, HeartbeatTimeout: hang, SyncTimeout: hang})
	must(t, err)
	t.Cleanup(func() { must(t, bob.Close()) })
	_, err = alice.SetSync(ctx, "/door", []byte("open"))
	must(t, err)
	must(t, bob.Sync(ctx))
	delay := func() { proxies[1].each((*link).hold) }
	deliver := func() { proxies[1].each((*link).release) }

	delay() // what is on its way to Bob
	seq, err := alice.SetSync(ctx, "/door", []byte("locked"))
	stale, _ := bob.Get("/door")
	fmt.Println(string(stale), err) // open <nil>
	go deliver()
	now, _, err := bob.GetSync(ctx, "/door")
	fmt.Println(string(now), err) // locked <nil>

	if string(stale) != "open" || string(now) != "locked" || err != nil {
		t.Errorf("%s, then %s, %v", stale, now, err)
	}

	err = bob.WaitFor(ctx, seq) // Alice has told him
	told, _ := bob.Get("/door")
	fmt.Println(string(told), err) // locked <nil>

	if string(told) != "locked" || err != nil {
		t.Errorf("%s, %v", told, err)
	}
}
