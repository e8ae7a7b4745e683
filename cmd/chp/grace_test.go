package main

import (
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"clustermap/chp"
	"clustermap/chp/commit"
	"clustermap/chp/durable"
	"clustermap/internal/testenv"
)

// older copies a server's log to another directory, as it would be had the server been down
// for the given time. It has no checkpoint yet.
func older(t *testing.T, dir string, age time.Duration) string {
	t.Helper()
	aged := filepath.Join(t.TempDir(), "map")
	from, err := durable.Open(dir, durable.Options{})
	testenv.Must(t, err)
	to, err := durable.Open(aged, durable.Options{})
	testenv.Must(t, err)
	_, err = to.Replay(func(commit.Entry) error { return nil })
	testenv.Must(t, err)
	_, err = from.Replay(func(e commit.Entry) error {
		e.Time -= int64(age)
		return to.Append(e)
	})
	testenv.Must(t, err)
	testenv.Must(t, from.Close())
	testenv.Must(t, to.Close())
	return aged
}

// No key of a lease is lost when a server is killed and the next one comes after the end of the
// times to live, nor any other with a grace.
func TestServeExpiryGrace(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		grace string
		stays bool
	}{{"1h", true}, {"0", false}} {
		t.Run(test.grace, func(t *testing.T) {
			t.Parallel()
			const leases = 100
			dir := filepath.Join(t.TempDir(), "map")
			s := serveApart(t, "--port", "5556", "--data", dir, "--sync", "always") // it is killed
			ctx := testenv.Context(t)
			c, err := chp.NewClient(chp.ClientOptions{Servers: []string{s.endpoint}, HeartbeatTimeout: testenv.Hang, SyncTimeout: testenv.Hang})
			testenv.Must(t, err)
			defer c.Close()
			for i := range leases {
				_, err := c.KeepAlive(ctx, fmt.Sprintf("/services/%d", i), []byte("here"), time.Hour)
				testenv.Must(t, err)
			}
			must(t, "set", "/orphan", "1", "--ttl", "1h", "--server", s.endpoint)
			testenv.Eventually(t, "the client has the key", func() bool { _, ok := c.Get("/orphan"); return ok })
			w, err := c.Watch()
			testenv.Must(t, err)
			defer w.Close()
			s.signal(syscall.SIGKILL)
			s.wait()
			serve(t, "--host", s.host(), "--port", "5556", "--data", older(t, dir, 2*time.Hour), "--expiry-grace", test.grace)
			last, err := c.SetSync(ctx, "/last", []byte("1"))
			testenv.Must(t, err)
			gone := map[string]bool{}
			for seen := int64(0); seen < last || !test.stays && !gone["/orphan"]; {
				e, err := w.Next(ctx)
				testenv.Must(t, err)
				if seen = max(seen, e.Sequence); e.Op == chp.OpDelete {
					gone[string(e.Key)] = true
				}
			}
			if delete(gone, "/orphan"); len(gone) > 0 {
				t.Errorf("gone: %v", gone)
			}
			if _, ok := c.Get("/orphan"); ok != test.stays {
				t.Errorf("there is a key without an owner: %v", ok)
			}
		})
	}
	try(t, "serve", "--expiry-grace", "-1s").expect(t, exitUsage, "--expiry-grace -1s: must be positive, or 0 for none")
}
