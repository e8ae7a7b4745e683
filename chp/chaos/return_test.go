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
// backup, which has served on. So both serve, in reigns of one number. When they hear
// each other the backup continues: nothing that it has acknowledged is lost, whether
// clients have written to the primary meanwhile or not.
func TestReturn(t *testing.T) {
	t.Parallel()
	for _, written := range []bool{false, true} {
		t.Run(fmt.Sprintf("written=%v", written), func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), *convergence)
			defer cancel()
			command(t)
			c := &cluster{t: t, shape: shape{name: "return", pair: true, data: true}, history: &history{begin: time.Now()}, dir: t.TempDir()}
			c.startServers(ctx)
			primary, backup := c.servers[0], c.servers[1]
			both := connected(t, primary, backup)
			set := func(client *chp.Client, key string) {
				t.Helper()
				if _, err := client.SetSync(ctx, key, []byte("v")); err != nil {
					t.Fatal(err)
				}
			}
			set(both, "/before")
			if !c.settled(ctx) {
				t.Fatal(c.history.broken)
			}
			primary.kill()
			for i := range 20 {
				set(both, fmt.Sprintf("/acknowledged/%d", i))
			}
			for _, link := range c.between {
				link.refuse(1)
				link.each((*pipe).reset)
			}
			if err := primary.start(ctx); err != nil {
				t.Fatal(err)
			}
			alone := connected(t, primary)
			if err := alone.WaitActive(ctx); err != nil {
				t.Fatal(err)
			}
			if written {
				set(alone, "/discarded")
			}
			for _, link := range c.between {
				link.refuse(-1)
			}
			if !c.settled(ctx) {
				t.Fatal(c.history.broken)
			}
			for _, s := range c.servers {
				status, err := chp.ServerStatus(ctx, s.address(), sockets.Security{})
				if err != nil || status.State == chp.ServerActive != (s == backup) {
					t.Errorf("%s: %+v, %v", s.name, status, err)
				}
			}
			after := connected(t, primary, backup)
			if err := after.WaitActive(ctx); err != nil {
				t.Fatal(err)
			}
			if n := after.Len(); n != 21 {
				t.Errorf("%d keys, want 21", n)
			}
			for i := range 20 {
				key := fmt.Sprintf("/acknowledged/%d", i)
				if _, ok := after.Get(key); !ok {
					t.Errorf("%s is lost", key)
				}
			}
			discarded, err := os.ReadFile(filepath.Join(c.dir, "primary.diverged"))
			if written != strings.Contains(string(discarded), "/discarded") {
				t.Errorf("the primary reports %q, %v", discarded, err)
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
