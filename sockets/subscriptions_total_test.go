package sockets

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"clustermap/internal/fanout"
	"clustermap/zmtp"
)

// TestSubscriptionsOfAllPeersHaveOneTotal: at the limit the peers that have most are
// disconnected, with a typed error, and those that have few are served as before, also
// those that come late. When all have gone nothing is counted.
func TestSubscriptionsOfAllPeersHaveOneTotal(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T, Options) *publisher{
		"PUB": func(t *testing.T, o Options) *publisher {
			p := bind(t, NewPub, o)
			return &p.publisher
		},
		"XPUB": func(t *testing.T, o Options) *publisher {
			o.RecvHWM = Unlimited
			p := bind(t, NewXPub, o)
			return &p.publisher
		},
		"XPUB, manual": func(t *testing.T, o Options) *publisher {
			o.RecvHWM, o.XPubManual = Unlimited, true
			p := bind(t, NewXPub, o)
			return &p.publisher
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const most, peers, topics, size = 1 << 20, 8, 20, 10_000
			seen := newEvents()
			pub := open(t, Options{MaxSubscriptionBytes: most, Monitor: seen.Tell})
			honest := dialRaw(t, pub.owner.LastEndpoint()).Greet("SUB", nil)
			honest.Send(zmtp.AppendSubscribe(nil, []byte("honest")))
			honest.Sync()
			var greedy []*raw
			for i := range peers {
				r := dialRaw(t, pub.owner.LastEndpoint()).Greet("SUB", nil)
				for j := range topics {
					// It may be refused meanwhile.
					_, _ = r.Conn.Write(zmtp.AppendSubscribe(nil, fmt.Append(nil, i, " ", j, strings.Repeat("t", size))))
				}
				_ = r.TrySync()
				greedy = append(greedy, r)
				if used := pub.fan.Status().Bytes; used > most {
					t.Fatalf("%d bytes are counted", used)
				}
			}
			late := dialRaw(t, pub.owner.LastEndpoint()).Greet("SUB", nil)
			late.Send(zmtp.AppendSubscribe(nil, []byte("late")))
			late.Sync()
			honest.Send(zmtp.AppendSubscribe(nil, []byte("again")))
			honest.Sync()
			if e := seen.Await(t, EventDisconnected); !errors.Is(e.Err, ErrTooManySubscriptions) {
				t.Errorf("%v", e.Err)
			}
			if name != "XPUB, manual" {
				must(t, pub.Send(t.Context(), []byte("late")))
				if m := late.Message(); string(m[0]) != "late" {
					t.Errorf("%q", m)
				}
			}
			for _, r := range append(greedy, honest, late) {
				r.Conn.Close()
			}
			eventually(t, "nothing is counted", func() bool {
				return pub.fan.Status() == fanout.Status{}
			})
		})
	}
}
