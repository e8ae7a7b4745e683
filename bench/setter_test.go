//go:build unix

package bench

import (
	"context"
	"log/slog"
	"os"
	"strconv"
	"testing"
	"time"

	"clustermap/chp"
	"clustermap/internal/bench/worker"
)

func TestMain(m *testing.M) {
	// The benchmarks report errors themselves. A line of a log would come between the name
	// and the figures of a result, and benchstat would skip that result.
	slog.SetDefault(slog.New(slog.DiscardHandler))
	worker.Main(map[string]worker.Role{
		"setter": worker.For(runSetter), "replica": worker.For(runJoiner), "other": worker.For(otherProcess.run), "fan": worker.For(runFan),
		"crowd": worker.For(runCrowd),
	})
	os.Exit(m.Run())
}

// setterTask is the task of a process that sets a key.
type setterTask struct {
	Servers []string
	Wait    time.Duration // between two updates
}

// ack is what it says of each update.
type ack struct {
	Server string
	Value  int
	At     int64 // nanoseconds since 1970
}

// runSetter calls SetSync, one after the other, until it is killed.
func runSetter(t setterTask, say func(any)) error {
	client, err := chp.NewClient(chp.ClientOptions{Servers: t.Servers})
	if err != nil {
		return err
	}
	for i := 0; ; i++ {
		if _, err := client.SetSync(context.Background(), setterKey, strconv.AppendInt(nil, int64(i), 10)); err != nil {
			return err
		}
		say(ack{client.Server(), i, time.Now().UnixNano()})
		time.Sleep(t.Wait)
	}
}

// startSetterProcess is startSetter with a process of its own, which gets its share of
// the processor with any number of replicas in this one.
func startSetterProcess(tb testing.TB, c *cluster, wait time.Duration) *setter {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	tb.Cleanup(cancel)
	w, err := worker.Start(ctx, "setter", setterTask{c.endpoints(), wait})
	if err != nil {
		tb.Fatal(err)
	}
	s := &setter{tb: tb, acks: make(chan acked), stop: cancel}
	s.done.Go(func() {
		defer close(s.acks)
		defer w.Stop()
		for last := time.Now(); ; {
			var a ack
			if err := w.Next(&a); err != nil {
				if ctx.Err() == nil {
					tb.Error(err)
				}
				return
			}
			s.last = a.Value
			now := time.Unix(0, a.At)
			select {
			case s.acks <- acked{now, a.Server, now.Sub(last)}:
			case <-ctx.Done():
			}
			last = now
		}
	})
	return s
}
