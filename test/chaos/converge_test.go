//go:build unix

package chaos

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"clustermap/chp"
)

// converge waits until all replicas have the server's map, and notes the ones that do
// not.
func (c *cluster) converge(ctx context.Context) {
	h := c.history
	var last reference
	for _, v := range patiently(ctx, *convergence, func(ctx context.Context) []violation {
		var err error
		if last, err = c.reference(ctx); err != nil {
			return []violation{{"unreachable", fmt.Sprintf("no server answers after all faults: %v", err)}}
		}
		return c.differ(last)
	}) {
		h.violate(v.Check, "%s", v.Text)
	}
	if last.content == nil || last.timed > 0 {
		return
	}
	for _, key := range c.allKeys() {
		o := h.call(&op{Proc: 2*len(c.replicas) + 1, Kind: opRead, Key: key})
		o.Call, o.Return, o.Outcome, o.Saw = last.called, last.returned, acked, last.content[key]
	}
}

// patiently looks until it finds no violation, and returns the violations of the last
// look when its time is over. Each look must begin anew: updates that were in flight when
// the faults ended can arrive after a look, however short their way is.
func patiently(ctx context.Context, patience time.Duration, look func(context.Context) []violation) []violation {
	for end := time.Now().Add(patience); ; {
		one, cancel := context.WithTimeout(ctx, patience)
		found := look(one)
		cancel()
		if len(found) == 0 || time.Now().After(end) || !sleep(ctx, 20*time.Millisecond) {
			return found
		}
	}
}

// reference is the map of a client that joins now.
type reference struct {
	called, returned time.Duration
	content          map[string]uint64
	timed            int // keys that have a time to live
}

func (c *cluster) reference(ctx context.Context) (r reference, err error) {
	r.called = c.history.now()
	client, err := chp.NewClient(chp.ClientOptions{Servers: c.observer.servers})
	if err != nil {
		return r, err
	}
	defer client.Close()
	if err := client.WaitActive(ctx); err != nil {
		return r, err
	}
	for e := range client.All() {
		if e.TTL != 0 {
			r.timed++
		}
	}
	r.content, err = state(client)
	r.returned = c.history.now()
	return r, err
}

// differ returns the differences of the replicas from the map that they should have in
// the end.
func (c *cluster) differ(want reference) (found []violation) {
	if want.timed > 0 {
		return []violation{{"expiry", fmt.Sprintf("%d keys do not expire", want.timed)}}
	}
	for _, r := range append(slices.Clone(c.replicas), c.observer) {
		l := r.now()
		if d := l.differs(want.content); d != "" {
			found = append(found, violation{"convergence", fmt.Sprintf("%s, %v: %s", l.name, l.client, d)})
		}
	}
	return found
}

// differs describes the differences of a replica from the server that should not exist.
func (l *life) differs(server map[string]uint64) string {
	want := map[string]uint64{}
	for k, v := range server {
		if holds(l.subtrees, k) {
			want[k] = v
		}
	}
	got, err := state(l.client)
	if err != nil {
		return err.Error()
	}
	if d := difference(got, want); d != "" {
		return "replica and server: " + d
	}
	if d := difference(l.told(), want); d != "" {
		return "watch and server: " + d
	}
	return ""
}

func difference(got, want map[string]uint64) string {
	var all []string
	for k, v := range got {
		if want[k] != v {
			all = append(all, fmt.Sprintf("%q is %d, not %d", k, v, want[k]))
		}
	}
	for k, v := range want {
		if _, there := got[k]; !there {
			all = append(all, fmt.Sprintf("%q is missing, it is %d", k, v))
		}
	}
	slices.Sort(all)
	if len(all) > 5 {
		all = append(all[:5], fmt.Sprintf("%d more", len(all)-5))
	}
	return strings.Join(all, ", ")
}

// TestPatiently: patiently repeats a check until it finds no difference, or until its time is over.
func TestPatiently(t *testing.T) {
	t.Parallel()
	late := 3
	if found := patiently(t.Context(), time.Hour, func(context.Context) (found []violation) {
		if late--; late > 0 {
			found = []violation{{"convergence", "an update that came after the server was asked"}}
		}
		return found
	}); found != nil || late != 0 {
		t.Errorf("found %v, %d looks are left", found, late)
	}
	looks := 0
	found := patiently(t.Context(), 50*time.Millisecond, func(context.Context) []violation {
		looks++
		return []violation{{"convergence", fmt.Sprint(looks)}}
	})
	if want := fmt.Sprint(looks); len(found) != 1 || found[0].Text != want {
		t.Errorf("found %v, want what look %s has found", found, want)
	}
}
