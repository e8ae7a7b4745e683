package ours

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"clustermap/chp"
)

// A pair counts only if it is in sync in the end, and both have the same.
func TestPairFault(t *testing.T) {
	t.Parallel()
	sound := func() (a, p *chp.Status) {
		return &chp.Status{State: chp.ServerActive, InSync: true, Keys: 5, Sequence: 9}, &chp.Status{State: chp.ServerPassive, Keys: 5, Sequence: 9}
	}
	if err := pairFault(sound()); err != nil {
		t.Error(err)
	}
	for want, spoil := range map[string]func(a, p *chp.Status) (*chp.Status, *chp.Status){
		"not in sync":    func(a, p *chp.Status) (*chp.Status, *chp.Status) { a.InSync = false; return a, p },
		"4 keys":         func(a, p *chp.Status) (*chp.Status, *chp.Status) { p.Keys--; return a, p },
		"at sequence 10": func(a, p *chp.Status) (*chp.Status, *chp.Status) { p.Sequence++; return a, p },
		"one active and": func(a, _ *chp.Status) (*chp.Status, *chp.Status) { return a, nil },
	} {
		if err := pairFault(spoil(sound())); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestPairServersFit(t *testing.T) {
	t.Parallel()
	servers, err := PairServers(time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	a, b := servers[0].(ServerArgs).Pair, servers[1].(ServerArgs).Pair
	if a.Backup || !b.Backup || a.State != b.PeerState || b.State != a.PeerState || a.State == b.State || a.Peer == b.Peer ||
		!strings.HasSuffix(b.Peer, fmt.Sprintf(":%d", a.Port)) || !strings.HasSuffix(a.Peer, fmt.Sprintf(":%d", b.Port)) {
		t.Errorf("%+v and %+v", a, b)
	}
}
