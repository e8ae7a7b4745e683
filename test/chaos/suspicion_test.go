//go:build unix

package chaos

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"
)

// interval is the --bstar-interval of a pair.
const interval = 300 * time.Millisecond

// trouble is a time in which a server did not run.
type trouble struct {
	server   int
	from, to time.Duration
}

// turn is a line that a server of a pair logs when it begins or ends to publish updates
// that the other one may lack.
type turn struct {
	at     time.Duration
	server int
	name   string
	what   string // active, passive, waiting or alone
	reason string // of the others
}

// stamps is the resolution of the times in a log: an event can be that much later than
// its logged time.
const stamps = time.Millisecond

var turned = regexp.MustCompile(`(?m)^time=(\S+) level=\S+ msg="(?:state changed" state=(active|passive|"(?:primary|backup) \((waiting)\)") reason="([^"]+)"|publishing updates without the other server")`)

// readTurns finds the turns in the log of a server.
func readTurns(begin time.Time, server int, name string, log []byte) (turns []turn, err error) {
	for _, m := range turned.FindAllSubmatch(log, -1) {
		at, err := time.Parse(time.RFC3339Nano, string(m[1]))
		if err != nil {
			return nil, err
		}
		what := cmp.Or(string(m[3]), string(m[2]), "alone")
		t := turn{at.Sub(begin.Round(0)), server, name, what, string(m[4])}
		turns = append(turns, t)
	}
	return turns, nil
}

// turns returns the turns of all servers.
func (c *cluster) turns() (all []turn) {
	for i, s := range c.servers {
		log, err := os.ReadFile(s.output)
		if err != nil {
			c.t.Error(err)
		}
		own, err := readTurns(c.history.begin, i, s.name, log)
		if err != nil {
			c.t.Error(err)
		}
		all = append(all, own...)
	}
	return all
}

// suspected returns how a pair came to lose updates as docs/PAIR.md says it can, "" if it
// did not: then nothing may be lost. A machine that is too busy for the interval does
// that, at one of two moments.
//
// A server took the other one for dead although that was not in trouble. Then both may
// have been active, as in the shape that splits.
//
// Or a server had taken the other one for dead, and published updates alone. They are
// lost if the other one becomes active before the two have come together (settles). Both
// were together before each trouble, but the follower may stand still just then.
func suspected(turns []turn, settles []time.Duration, troubles []trouble) string {
	const together = "together"
	turns = slices.Clone(turns)
	for _, at := range settles {
		turns = append(turns, turn{at: at - stamps, what: together})
	}
	slices.SortStableFunc(turns, func(a, b turn) int { return cmp.Compare(a.at, b.at) })
	var ahead [2]string // how a server came to publish updates that the other one may lack
	for _, t := range turns {
		other := 1 - t.server
		switch {
		case t.what == together:
			ahead = [2]string{}
		case t.what == "alone":
			ahead[t.server] = fmt.Sprintf("%s published alone at %v", t.name, t.at)
		case t.what == "waiting" && t.reason == "peer has more data":
			ahead[t.server] = "" // it has accepted nothing: otherwise it has more
		case t.what == "passive" && t.reason == "peer's reign is newer" && ahead[t.server] != "":
			return fmt.Sprintf("%s, and gave that up at %v", ahead[t.server], t.at)
		case t.what == "active" && ahead[other] != "":
			return fmt.Sprintf("%s, and %s became active at %v", ahead[other], t.name, t.at)
		case t.what == "active":
			if t.reason == "peer is silent" && !slices.ContainsFunc(troubles, func(d trouble) bool {
				return d.server == other && t.at >= d.from-stamps && t.at <= d.to+interval
			}) {
				return fmt.Sprintf("%s took over at %v, although the other server ran", t.name, t.at)
			}
			ahead[t.server] = fmt.Sprintf("%s became active at %v", t.name, t.at)
		}
	}
	return ""
}

// TestSuspected: the logs show the losses that a pair may suffer, and no others.
func TestSuspected(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	log := func(at time.Duration, rest string) string {
		return "time=" + begin.Add(at).Format("2006-01-02T15:04:05.000Z07:00") + " level=WARN msg=" + rest + "\n"
	}
	active := func(at time.Duration, reason string) string {
		return log(at, fmt.Sprintf(`"state changed" state=active reason=%q epoch=3`, reason))
	}
	passive := func(at time.Duration, reason string) string {
		return log(at, fmt.Sprintf(`"state changed" state=passive reason=%q epoch=3`, reason))
	}
	alone := func(at time.Duration) string { return log(at, `"publishing updates without the other server"`) }
	const silent, newer, better, follows = "peer is silent", "peer's reign is newer", "better candidate", "peer is active"
	began := active(10*ms, better) // of the first, which is in trouble from 2s to 3s
	for _, c := range []struct {
		name          string
		first, second string
		want          string
	}{
		{"nothing", began, passive(20*ms, follows), ""},
		{"killed", began + "--- start 1\n" + passive(3*time.Second, follows), active(2700*ms, silent), ""},
		{"stopped", began + passive(2900*ms, newer), active(2700*ms, silent), ""},
		{"taken for dead", began + passive(1300*ms, newer), active(1200*ms, silent), "second took over at 1.2s, although the other server ran"},
		{"alone and then in step", began + alone(1900*ms), active(2700*ms, silent), ""},
		{"alone just before the kill", began + alone(1960*ms), active(2700*ms, silent), "first published alone at 1.96s, and second became active at 2.7s"},
		{"alone just before it starts again", began + alone(1960*ms), active(2700*ms, better), "first published alone at 1.96s, and second became active at 2.7s"},
		{"alone, and the other one went", began, alone(2600 * ms), ""},
		{"alone after it went on", began + alone(3500*ms) + passive(3600*ms, newer), active(2700*ms, silent), "first published alone at 3.5s, and gave that up at 3.6s"},
		{"took over, and yields", began + active(3300*ms, silent), active(2700*ms, silent), "second became active at 2.7s, and first became active at 3.3s"},
		{"took over, and steps down before it has accepted anything", began + active(3300*ms, better), active(2700*ms, silent) + log(3200*ms, `"state changed" state="backup (waiting)" reason="peer has more data" epoch=3`), ""},
		{"active, and yields", began + passive(3300*ms, newer), active(100*ms, better), "first became active at 10ms, and second became active at 100ms"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var turns []turn
			for i, text := range []string{c.first, c.second} {
				own, err := readTurns(begin, i, []string{"first", "second"}[i], []byte(text))
				if err != nil {
					t.Fatal(err)
				}
				turns = append(turns, own...)
			}
			settles, troubles := []time.Duration{500 * ms, 1950 * ms}, []trouble{{0, 2 * time.Second, 3 * time.Second}}
			if got := suspected(turns, settles, troubles); got != c.want {
				t.Errorf("suspected %q, want %q", got, c.want)
			}
		})
	}
}
