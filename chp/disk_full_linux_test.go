package chp

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"

	"clustermap/chp/commit"
	"clustermap/internal/tmpfs"
)

// policies returns those to test with: only the default one in a short run, since all take
// the same way.
func policies() []commit.Policy {
	if testing.Short() {
		return []commit.Policy{{}}
	}
	return []commit.Policy{commit.Always(), {}, commit.Never()}
}

// Updates that were acknowledged before the disk was full are there after a restart, with
// every policy.
func TestFullDiskKeepsAcknowledgedUpdates(t *testing.T) {
	t.Parallel()
	for _, policy := range policies() {
		t.Run(policy.String(), func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			root := tmpfs.Mount(t, "size=45m")
			s, err := NewServer(ServerOptions{Log: openLog(t, root+"/data"), Sync: policy, Logger: quiet()})
			must(t, err)
			served := make(chan error, 1)
			go func() { served <- s.Serve(ctx) }()
			<-s.Ready()
			const writers, batch = 3, 50
			var acknowledged [writers]int
			var writing sync.WaitGroup
			for w := range writers {
				c := startClient(t, s, ClientOptions{})
				writing.Go(func() {
					var b Batch
					for n := 0; ; n += batch {
						b.Reset()
						for i := range batch {
							b.Set(fmt.Sprintf("/%d/%d", w, n+i), make([]byte, 1000))
						}
						if _, err := c.ApplySync(ctx, &b); err != nil {
							return
						}
						acknowledged[w] = n + batch
					}
				})
				defer c.Close()
				go func() {
					<-s.ended
					c.Close() // it would wait for the server to come back
				}()
			}
			if err := <-served; !errors.Is(err, commit.ErrFull) {
				t.Errorf("Serve returned %v", err)
			}
			writing.Wait()
			// A server that could store nothing is not ready.
			full := openLog(t, root+"/data")
			if _, err := NewServer(ServerOptions{Log: full, Sync: policy, Logger: quiet()}); !errors.Is(err, commit.ErrFull) {
				t.Errorf("a server on a full disk: %v", err)
			}
			_ = full.Close()
			tmpfs.Remount(t, root, "size=100m")
			again, err := NewServer(ServerOptions{Log: openLog(t, root+"/data"), Logger: quiet()})
			must(t, err)
			for w, n := range acknowledged {
				if n == 0 {
					t.Errorf("writer %d was acknowledged nothing", w)
				}
				for i := range n {
					if _, ok := again.Get(fmt.Sprintf("/%d/%d", w, i)); !ok {
						t.Errorf("update %d of %d of writer %d is missing", i, n, w)
						break
					}
				}
			}
			must(t, again.Close())
		})
	}
}

// A disk that has room for a map and a part of its log is enough, with every policy: a server
// that has filled it with its log makes room when it starts again, by a checkpoint.
func TestSmallDiskIsEnoughForSmallMap(t *testing.T) {
	t.Parallel()
	for _, policy := range policies() {
		t.Run(policy.String(), func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			root := tmpfs.Mount(t, "size=60m")
			stored := byte(0)
			for start := range 4 {
				s, err := NewServer(ServerOptions{Log: openLog(t, root+"/data"), Sync: policy, Logger: quiet()})
				must(t, err)
				if value, _ := s.Get("/9"); start > 0 && (len(value) == 0 || value[0] != stored && value[0] != stored+1) {
					t.Errorf("start %d: the last value is not there", start)
				}
				served := make(chan error, 1)
				go func() { served <- s.Serve(ctx) }()
				<-s.Ready()
				c := startClient(t, s, ClientOptions{})
				go func() {
					<-s.ended
					c.Close() // it would wait for the server to come back
				}()
				updates := 0
				for {
					var b Batch
					for i := range 10 {
						b.Set(fmt.Sprintf("/%d", i), bytes.Repeat([]byte{byte(updates)}, 50_000))
					}
					if _, err := c.ApplySync(ctx, &b); err != nil {
						break
					}
					stored = byte(updates)
					updates++
				}
				if err := <-served; !errors.Is(err, commit.ErrFull) {
					t.Errorf("start %d: Serve returned %v", start, err)
				}
				if updates == 0 {
					t.Fatalf("start %d: nothing was stored", start)
				}
			}
		})
	}
}
