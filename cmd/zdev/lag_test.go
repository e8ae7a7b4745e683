package main

import (
	"sync/atomic"
	"testing"
	"time"

	"clustermap/internal/command"
	"clustermap/internal/commandtest"
	"clustermap/patterns/snail"
	"clustermap/sockets"
)

// stamping starts a publisher that sends a stamp every millisecond until the test ends,
// with a clock that is late by the given time.
type stamping struct {
	endpoint string
	late     atomic.Int64
}

func newStamping(t *testing.T) *stamping {
	t.Helper()
	ctx := testContext(t)
	pub, err := sockets.NewPub(sockets.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := pub.Bind(ctx, "tcp://127.0.0.1:*"); err != nil {
		t.Fatal(err)
	}
	s := &stamping{endpoint: pub.LastEndpoint()}
	out := snail.NewPublisher(pub, snail.PublisherOptions{
		Sequence: true, Now: func() time.Time { return time.Now().Add(-time.Duration(s.late.Load())) },
	})
	ended, sending := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(sending)
		for {
			select {
			case <-ended:
				return
			case <-time.After(time.Millisecond):
				_ = out.Send(ctx, []byte("topic"))
			}
		}
	}()
	t.Cleanup(func() {
		close(ended)
		<-sending
		pub.Close()
	})
	return s
}

// TestLag: the command prints statistics; a message that is too old ends it with exit
// code 4.
func TestLag(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"--unsynchronised", "--topic", "topic"}} {
		s := newStamping(t)
		p := zdev.Start(t, append([]string{"lag", "--connect", s.endpoint, "--max", "30m", "--sequence", "--stats", "20ms", "--json"}, args...)...)
		if at := p.Ready(); len(at) != 1 || at[0] != s.endpoint {
			t.Fatalf("ready at %q", at)
		}
		for {
			line := commandtest.Object(t, p.Line())
			if line["messages"].(float64) > 0 {
				if line["missed"] != 0.0 || line["malformed"] != 0.0 || line["largest"].(float64) < line["smallest"].(float64) {
					t.Errorf("%v", line)
				}
				break
			}
		}
		s.late.Store(int64(time.Hour))
		go func() {
			for { // its figures are to be read
				if _, err := p.Stdout.ReadByte(); err != nil {
					return
				}
			}
		}()
		if code := p.Wait(); code != exitLagged {
			t.Errorf("exit code %d: %s", code, p.Stderr.String())
		}
		p.Await(`zdev: the subscriber is (1h|59m59\.).* behind; at most 30m0s is allowed`)
	}
}

// TestLagEnds: the command ends without an error after a signal, and with one after
// --timeout without a message.
func TestLagEnds(t *testing.T) {
	t.Parallel()
	s := newStamping(t)
	p := zdev.Start(t, "lag", "--connect", s.endpoint, "--max", "1h")
	p.Ready()
	endsWell(t, p)
	zdev.Try(t, "lag", "--connect", "tcp://127.0.0.1:1", "--timeout", "50ms").Expect(t, command.ExitNoAnswer, "no message in 50ms")
}

// TestLagFigures: the message that --timeout waits for counts, and a line without
// messages has no delays.
func TestLagFigures(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	pub, err := sockets.NewPub(sockets.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pub.Close() })
	if err := pub.Bind(ctx, "tcp://127.0.0.1:*"); err != nil {
		t.Fatal(err)
	}
	p := zdev.Start(t, "lag", "--connect", pub.LastEndpoint(), "--max", "1h", "--stats", "20ms", "--json", "--timeout", "1h")
	p.Ready()
	if err := pub.WaitSubscribers(ctx, "", 1); err != nil {
		t.Fatal(err)
	}
	if err := snail.NewPublisher(pub, snail.PublisherOptions{}).Send(ctx, []byte("topic")); err != nil {
		t.Fatal(err)
	}
	line := commandtest.Object(t, p.Line())
	if line["messages"] != 1.0 || line["smallest"] != line["largest"] || line["mean"] != line["largest"] || line["mean"] == nil {
		t.Errorf("%v", line)
	}
	line = commandtest.Object(t, p.Line())
	if len(line) != 3 || line["messages"] != 0.0 || line["malformed"] != 0.0 || line["missed"] != 0.0 {
		t.Errorf("%v", line)
	}
	endsWell(t, p)

	p = zdev.Start(t, "lag", "--connect", pub.LastEndpoint(), "--stats", "20ms")
	p.Ready()
	if line := p.Line(); line != "0 messages, 0 malformed, 0 missed" {
		t.Errorf("%q", line)
	}
	endsWell(t, p)
}

func TestLagUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"lag"},
		{"lag", "--connect", "nonsense"},
		{"lag", "--connect", "tcp://127.0.0.1:1", "--max", "0s"},
		{"lag", "--connect", "tcp://127.0.0.1:1", "--stats", "-1s"},
		{"lag", "--connect", "tcp://127.0.0.1:1", "--json"},
		{"lag", "--connect", "tcp://127.0.0.1:1", "--max-missed", "7"},
		{"lag", "--connect", "tcp://127.0.0.1:1", "--connect", "tcp://127.0.0.1:2", "--sequence"},
	} {
		zdev.Try(t, args...).Expect(t, command.ExitUsage, "zdev: ")
	}
}
