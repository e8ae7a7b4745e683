package chp

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"clustermap/sockets"
)

// TestPairTimesToLiveOfAnyClock: the clock of a server's machine is set between two of its
// runs, so that its log says that keys are older, or younger, than they are. When it follows
// the active server again it knows from that one what is left of their times, and none
// ends too early, or later, when it takes over.
func TestPairTimesToLiveOfAnyClock(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{50 * time.Minute, 40 * 365 * 24 * time.Hour, -24 * time.Hour} {
		t.Run(ahead.String(), func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			po, bo := pairOptions(t)
			dir := t.TempDir()
			bo.Log, bo.ExpiryGrace = openLog(t, dir), -1
			primary, backup := startPairServer(t, po), startPairServer(t, bo)
			c := pairClient(t, po, bo)
			set := func(i int, ttl time.Duration) {
				t.Helper()
				_, err := c.SetSync(ctx, fmt.Sprintf("/%d/%s", i, strings.Repeat("k", 200)), []byte("v"), WithTTL(ttl))
				must(t, err)
			}
			const keys = 500 // more than one message of TIMES has
			set(0, time.Hour)
			eventually(t, "the backup follows", primary.inSync)
			for i := range keys {
				set(i, time.Hour)
			}
			backup.crash()
			set(0, 2*time.Hour) // since then this one lives longer
			bo.Log = olderLog{openLog(t, dir), ahead}
			backup = startPairServer(t, bo)
			eventually(t, "the backup follows again", primary.inSync)
			check := func(when string) {
				t.Helper()
				all := slices.Collect(backup.All())
				if len(all) != keys {
					t.Errorf("%s: %d keys", when, len(all))
				}
				for _, e := range all {
					ttl := time.Hour
					if strings.HasPrefix(string(e.Key), "/0/") {
						ttl *= 2
					}
					if e.TTL < ttl-10*time.Minute || e.TTL > ttl {
						t.Fatalf("%s: %.5s has %v left of %v", when, e.Key, e.TTL, ttl)
					}
				}
			}
			check("it follows")
			primary.crash()
			_, err := c.SetSync(ctx, "/last", []byte("v"), WithTTL(time.Millisecond))
			must(t, err)
			eventually(t, "what is over has expired", func() bool { _, there := backup.Get("/last"); return !there })
			check("it has taken over")
		})
	}
}

// TestPairTimesAreAsked: only a server that has times to live of its log asks for them.
func TestPairTimesAreAsked(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	po, bo := pairOptions(t)
	s := startAlone(t, po)
	_, err := pairClient(t, po, bo).SetSync(ctx, "/k", []byte("v"), WithTTL(time.Hour))
	must(t, err)
	for _, asks := range []bool{false, true} {
		f := dialFollower(t, s, func(o *sockets.Options) {
			if asks {
				o.Metadata[propertyTimes] = peerVersion
			}
		})
		r := s.asks()
		f.say(nameFollow, r.append(nil))
		var names []string
		for len(names) == 0 || asks && len(names) < 3 {
			m, err := f.Recv(ctx)
			must(t, err)
			if name := string(m[0]); name != nameChallenge {
				names = append(names, name)
			}
		}
		if want := []string{nameTail, nameTimes, nameTimes}; !slices.Equal(names, want[:len(names)]) {
			t.Errorf("asked %v: %q", asks, names)
		}
	}
}
