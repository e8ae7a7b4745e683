package metrics_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"clustermap/internal/testenv"
	"clustermap/sockets"
	"clustermap/sockets/metrics"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// expect waits until a metric of a socket has a value.
func expect(t *testing.T, r *prometheus.Registry, name, socket string, want float64) {
	t.Helper()
	testenv.Eventually(t, fmt.Sprintf("%s of %s is %v", name, socket, want), func() bool {
		families, err := r.Gather()
		testenv.Must(t, err)
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if f.GetName() == name && m.GetLabel()[0].GetValue() == socket {
					return m.GetCounter().GetValue()+m.GetGauge().GetValue() == want
				}
			}
		}
		return false
	})
}

// Totals survive the connection that they come from, on both sides, and a connection that is made
// again is counted.
func TestTotalsSurviveTheConnection(t *testing.T) {
	t.Parallel()
	for _, transport := range []string{"tcp://127.0.0.1:*", "inproc://totals-survive"} {
		t.Run(transport[:3], func(t *testing.T) {
			t.Parallel()
			ctx := testenv.Context(t)
			peers := make(chan *sockets.Peer, 16)
			pull, err := sockets.NewPull(sockets.Options{Monitor: func(e sockets.Event) {
				if e.Kind == sockets.EventHandshakeSucceeded {
					peers <- e.Peer
				}
			}})
			testenv.Must(t, err)
			defer pull.Close()
			testenv.Must(t, pull.Bind(ctx, transport))
			r := prometheus.NewPedanticRegistry()
			r.MustRegister(metrics.NewCollector("pull", pull))
			const rounds = 3
			for round := range rounds {
				push, err := sockets.NewPush(sockets.Options{})
				testenv.Must(t, err)
				testenv.Must(t, push.Connect(pull.LastEndpoint()))
				testenv.Must(t, push.Send(ctx, []byte("message")))
				_, err = pull.Recv(ctx)
				testenv.Must(t, err)
				expect(t, r, "zmq_peers", "pull", 1)
				testenv.Must(t, push.Close())
				expect(t, r, "zmq_peers", "pull", 0)
				expect(t, r, "zmq_messages_received_total", "pull", float64(round+1))
				expect(t, r, "zmq_connections_total", "pull", float64(round+1))
				if got := push.Totals(); got.MessagesOut != 1 || got.Connections != 1 {
					t.Errorf("%+v", got)
				}
			}
			if transport[:3] != "tcp" {
				return
			}
			for range rounds {
				<-peers
			}
			push, err := sockets.NewPush(sockets.Options{})
			testenv.Must(t, err)
			defer push.Close()
			r.MustRegister(metrics.NewCollector("push", push))
			testenv.Must(t, push.Connect(pull.LastEndpoint()))
			(<-peers).Disconnect(context.Canceled)
			<-peers
			expect(t, r, "zmq_reconnections_total", "push", 1)
			expect(t, r, "zmq_connections_total", "push", 2)
		})
	}
}

// Messages that a publisher has dropped count after the subscriber has gone.
func TestDropsSurviveTheConnection(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	pub, err := sockets.NewPub(sockets.Options{SendHWM: 1})
	testenv.Must(t, err)
	defer pub.Close()
	testenv.Must(t, pub.Bind(ctx, "tcp://127.0.0.1:*"))
	sub, err := sockets.NewSub(sockets.Options{RecvHWM: 1})
	testenv.Must(t, err)
	defer sub.Close()
	testenv.Must(t, sub.Connect(pub.LastEndpoint()))
	testenv.Must(t, sub.Subscribe(""))
	testenv.Must(t, pub.WaitSubscribers(ctx, "", 1))
	large := []byte(strings.Repeat("x", 1<<20))
	for pub.Totals().Drops == 0 {
		testenv.Must(t, pub.Send(ctx, large))
	}
	before := pub.Totals()
	testenv.Must(t, sub.Close())
	testenv.Eventually(t, "the subscriber is gone", func() bool { return len(pub.Peers()) == 0 })
	if after := pub.Totals(); after.Drops < before.Drops || after.MessagesOut < before.MessagesOut || after.BytesOut < before.BytesOut {
		t.Errorf("%+v\nbefore %+v", after, before)
	}
}

// Names, units and help texts follow Prometheus' conventions, with several sockets in a registry.
func TestMetricsFollowTheConventions(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	for _, name := range []string{"a", "b"} {
		s, err := sockets.NewPull(sockets.Options{})
		testenv.Must(t, err)
		defer s.Close()
		r.MustRegister(metrics.NewCollector(name, s))
	}
	problems, err := testutil.GatherAndLint(r)
	testenv.Must(t, err)
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}
