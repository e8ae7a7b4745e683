//go:build unix

package chaos

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"clustermap/chp"
	"clustermap/sockets"
)

// TestReturn: a primary is killed, restarts with its old data, and does not hear the
// backup, which has taken over and has acknowledged updates. The backup continues when they
// hear each other, whether it has served on, or was killed too and restarts last: nothing
// that it has acknowledged is lost.
func TestReturn(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name          string
		ended         bool // the backup is killed too
		written       bool // the primary accepts an update
		continues     int  // the server that is active in the end
		keys          int
		reports, lost string // the server that discards an update, and its key
	}{
		{"served on", false, false, 1, 21, "", ""},
		{"served on, primary written", false, true, 1, 21, "primary", "/written"},
		{"killed", true, false, 1, 21, "", ""},
		{"killed, primary written", true, true, 1, 21, "primary", "/written"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), *convergence)
			defer cancel()
			command(t)
			pair := &cluster{t: t, shape: shape{name: "return", pair: true, data: true}, history: &history{begin: time.Now()}, dir: t.TempDir()}
			pair.startServers(ctx)
			primary, backup := pair.servers[0], pair.servers[1]
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			set := func(client *chp.Client, key string) {
				t.Helper()
				_, err := client.SetSync(ctx, key, []byte("v"))
				must(err)
			}
			both := connected(t, primary, backup)
			set(both, "/before")
			if !pair.settled(ctx) {
				t.Fatal(pair.history.broken)
			}
			primary.kill()
			for i := range 20 {
				set(both, fmt.Sprintf("/acknowledged/%d", i))
			}
			both.Close()
			if c.ended {
				backup.kill()
			}
			for _, link := range pair.between {
				link.refuse(1)
				link.each((*pipe).reset)
			}
			must(primary.start(ctx))
			alone := connected(t, primary)
			must(alone.WaitActive(ctx))
			if c.written {
				set(alone, "/written")
			}
			for _, link := range pair.between {
				link.refuse(-1)
			}
			must(backup.start(ctx))
			if !pair.settled(ctx) {
				t.Fatal(pair.history.broken)
			}
			for i, s := range pair.servers {
				status, err := chp.ServerStatus(ctx, s.address(), sockets.Security{})
				if err != nil || (status.State == chp.ServerActive) != (i == c.continues) {
					t.Errorf("%s: %+v, %v", s.name, status, err)
				}
			}
			after := connected(t, primary, backup)
			must(after.WaitActive(ctx))
			if n := after.Len(); n != c.keys {
				t.Errorf("%d keys, want %d", n, c.keys)
			}
			for _, s := range pair.servers {
				discarded, err := os.ReadFile(filepath.Join(pair.dir, s.name+".diverged"))
				if s.name == c.reports && !strings.Contains(string(discarded), c.lost) || s.name != c.reports && len(discarded) > 0 {
					t.Errorf("the %s reports %q, %v", s.name, discarded, err)
				}
			}
		})
	}
}

// connected returns a client of some servers.
func connected(t *testing.T, servers ...*server) *chp.Client {
	t.Helper()
	var addresses []string
	for _, s := range servers {
		addresses = append(addresses, s.address())
	}
	c, err := chp.NewClient(chp.ClientOptions{Servers: addresses, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}
