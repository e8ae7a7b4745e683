//go:build unix

package chaos

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"clustermap/chp"
	"clustermap/internal/testenv"
	"clustermap/sockets"
)

// TestReturn: the servers of a pair are apart for a while, one of them goes on, and they
// meet again. The map that has the updates which clients were acknowledged continues,
// however often the other one has started and whatever it has done by itself. Only where
// both have accepted updates of clients one discards its own, and reports them.
//
// The sequences do not depend on time: each step waits for what the next one needs.
func TestReturn(t *testing.T) {
	t.Parallel()
	// They wait most of the time, so more of them run at once than tests in parallel.
	running := make(chan struct{}, 6)
	var all sync.WaitGroup
	for _, c := range []struct {
		name string
		do   func(r *reunion)
		// The server that continues, or -1 if it is either; the other one discards, if
		// it has accepted updates apart.
		continues int
		interval  time.Duration
	}{
		{"served on", func(r *reunion) { r.takeover(); r.restart(1); r.meet() }, 1, interval},
		{"served on, primary written", func(r *reunion) { r.takeover(); r.restart(1); r.write(0, 1); r.meet() }, 1, interval},
		{"killed", func(r *reunion) { r.takeover(); r.servers[1].kill(); r.restart(1); r.meet() }, 1, interval},
		{"killed, primary written", func(r *reunion) { r.takeover(); r.servers[1].kill(); r.restart(1); r.write(0, 1); r.meet() }, 1, interval},

		// The primary has started more often than the other one: what counts is the data.
		{"several restarts", func(r *reunion) { r.takeover(); r.restart(3); r.meet() }, 1, interval},
		{"several restarts, primary written", func(r *reunion) { r.takeover(); r.restart(3); r.write(0, 1); r.meet() }, 1, interval},
		{"several restarts, killed", func(r *reunion) { r.takeover(); r.servers[1].kill(); r.restart(3); r.meet() }, 1, interval},

		// A key expires in the old map: a server does that by itself.
		{"expiry", func(r *reunion) { r.lease(); r.takeover(); r.restart(1); r.expiry(); r.meet() }, 1, interval},
		{"expiry, two restarts", func(r *reunion) { r.lease(); r.takeover(); r.restart(2); r.expiry(); r.meet() }, 1, interval},
		{"expiry, killed", func(r *reunion) {
			r.lease()
			r.takeover()
			r.servers[1].kill()
			r.restart(1)
			r.expiry()
			r.meet()
		}, 1, interval},

		// The active server goes on alone and is killed, and the other one serves its
		// older map to a reader. The first one comes back with the newer one.
		{"alone, link for updates stalls", func(r *reunion) { r.alone(); r.returns() }, 0, interval},
		{"alone, the other one cut off", func(r *reunion) { r.cutOff(); r.returns() }, 0, interval},
		{"alone, key expires", func(r *reunion) { r.lease(); r.alone(); r.away(); r.expiresAt(1); r.comesBack() }, 0, interval},

		// The active server comes back with nothing, and offers that to the other one, which
		// does not hear it.
		{"with nothing, and is followed", func(r *reunion) { r.withNothing(); r.followed(); r.meet() }, 1, interval},

		// The active server has lost its data, and accepts updates each time it starts. Its
		// new map does not replace the one that both had.
		{"data lost, several starts", func(r *reunion) { r.losesData(2); r.meet() }, 1, interval},

		// The active server is cut off from everybody.
		{"isolated", func(r *reunion) { r.isolate(true); r.heal(false) }, 1, isolatedInterval},
		{"isolated, newcomer", func(r *reunion) { r.isolate(true); r.heal(true) }, 1, isolatedInterval},
		{"isolated, nobody asks", func(r *reunion) { r.isolate(false); r.heal(false) }, -1, isolatedInterval},
	} {
		running <- struct{}{}
		all.Go(func() {
			defer func() { <-running }()
			t.Run(c.name, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), testenv.Hang) // of several servers that start, one after the other
				defer cancel()
				r := newReunion(ctx, t, c.interval)
				c.do(r)
				r.check(c.continues)
			})
		})
	}
	all.Wait()
}

// reunion is a pair whose servers are apart, and what clients were acknowledged.
type reunion struct {
	*cluster
	ctx     context.Context
	active  int            // the server that is active before they part
	acked   map[string]int // keys, and the server that has accepted them apart; together: -1
	routes  []*route       // of clients to the servers
	keys    int            // how many keys clients have made apart
	empty   int            // the server that has lost its data, or -1
	waiting string         // the key of the update that waits while a server is isolated
	waits   chan error     // and its outcome
	busy    bool           // the active server went on alone before that
	cut     time.Time      // when it began
}

