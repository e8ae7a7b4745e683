//go:build unix

package chaos

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"clustermap/chp"
	"clustermap/internal/testenv"
	"clustermap/sockets"
)

// scheduleSeeds are the seeds of TestReturnSchedules. On 564c566 it fails with nine of them,
// each time it runs:
//
//   - several restarts: 8. In 9, which passes, the same server restarts once.
//   - a key expires in a server that is apart: 325, 328.
//   - a server comes back with its data, after the other one served: 16, 19, 30.
//   - a server is cut off from everybody: 11, 12; 164 with the roles exchanged.
//
// 21 passes there: nobody asks the other one while a server is cut off.
var scheduleSeeds = []uint64{8, 325, 328, 16, 164, 12, 30, 11, 19, 9, 21}

// TestReturnSchedules: the servers of a pair are apart several times, in schedules of
// random events, and the rule of TestReturn holds each time they meet. With -seed it runs
// the schedule of that seed alone.
func TestReturnSchedules(t *testing.T) {
	t.Parallel()
	seeds := scheduleSeeds
	if *seedFlag != 0 {
		seeds = []uint64{*seedFlag}
	}
	running := make(chan struct{}, 10) // as in TestReturn
	var all sync.WaitGroup
	for _, seed := range seeds {
		running <- struct{}{}
		all.Go(func() {
			defer func() { <-running }()
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), testenv.Hang) // of several servers that start, one after the other
				defer cancel()
				newSchedule(ctx, t, seed).run()
			})
		})
	}
	all.Wait()
}

// schedule is a reunion whose events are random. Events that a server cannot take part in
// are not drawn, so each one can be waited for.
type schedule struct {
	*reunion
	seed   uint64
	rng    *rand.Rand
	begins []beginning // of the partings
	words  []string    // what has happened
	sides  [2]side
	starts int // how many more there may be: a primary that hears nobody waits before it serves
}

// beginning is how servers part.
type beginning string

const (
	beginKilled   beginning = "kill"     // the active one is killed
	beginAlone    beginning = "alone"    // the active one goes on alone, as the link for updates stalls, and is killed
	beginCutOff   beginning = "cut off"  // the same, as the passive one is cut off
	beginIsolated beginning = "isolated" // the active one is cut off from everybody
)

var beginnings = []beginning{beginKilled, beginKilled, beginAlone, beginCutOff, beginIsolated}

// side is what a server does while it is apart.
type side struct {
	up     bool
	serves bool // a client can write to it and read from it
	runs   bool // it has not started since they parted
	leased bool // it has the key that will expire
	counts bool // it has accepted updates since it started
	last   rank // of its last update
}

// rank orders the last updates of clients that servers have, as the rule does: by the
// term, of which a server begins one when it accepts updates for the first time since it
// started or took over. Of the same term that of the server that took over is later.
type rank struct{ term, took, alone int }

func (a rank) compare(b rank) int {
	return cmp.Or(cmp.Compare(a.term, b.term), cmp.Compare(a.took, b.took), cmp.Compare(a.alone, b.alone))
}

func newSchedule(ctx context.Context, t *testing.T, seed uint64) *schedule {
	s := &schedule{seed: seed, rng: rand.New(rand.NewPCG(seed, 0))}
	interval := interval
	for range 2 + s.rng.IntN(2) {
		b := beginnings[s.rng.IntN(len(beginnings))]
		if s.begins = append(s.begins, b); b == beginIsolated {
			interval = isolatedInterval
		}
	}
	if s.starts = 6; interval == isolatedInterval {
		s.starts = 2
	}
	s.reunion = newReunion(ctx, t, interval)
	return s
}

func (s *schedule) run() {
	t := s.t
	defer func() {
		t.Logf("go test ./test/chaos -run TestReturnSchedules -seed %d; 0 is the primary, 1 is the backup: %s", s.seed, strings.Join(s.words, "; "))
	}()
	for i, b := range s.begins {
		if i > 0 {
			s.together()
		}
		s.part(b)
		continues := s.continues()
		s.say("meet, so that %d continues", continues)
		s.check(continues)
		if t.Failed() {
			return
		}
	}
}

