//go:build unix

package bench

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"clustermap/chp"
)

// setterServers is the variable of the environment that has a process of this test
// program set a key instead of testing: the endpoints of the servers. The last word is
// the time that it waits between two updates.
const setterServers = "CLUSTERMAP_BENCH_SETTER"

func TestMain(m *testing.M) {
	// The benchmarks report errors themselves. A line of a log would come between the name
	// and the figures of a result, and benchstat would skip that result.
	slog.SetDefault(slog.New(slog.DiscardHandler))
	if text := os.Getenv(setterServers); text != "" {
		os.Exit(runSetter(strings.Fields(text)))
	}
	if endpoint := os.Getenv(joinServer); endpoint != "" {
		os.Exit(runJoiner(endpoint))
	}
	if text := os.Getenv(otherEnd); text != "" {
		os.Exit(runOtherEnd(text))
	}
	if text := os.Getenv(fanRole); text != "" {
		os.Exit(runFan(text))
	}
	os.Exit(m.Run())
}

// runSetter calls SetSync, one after the other, and prints for each that has returned the
// server, the value and the time, until it is killed.
func runSetter(args []string) int {
	wait, err := time.ParseDuration(args[len(args)-1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	client, err := chp.NewClient(chp.ClientOptions{Servers: args[:len(args)-1]})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for i := 0; ; i++ {
		if _, err := client.SetSync(context.Background(), setterKey, strconv.AppendInt(nil, int64(i), 10)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		fmt.Println(client.Server(), i, time.Now().UnixNano())
		time.Sleep(wait)
	}
}

// startSetterProcess is startSetter with a process of its own, which gets its share of
// the processor with any number of replicas in this one.
func startSetterProcess(tb testing.TB, c *cluster, wait time.Duration) *setter {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	tb.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %v", setterServers, strings.Join(c.endpoints(), " "), wait))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	s := &setter{tb: tb, acks: make(chan acked), stop: cancel}
	s.done.Go(func() {
		defer close(s.acks)
		for last, lines := time.Now(), bufio.NewScanner(out); lines.Scan(); {
			var server string
			var nanoseconds int64
			if _, err := fmt.Sscan(lines.Text(), &server, &s.last, &nanoseconds); err != nil {
				tb.Errorf("the setter says %q: %v", lines.Text(), err)
			}
			now := time.Unix(0, nanoseconds)
			select {
			case s.acks <- acked{now, server, now.Sub(last)}:
			case <-ctx.Done():
			}
			last = now
		}
		if err := cmd.Wait(); ctx.Err() == nil {
			tb.Errorf("the setter has ended: %v", err)
		}
	})
	return s
}
