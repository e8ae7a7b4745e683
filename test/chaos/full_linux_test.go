package chaos

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"clustermap/chp"
	"clustermap/internal/testenv"
	"clustermap/internal/tmpfs"
	"clustermap/sockets"
)

// TestClusterFullDisk shows that a node whose disk is full ends and says so, that the others go on, and that it has all
// that was acknowledged when it starts again with room.
func TestClusterFullDisk(t *testing.T) {
	t.Parallel()
	command(t)
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Hang)
	defer cancel()
	root := tmpfs.Mount(t, "size=45m") // the smallest log takes 32 MiB
	c := &cluster{t: t, shape: shape{name: "full", raft: true, data: true, keeps: true}, history: &history{}, dir: t.TempDir()}
	c.startNodes(false)
	full := c.servers[2]
	for i, arg := range full.args {
		if arg == full.dir {
			full.dir = filepath.Join(root, "data")
			full.args[i] = full.dir
			break
		}
	}
	c.startAll(ctx, c.servers)
	client := func(servers ...*server) *chp.Client {
		var all []string
		for _, s := range servers {
			all = append(all, s.address())
		}
		c, err := chp.NewClient(chp.ClientOptions{Servers: all, Logger: slog.New(slog.DiscardHandler)})
		testenv.Must(t, err)
		t.Cleanup(func() { c.Close() })
		testenv.Must(t, c.WaitActive(ctx))
		return c
	}
	writer := client(c.servers[0], c.servers[1])
	ended := func() bool {
		full.mu.Lock()
		defer full.mu.Unlock()
		return full.process == nil
	}
	var b chp.Batch
	const keys, size = 60, 1000 // less than the queue of a subscriber
	n := 0
	for ; n < 5000 && (!ended() || n%10 > 0); n++ { // some more without it
		b.Reset()
		for k := range keys {
			b.Set(fmt.Sprintf("/%d", k), fmt.Appendf(make([]byte, 0, size), "%d %0900d", n, k))
		}
		_, err := writer.ApplySync(ctx, &b)
		testenv.Must(t, err)
	}
	if !ended() {
		t.Fatalf("it goes on after %d MB", n*keys*size>>20)
	}
	full.mu.Lock()
	said := strings.Join(full.crashed, "\n")
	full.crashed = nil
	full.mu.Unlock()
	if !strings.Contains(said, "disk full") {
		t.Errorf("it says %q", said)
	}
	tmpfs.Remount(t, root, "size=200m")
	testenv.Must(t, full.start(ctx))
	reader := client(full)
	testenv.Must(t, reader.Sync(ctx))
	for k := range keys {
		if v, ok := reader.Get(fmt.Sprintf("/%d", k)); !ok || !strings.HasPrefix(string(v), fmt.Sprintf("%d ", n-1)) {
			t.Errorf("key %d is %.10q, want that of batch %d", k, v, n-1)
		}
	}
	for _, s := range c.servers {
		st, err := chp.ServerStatus(ctx, s.address(), sockets.Security{})
		if err != nil || st.Cluster == nil || len(s.crashed) > 0 {
			t.Errorf("%s: %+v, %v, %q", s.name, st, err, s.crashed)
		}
	}
}