// isolatedInterval is longer than interval: a server that was cut off gives the other one
// that long to answer, and few machines are too busy for that.
const isolatedInterval = time.Second

// isolatedMost is how long a server that is isolated keeps an update waiting at least that it
// had accepted: three time-outs.
const isolatedMost = 6 * isolatedInterval

func newReunion(ctx context.Context, t *testing.T, interval time.Duration) *reunion {
	command(t)
	r := &reunion{
		cluster: &cluster{t: t, shape: shape{name: "return", pair: true, data: true}, history: &history{begin: time.Now()}, dir: t.TempDir()},
		ctx:     ctx, acked: map[string]int{}, empty: -1, waits: make(chan error, 1),
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, s := range r.servers {
				log, _ := os.ReadFile(s.output)
				t.Logf("%s:\n%s", s.name, log)
			}
		}
	})
	r.startServers(ctx, "--expiry-grace", "100ms", "--bstar-interval", interval.String())
	for _, s := range r.servers {
		route := newRoute(t, "clients-"+s.name, false)
		route.lead(s.host, s.port)
		r.routes = append(r.routes, route)
	}
	// Not of both servers: the other one could count its request as a vote after they parted.
	c := r.client(r.active)
	defer c.Close()
	r.set(c, "/before", -1)
	r.settle()
	return r
}

func (r *reunion) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// until waits for a condition.
func (r *reunion) until(what string, holds func() bool) {
	r.t.Helper()
	for !holds() {
		if !sleep(r.ctx, 5*time.Millisecond) {
			r.t.Fatalf("waited in vain until %s", what)
		}
	}
}

func (r *reunion) settle() {
	r.t.Helper()
	if !r.settled(r.ctx) {
		for _, v := range r.history.broken {
			r.t.Fatalf("VIOLATED %s: %s", v.Check, v.Text)
		}
	}
}

// client returns a client of some servers, which does not leave one that is silent.
func (r *reunion) client(servers ...int) *chp.Client {
	r.t.Helper()
	var addresses []string
	for _, i := range servers {
		addresses = append(addresses, r.routes[i].address)
	}
	c, err := chp.NewClient(chp.ClientOptions{Servers: addresses, HeartbeatTimeout: *convergence, Logger: slog.New(slog.DiscardHandler)})
	r.must(err)
	r.t.Cleanup(func() { c.Close() })
	return c
}

// set waits until an update is acknowledged.
func (r *reunion) set(c *chp.Client, key string, by int, opts ...chp.SetOption) {
	r.t.Helper()
	_, err := c.SetSync(r.ctx, key, []byte("v"), opts...)
	r.must(err)
	r.acked[key] = by
}

// write has one server accept n updates, while it is apart from the other one.
func (r *reunion) write(server, n int) {
	r.t.Helper()
	c := r.client(server)
	defer c.Close()
	for range n {
		r.keys++
		r.set(c, fmt.Sprintf("/%s/%d", r.servers[server].name, r.keys), server)
	}
}

// read has a client read from one server, which takes over if need be.
func (r *reunion) read(server int) {
	r.t.Helper()
	c := r.client(server)
	defer c.Close()
	r.must(c.WaitActive(r.ctx))
}

const leased = "/leased"

// lease sets a key with a time to live, which both servers have.
func (r *reunion) lease() {
	r.t.Helper()
	c := r.client(r.active)
	defer c.Close()
	r.set(c, leased, -1, chp.WithTTL(2*time.Second))
	delete(r.acked, leased)
}

// expiresAt waits until the key has expired at a server that is apart. A server expires
// nothing while nothing arrives from anybody, so it is asked meanwhile.
func (r *reunion) expiresAt(server int) {
	r.t.Helper()
	c := r.client(server)
	defer c.Close()
	r.must(c.WaitActive(r.ctx))
	r.until("the key expires", func() bool {
		_, err := chp.ServerStatus(r.ctx, r.servers[server].address(), sockets.Security{})
		_, there := c.Get(leased)
		return err == nil && !there
	})
}

func (r *reunion) expiry() { r.t.Helper(); r.expiresAt(r.active) }

// part has the servers not reach each other.
func (r *reunion) part() {
	for _, link := range r.between {
		link.refuse(1)
		link.each((*pipe).reset)
	}
}

// takeover: the active server is killed, and the other one accepts updates.
func (r *reunion) takeover() {
	r.t.Helper()
	r.servers[r.active].kill()
	r.write(r.passive(), 20)
	r.part()
}

