package chp

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"clustermap/chp/internal/follow"
	"clustermap/internal/loopback"
	"clustermap/internal/testenv"
)

var (
	stormClients = flag.Int("storm.clients", testenv.Rounds(60), "clients of TestStorm")
	stormKeys    = flag.Int("storm.keys", 2000, "keys of TestStorm")
)

// stormVariable makes TestStormServer a server: its host, port, number of keys, and
// the prefix of their values.
const stormVariable = "CLUSTERMAP_STORM_SERVER"

// TestStormServer is the server process of TestStorm.
func TestStormServer(t *testing.T) {
	spec := os.Getenv(stormVariable)
	if spec == "" {
		t.Skip("is for TestStorm")
	}
	var host, run string
	var port, keys int
	if _, err := fmt.Sscan(spec, &host, &port, &keys, &run); err != nil {
		t.Fatal(err)
	}
	value := make([]byte, 64)
	copy(value, run)
	s, err := NewServer(ServerOptions{Host: host, Port: port, Logger: quiet(), Preload: func(yield func(Entry, error) bool) {
		for i := range keys {
			if !yield(Entry{Key: fmt.Appendf(nil, "/storm/%06d", i), Value: value}, nil) {
				return
			}
		}
	}})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // until TestStorm ends, however it does
		cancel()
	}()
	must(t, s.Listen(ctx))
	fmt.Println("port", portOf(s.Endpoints().Snapshot))
	must(t, s.Serve(ctx))
}

// stormServer starts a server process and returns its port and how to kill it.
func stormServer(t *testing.T, host string, port int, run string) (int, func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestStormServer$", "-test.timeout=10m")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %d %s", stormVariable, host, port, *stormKeys, run))
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	var killed atomic.Bool
	kill := func() {
		if killed.CompareAndSwap(false, true) {
			_ = cmd.Process.Kill() // it may have ended
			_ = cmd.Wait()         // with the error that it was killed
			_ = in.Close()
		}
	}
	t.Cleanup(kill)
	var text strings.Builder
	for lines := bufio.NewScanner(out); lines.Scan(); text.WriteString(lines.Text() + "\n") {
		if _, err := fmt.Sscanf(lines.Text(), "port %d", &port); err == nil {
			return port, kill
		}
	}
	t.Fatalf("the server process does not serve: %s", text.String())
	return 0, nil
}

// Many clients whose server is killed all come to the map of the one that takes its
// place. How many attempts they need for that is logged: each one that is given up costs
// a busy server still more. An attempt that does not end in a snapshot, and was not
// refused, was given up. For figures: -storm.clients 1000 -storm.keys 20000.
func TestStorm(t *testing.T) {
	t.Parallel()
	host := loopback.Own()
	port, kill := stormServer(t, host, 0, "first")
	var overtaken, silent, refused, others atomic.Int64
	var last atomic.Pointer[error]
	clients := make([]*Client, *stormClients)
	begun := time.Now()
	for i := range clients {
		c, err := NewClient(ClientOptions{Servers: []string{fmt.Sprintf("tcp://%s:%d", host, port)}, OnFailure: func(_ string, err error) {
			switch {
			case errors.Is(err, follow.ErrOvertaken):
				overtaken.Add(1)
			case errors.Is(err, ErrSilent):
				silent.Add(1)
			case errors.Is(err, ErrUnreachable):
				refused.Add(1)
			default:
				others.Add(1)
				last.Store(&err)
			}
		}})
		must(t, err)
		clients[i] = c
		t.Cleanup(func() { must(t, c.Close()) })
	}
	arrive := func(run string) {
		t.Helper()
		for _, c := range clients {
			eventually(t, "all clients have the map of the "+run+" server", func() bool {
				v, _ := c.Get(fmt.Sprintf("/storm/%06d", *stormKeys-1))
				return c.State() == StateActive && c.Len() == *stormKeys && strings.HasPrefix(string(v), run)
			})
		}
		var syncs uint64
		for _, c := range clients {
			syncs += c.follower.Counted.Syncs.Load()
		}
		t.Logf("%s: %d clients with %d keys after %v: %d snapshots; given up as silent %d, overtaken %d; refused %d; others %d",
			run, len(clients), *stormKeys, time.Since(begun).Round(time.Millisecond), syncs,
			silent.Load(), overtaken.Load(), refused.Load(), others.Load())
		if e := last.Load(); e != nil {
			t.Logf("the last of the others: %v", *e)
		}
	}
	arrive("first")
	kill()
	begun = time.Now()
	_, _ = stormServer(t, host, port, "second")
	arrive("second")
}