func (s *schedule) say(format string, args ...any) {
	s.words = append(s.words, fmt.Sprintf(format, args...))
}

// together prepares the next parting: what both servers have now was not made apart.
func (s *schedule) together() {
	s.t.Helper()
	s.until("one server is active", func() bool {
		return slices.ContainsFunc([]int{0, 1}, func(i int) bool {
			status, err := chp.ServerStatus(s.ctx, s.servers[i].address(), sockets.Security{})
			s.active = i
			return err == nil && status.State == chp.ServerActive && status.InSync
		})
	})
	s.expiry()
	c := s.client(s.active)
	defer c.Close()
	s.must(c.WaitActive(s.ctx))
	// The active server may have accepted nothing since it became that.
	s.keys++
	s.set(c, fmt.Sprintf("/together/%d", s.keys), -1)
	for key := range s.acked {
		if _, there := c.Get(key); !there {
			delete(s.acked, key) // check has looked at it
			continue
		}
		s.acked[key] = -1
	}
	s.settle()
}

// part has the servers part, do things apart, and meet again.
func (s *schedule) part(b beginning) {
	s.t.Helper()
	a, p := s.active, s.passive()
	s.sides = [2]side{}
	if b == beginIsolated {
		asked, newcomer := s.rng.IntN(4) > 0, s.rng.IntN(2) > 0
		s.say("%d isolated, the other one asked: %v", a, asked)
		s.isolate(asked)
		if asked {
			s.sides[p].last = rank{term: 1, took: 1}
		}
		s.say("heal, newcomer: %v", newcomer && asked)
		s.heal(newcomer && asked)
		return
	}
	if s.rng.IntN(2) > 0 {
		s.say("lease")
		s.lease()
		s.sides[a].leased, s.sides[p].leased = true, true
	}
	switch b {
	case beginKilled:
		s.say("kill %d", a)
		s.servers[a].kill()
	case beginAlone:
		s.say("%d alone, link for updates stalls; killed", a)
		s.alone()
		s.away()
	case beginCutOff:
		s.say("%d alone, %d cut off; killed", a, p)
		s.cutOff()
		s.away()
	}
	if b != beginKilled {
		s.sides[a].last.alone = 1
		s.sides[a].leased = false // it may have expired it
	}
	s.reunion.part()
	s.sides[p].up, s.sides[p].serves, s.sides[p].runs = true, true, true
	for range 2 + s.rng.IntN(4) {
		s.apart()
	}
	s.meet()
}

// apart is one event of a server that is apart from the other one.
func (s *schedule) apart() {
	s.t.Helper()
	i := s.rng.IntN(2)
	side := &s.sides[i]
	n := 1 + s.rng.IntN(3)
	switch event := s.rng.IntN(6); {
	case (!side.up || event == 0) && s.starts > 0:
		n = min(n, s.starts)
		s.starts -= n
		s.say("restart %d, %d times", i, n)
		s.restartServer(i, n)
		side.up, side.serves, side.runs, side.counts = true, i == 0, false, false
	case event == 1 && side.up:
		s.say("kill %d", i)
		s.servers[i].kill()
		side.up, side.serves = false, false
	case !side.serves:
	case side.leased && event < 5:
		s.say("expiry at %d", i)
		s.expiresAt(i)
		side.leased = false
	default:
		s.say("write to %d, %d times", i, n)
		s.write(i, n)
		if !side.counts {
			side.counts = true
			side.last = rank{term: side.last.term + 1}
			if side.runs {
				side.last.took = 1
			}
		}
	}
}

// continues returns the server that has the last update of a client, or -1 if that is not
// certain.
func (s *schedule) continues() int {
	switch c := s.sides[0].last.compare(s.sides[1].last); {
	case c > 0:
		return 0
	case c < 0:
		return 1
	}
	return -1
}
