package recipes

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"clustermap/chp"
	"clustermap/internal/loopback"
	"clustermap/internal/testenv"
	"clustermap/sockets"
)

// holder is a program that waits for a lock, and writes its token with each line of standard input, without
// asking whether it still holds it. With the line unlock it gives it back.
func holder() int {
	var o holderOptions
	if err := json.Unmarshal([]byte(os.Getenv(holderVariable)), &o); err != nil {
		panic(err)
	}
	c, err := chp.NewClient(chp.ClientOptions{Servers: o.Servers, Subtrees: []string{"/l/"}, Logger: quiet()})
	if err != nil {
		panic(err)
	}
	m, err := NewMutex(c, "/l/m", Options{TTL: o.TTL})
	if err != nil {
		panic(err)
	}
	fmt.Println("waits")
	l, err := m.Lock(context.Background())
	if err != nil {
		panic(err)
	}
	fmt.Println("held", l.Token())
	go func() {
		<-l.Done()
		fmt.Println("lost", l.Err())
	}()
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		if in.Text() == "unlock" {
			if err := l.Unlock(context.Background()); err != nil {
				panic(err)
			}
			continue
		}
		fmt.Println("write", l.Token())
	}
	return 0
}

// process is a holder.
type process struct{ *testenv.Child }

func startHolder(t *testing.T, ttl time.Duration, servers ...string) process {
	t.Helper()
	b, err := json.Marshal(holderOptions{servers, ttl})
	must(t, err)
	p := process{testenv.StartChild(t, holderVariable, string(b))}
	p.expect(t, "waits")
	return p
}

// expect reads a line, and returns the number in it.
func (p *process) expect(t *testing.T, format string) (n int64) {
	t.Helper()
	line := p.Line()
	if format != line {
		if _, err := fmt.Sscanf(line, format, &n); err != nil {
			t.Fatalf("%q, want %q", line, format)
		}
	}
	return n
}

// write makes the holder write to a resource.
func (p *process) write(t *testing.T, to *resource) bool {
	t.Helper()
	fmt.Fprintln(p.In)
	return to.write(p.expect(t, "write %d"))
}

// resource is something outside of the map that checks tokens.
type resource struct{ newest int64 }

func (r *resource) write(token int64) bool {
	if token < r.newest {
		return false
	}
	r.newest = token
	return true
}

// A holder that is killed loses the lock to the next one when its time to live has ended.
func TestKilledHolder(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	var at resource
	a := startHolder(t, 4*time.Second, s.Endpoints().Snapshot)
	first := a.expect(t, "held %d")
	b := startHolder(t, 4*time.Second, s.Endpoints().Snapshot)
	if !a.write(t, &at) {
		t.Error("the holder cannot write")
	}
	a.Kill()
	if second := b.expect(t, "held %d"); second <= first {
		t.Errorf("token %d after %d", second, first)
	}
	if !b.write(t, &at) {
		t.Error("the next holder cannot write")
	}
}

// A holder that stood still finds that it has lost the lock, and what it writes before it knows that
// is rejected by its token.
func TestHolderStandsStill(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	var at resource
	a := startHolder(t, 4*time.Second, s.Endpoints().Snapshot)
	first := a.expect(t, "held %d")
	b := startHolder(t, 4*time.Second, s.Endpoints().Snapshot)
	if !a.write(t, &at) {
		t.Error("the holder cannot write")
	}
	resume := a.Suspend()
	if second := b.expect(t, "held %d"); second <= first {
		t.Errorf("token %d after %d", second, first)
	}
	if !b.write(t, &at) {
		t.Error("the next holder cannot write")
	}
	fmt.Fprintln(a.In) // the first thing that it does
	resume()
	lost, written := false, false
	for !lost || !written {
		switch line := a.Line(); line {
		case "lost " + ErrLost.Error():
			lost = true
		case fmt.Sprint("write ", first):
			if written = true; at.write(first) {
				t.Error("the resource took what is stale")
			}
		default:
			t.Fatalf("it says %q", line)
		}
	}
}

// A lock outlives a failover of a pair, and those who wait still get it in their order.
func TestLockSurvivesFailover(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	host := loopback.Own()
	primary := testenv.StartChild(t, serverVariable, "primary "+host)
	testenv.StartChild(t, serverVariable, "backup "+host)
	servers := []string{endpoint(host, primaryPort), endpoint(host, backupPort)}
	const ttl = 30 * time.Second
	a := startHolder(t, ttl, servers...)
	first := a.expect(t, "held %d")
	b := startHolder(t, ttl, servers...)
	eventually(t, "both servers have all", func() bool {
		s, err := chp.ServerStatus(ctx, servers[0], sockets.Security{})
		return err == nil && s.InSync && s.Keys == 4 // a lease and a place of each
	})
	primary.Kill()
	c := startHolder(t, ttl, servers...)
	eventually(t, "all are at the other server", func() bool {
		s, err := chp.ServerStatus(ctx, servers[1], sockets.Security{})
		return err == nil && s.Keys == 6
	})
	var to resource
	if !a.write(t, &to) {
		t.Error("the holder cannot write")
	}
	fmt.Fprintln(a.In, "unlock")
	second := b.expect(t, "held %d")
	if second <= first || !b.write(t, &to) {
		t.Errorf("token %d after %d", second, first)
	}
	fmt.Fprintln(b.In, "unlock")
	if third := c.expect(t, "held %d"); third <= second || !c.write(t, &to) {
		t.Errorf("token %d after %d", third, second)
	}
}
