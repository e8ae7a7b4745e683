package chp

import (
	"strings"
	"testing"
)

// TestPairFollowsOnlyTheServerThatItHears: a server of which one address of the other one is
// wrong, and leads to the active server of another pair with the same keys, does not take over
// that one's map. It says so, and follows once the address is right.
func TestPairFollowsOnlyTheServerThatItHears(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	po, bo := pairOptions(t)
	security := withKeys(&po, &bo)
	foreign, other := pairOptions(t)
	foreign.Security, foreign.Pair.PeerSecurity = po.Security, po.Pair.PeerSecurity
	for server, o := range map[string]ServerOptions{bo.Pair.Peer: po, other.Pair.Peer: foreign} {
		startAlone(t, o)
		c, err := NewClient(ClientOptions{Servers: []string{server}, Security: security, HeartbeatTimeout: hang, SyncTimeout: hang, Logger: quiet()})
		must(t, err)
		defer c.Close()
		_, err = c.SetSync(ctx, "/of", []byte(o.Host))
		must(t, err)
	}

	var said lockedLog
	misled := bo
	pair := *bo.Pair
	pair.Peer, misled.Pair, misled.Logger = other.Pair.Peer, &pair, said.logger()
	backup := startPairServer(t, misled)
	eventually(t, "it says that it does not follow", func() bool {
		if v, ok := backup.Get("/of"); ok {
			t.Fatalf("it has the map of %s", v)
		}
		return strings.Contains(said.String(), "is not the one whose state is heard")
	})
	backup.stop()

	backup = startPairServer(t, bo)
	eventually(t, "it follows", func() bool { v, _ := backup.Get("/of"); return string(v) == po.Host })
}