func (r *reunion) passive() int { return 1 - r.active }

// restart starts the server that was active with its old data, see restartServer.
func (r *reunion) restart(n int) { r.t.Helper(); r.restartServer(r.active, n) }

// restartServer starts a server n times, while it does not hear the other one. A primary
// serves a reader each time; a backup does not, until it has heard the primary.
func (r *reunion) restartServer(server, n int) {
	r.t.Helper()
	for range n {
		r.servers[server].kill()
		r.must(r.servers[server].start(r.ctx))
		if server == 0 {
			r.read(server)
		}
	}
}

// meet has the servers reach each other, if they were started.
func (r *reunion) meet() {
	r.t.Helper()
	for _, link := range r.between {
		link.change(func() { link.refuses = 0 })
	}
	for _, s := range r.servers {
		r.must(s.start(r.ctx))
	}
}

// alone: the link for updates stalls, and the active server goes on alone.
func (r *reunion) alone() {
	r.t.Helper()
	r.stall(r.updates())
	r.write(r.active, 20)
}

// updates returns the link by which the passive server follows.
func (r *reunion) updates() *proxy { return r.between[r.passive()*linkUpdates] }

// states returns the link by which a server hears the other one.
func (r *reunion) states(server int) *proxy { return r.between[server*linkUpdates+linkStates] }

// stall has links carry nothing: what comes waits.
func (r *reunion) stall(links ...*proxy) {
	for _, p := range links {
		p.hold(toServer, 1)
		p.hold(toClient, 1)
	}
}

// cutOff: the passive server is cut off, and the active one goes on alone.
func (r *reunion) cutOff() {
	r.t.Helper()
	r.stall(r.between...)
	r.write(r.active, 20)
}

// away: the active server is killed, the links work again, and the other one serves a reader.
func (r *reunion) away() {
	r.t.Helper()
	r.servers[r.active].kill()
	for _, link := range r.between {
		link.change(func() { link.holds = [directions]int{} })
		link.each((*pipe).reset)
	}
	r.read(r.passive())
}

// comesBack: the server that was active starts with its data.
func (r *reunion) comesBack() { r.t.Helper(); r.must(r.servers[r.active].start(r.ctx)) }

func (r *reunion) returns() { r.t.Helper(); r.away(); r.comesBack() }

// withNothing: the active server is killed and comes back without its data, while neither
// server hears the other one's states. It serves a reader an empty map.
func (r *reunion) withNothing() {
	r.t.Helper()
	r.servers[r.active].kill()
	for i := range r.servers {
		r.states(i).refuse(1)
		r.states(i).each((*pipe).reset)
	}
	r.must(r.servers[r.active].forget())
	r.must(r.servers[r.active].start(r.ctx))
	r.read(r.active)
}

// losesData: the active server is killed and loses its data. While it does not hear the other
// one, it starts n times and accepts an update each time.
func (r *reunion) losesData(n int) {
	r.t.Helper()
	both := r.client(r.active)
	defer both.Close()
	r.set(both, "/both", -1) // the other one may have copied the map after the first update
	r.settle()
	r.empty = r.active
	s := r.servers[r.active]
	s.kill()
	r.part()
	r.must(s.forget())
	for range n {
		s.kill()
		r.must(s.start(r.ctx))
		r.write(r.active, 1)
	}
}

// followed lets the active server hear the other one, so that it knows who follows it, and
// waits until that one has refused its map, or has it, or until it has stepped down for that one, which has
// more. No client asks the other one meanwhile: it would take over.
func (r *reunion) followed() {
	r.t.Helper()
	offered := func() int {
		return r.logged(r.passive(), "is not the one whose state is heard") + r.logged(r.passive(), "copied the active server's map") + r.logged(r.active, "peer has more data")
	}
	before := offered()
	r.states(r.active).refuse(-1)
	r.until("the passive server is offered a map, or the active one does not serve it any more", func() bool { return offered() > before })
}

