package sockets

import (
	"bytes"
	"strings"
	"testing"

	"clustermap/internal/hooks"
	"clustermap/internal/sockettest"
	"clustermap/internal/testenv"
	"clustermap/zmtp"
)

// TestOldHostileMemory: as TestHostileMemory, with the framings of old peers,
// whose bytes pass through a codec and its buffer.
func TestOldHostileMemory(t *testing.T) {
	if testenv.RaceDetector {
		t.Skip("the race detector's own memory is measured too")
	}
	const connections = 100
	announce := map[sockettest.Version]string{
		sockettest.ZMTP10: "\xff\x00\x00\x00\x00\x0b\xeb\xc2\x00\x00",
		sockettest.ZMTP20: "\x02\x00\x00\x00\x00\x0b\xeb\xc2\x00",
	}
	for _, v := range []sockettest.Version{sockettest.ZMTP10, sockettest.ZMTP20} {
		for _, c := range []struct {
			name string
			says string
			each int64 // bytes a connection may cost
		}{
			{"idle after traffic", strings.Repeat(v.Message(strings.Repeat("x", 1000)), 500), 40 << 10},
			{"idle after tiny messages", strings.Repeat(v.Message(""), 100_000), 40 << 10},
			{"5000 of 200 million bytes", announce[v] + strings.Repeat("x", 5000), 40<<10 + 8*5000},
			{"300 thousand of 200 million bytes", announce[v] + strings.Repeat("x", 300_000), 40<<10 + 8*300_000},
		} {
			t.Run(string(v)+" "+c.name, func(t *testing.T) {
				router, err := NewRouter(Options{Linger: LingerNone})
				must(t, err)
				hooks.Prepare(router, func(b *hooks.Batch) { b.SetSpans(nil) })
				defer router.Close()
				must(t, router.Bind(testContext(t), anyPort))
				hello := []byte(strings.Join(v.Hello(zmtp.TypeDealer, ""), ""))
				before := used()
				var peers []*raw
				for range connections {
					r := dialRaw(t, router.LastEndpoint())
					r.Send(hello, []byte(c.says))
					peers = append(peers, r)
				}
				eventually(t, "all bytes are received", func() bool { return unreceived(t, peers) == 0 })
				cost := (used() - before) / connections
				for n := 0; cost > c.each && n < 50; n++ {
					cost = (used() - before) / connections // the last readers are about to sleep
				}
				t.Logf("%d bytes a connection", cost)
				if cost > c.each {
					t.Errorf("%d bytes a connection, the bound is %d", cost, c.each)
				}
				for _, r := range peers {
					r.Conn.Close()
				}
			})
		}
	}
}

// TestOldHostileTrickle: byte by byte, with announcements of large frames in
// between, for as long as an honest peer takes to do its work.
func TestOldHostileTrickle(t *testing.T) {
	t.Parallel()
	router := bind(t, NewRouter, Options{})
	works := honest(t, router, "honest")
	works()
	for _, v := range []sockettest.Version{sockettest.ZMTP10, sockettest.ZMTP10Revised, sockettest.ZMTP20} {
		r := dialRaw(t, router.LastEndpoint())
		r.Slowly(strings.Join(v.Hello(zmtp.TypeDealer, "trickle"), ""))
		flood := bytes.Repeat([]byte(v.Message("", "x")), 500)
		for i := range flood {
			r.Send(flood[i : i+1])
			if i%500 == 0 {
				works()
			}
		}
		works()
	}
}
