package chp

import (
	"errors"
	"testing"

	"clustermap/sockets"
)

// A client connects anew before the former connection is gone, and gives up one of
// several attempts to connect. The server must tell it of refusals on the
// connection that belongs to the one the updates come from, however the others
// come and go: otherwise a SetSync waits for ever.
func TestRefusalAfterAnotherAttempt(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	server := startServer(t, ServerOptions{MaxValueSize: 1000})
	c, err := NewClient(ClientOptions{Servers: []string{server.Endpoints().Snapshot}})
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	_, err = c.SetSync(ctx, "k", []byte("1"))
	must(t, err)

	members := func() int {
		server.members.mu.Lock()
		defer server.members.mu.Unlock()
		return server.members.byID[c.ids[0]].connections
	}
	before := members()
	other, err := sockets.NewDealer(sockets.Options{Metadata: map[string]string{
		propertyCHP: announcement, propertyClient: c.ids[0], propertyGeneration: "1000",
	}})
	must(t, err)
	must(t, other.Connect(server.Endpoints().Snapshot))
	eventually(t, "the other attempt is there", func() bool { return members() == before+1 })
	forgetLimit(c)
	if _, err := c.SetSync(ctx, "k", make([]byte, 1001)); !errors.Is(err, ErrRefused) {
		t.Errorf("while the other attempt is there: %v, want ErrRefused", err)
	}
	must(t, other.Close())
	eventually(t, "the other attempt has gone", func() bool { return members() == before })
	if _, err := c.SetSync(ctx, "k", make([]byte, 1001)); !errors.Is(err, ErrRefused) {
		t.Errorf("after the other attempt has gone: %v, want ErrRefused", err)
	}
}