// isolate cuts the active server off from everybody, while a client waits for an update.
// If a client asks the other one, that accepts updates meanwhile.
func (r *reunion) isolate(asked bool) {
	r.t.Helper()
	waits := r.client(0, 1)
	r.must(waits.WaitActive(r.ctx))
	const goesOn = "publishing updates without the other server"
	before := r.logged(r.active, goesOn)
	r.stall(r.updates())
	r.keys++
	r.waiting = fmt.Sprintf("/waits/%d", r.keys)
	go func() {
		_, err := waits.SetSync(r.ctx, r.waiting, []byte("v"))
		r.waits <- err
		waits.Close()
	}()
	r.until("the active server has an update that the other one lacks", func() bool {
		status, err := chp.ServerStatus(r.ctx, r.servers[r.active].address(), sockets.Security{})
		return err == nil && status.Lag > 0
	})
	r.stall(r.isolated()...)
	r.cut, r.busy = time.Now(), r.logged(r.active, goesOn) > before
	if !asked {
		// Long enough for the active server to know that nothing arrives.
		sleep(r.ctx, 2*isolatedInterval)
		return
	}
	r.write(r.passive(), 20)
	// The clock of the isolation is the other server's, so that it lasts longer on a busy machine.
	c := r.client(r.passive())
	defer c.Close()
	_, err := c.SetSync(r.ctx, leased, []byte("v"), chp.WithTTL(isolatedInterval))
	r.must(err)
	r.expiresAt(r.passive())
}

// isolated returns what leads to the active server, and from it.
func (r *reunion) isolated() (all []*proxy) {
	r.routes[r.active].each(func(p *proxy) { all = append(all, p) })
	return append(all, r.between...)
}

// logged returns how often a server has logged something.
func (r *reunion) logged(server int, what string) int {
	log, err := os.ReadFile(r.servers[server].output)
	r.must(err)
	return bytes.Count(log, []byte(what))
}

// heal has the network work again. The clients' connections resume at once, and new ones
// are served; but the present ones of the servers resume only after updates were
// acknowledged: a connection on which nothing was acknowledged for some seconds sends
// again only when TCP's timer, which has backed off, ends.
func (r *reunion) heal(newcomer bool) {
	r.t.Helper()
	const unanswered = "the other server does not answer, though others do"
	before := r.logged(r.active, unanswered)
	var old []*pipe
	for _, p := range r.between {
		p.each(func(c *pipe) { old = append(old, c) })
	}
	for _, c := range old {
		c.hold(1)
	}
	for _, p := range r.isolated() {
		p.change(func() { p.holds = [directions]int{} })
	}
	arrives := fmt.Sprintf("/newcomer/%d", r.keys)
	if newcomer {
		c := r.client(0, 1)
		defer c.Close()
		r.set(c, arrives, -1)
	}
	r.must(<-r.waits)
	by := -1
	if r.busy || time.Since(r.cut) > isolatedMost || r.logged(r.active, unanswered) > before {
		r.t.Log("the machine is too busy for the interval: the active server may have gone on alone")
		by = r.active
	}
	r.acked[r.waiting] = by
	if newcomer {
		r.acked[arrives] = by
	}
	for _, c := range old {
		c.hold(-1)
	}
}

// check waits until the pair is one again, and checks the rule: an acknowledged update is
// gone only if both servers had accepted updates apart, or the one that accepted it had lost
// its data before, and then the one that discards it reports it.
func (r *reunion) check(continues int) {
	r.t.Helper()
	t := r.t
	r.settle()
	for i, s := range r.servers {
		status, err := chp.ServerStatus(r.ctx, s.address(), sockets.Security{})
		if err != nil || continues >= 0 && (status.State == chp.ServerActive) != (i == continues) {
			t.Errorf("VIOLATED continues: %s: %+v, %v", s.name, status, err)
		}
	}
	after := r.client(0, 1)
	defer after.Close()
	r.must(after.WaitActive(r.ctx))
	lost, reported := map[int][]string{}, map[int]map[string]bool{}
	for i, s := range r.servers {
		reported[i] = discarded(t, filepath.Join(r.dir, s.name+".diverged"))
	}
	accepted := [2]bool{}
	for key, by := range r.acked {
		if by >= 0 {
			accepted[by] = true
		}
		if _, there := after.Get(key); !there {
			lost[by] = append(lost[by], key)
		}
	}
	for by, keys := range lost {
		switch {
		case by < 0 || by == continues || by != r.empty && !(accepted[0] && accepted[1]):
			t.Errorf("VIOLATED acknowledged: lost %d acknowledged updates, such as %q", len(keys), keys[0])
		default:
			for _, key := range keys {
				if !reported[by][key] {
					t.Errorf("VIOLATED reported: the %s has discarded %q and does not report it", r.servers[by].name, key)
				}
			}
		}
	}
}

// discarded returns the keys in a file of --diverged.
func discarded(t testing.TB, file string) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	keys := map[string]bool{}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		var line struct{ Key string }
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatalf("%s: %v: %q", file, err, lines.Text())
		}
		if strings.HasPrefix(line.Key, "/") {
			keys[line.Key] = true
		}
	}
	return keys
}
