package ours

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"clustermap/chp"
	"clustermap/chp/commit"
	"clustermap/internal/testenv"
)

// A cluster counts only if all follow one leader in the end, and have the same.
func TestClusterFault(t *testing.T) {
	t.Parallel()
	sound := func() (all []chp.Status) {
		for i := range uint64(3) {
			state := chp.ServerPassive
			if i == 1 {
				state = chp.ServerActive
			}
			all = append(all, chp.Status{State: state, Keys: 5, Sequence: 9, Cluster: &chp.NodeStatus{Node: i + 1, Leader: 2, Term: 4}})
		}
		return all
	}
	if err := clusterFault(sound()); err != nil {
		t.Error(err)
	}
	if leader, err := leaderOf(sound()); leader != 1 || err != nil {
		t.Errorf("%d, %v", leader, err)
	}
	for want, spoil := range map[string]func(all []chp.Status){
		"has 4 keys at sequence 9":  func(all []chp.Status) { all[0].Keys-- },
		"has 5 keys at sequence 10": func(all []chp.Status) { all[2].Sequence++ },
		"do not follow one leader":  func(all []chp.Status) { all[2].Cluster.Leader = 3 },
		"follow one leader":         func(all []chp.Status) { all[0].Cluster.Leader = 0 },
		"not follow one":            func(all []chp.Status) { all[1].Cluster.Term++ },
		"not follow":                func(all []chp.Status) { all[1].Cluster = nil },
		"the leader does not serve": func(all []chp.Status) { all[1].State = chp.ServerWaiting },
	} {
		all := sound()
		if spoil(all); clusterFault(all) == nil || !strings.Contains(clusterFault(all).Error(), want) {
			t.Errorf("%v, want %q", clusterFault(all), want)
		}
	}
}

// The nodes of a cluster know each other, and have a directory each.
func TestClusterServersFit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	servers, err := ClusterServers(5, dir, commit.Always(), 0)
	testenv.Must(t, err)
	endpoints := map[string]bool{}
	for i, args := range servers {
		a := args.(ServerArgs)
		if a.Node.Number != uint64(i+1) || len(a.Node.Nodes) != 5 || a.Sync != "always" || filepath.Dir(a.Data) != dir {
			t.Errorf("%+v", a)
		}
		endpoints[a.Node.Nodes[a.Node.Number]] = true
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 5 || len(endpoints) != 5 {
		t.Errorf("%v, %v, %v", entries, err, endpoints)
	}
}
