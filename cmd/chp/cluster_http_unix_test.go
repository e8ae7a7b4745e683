//go:build unix

package main

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"clustermap/internal/testenv"
)

// TestClusterOverHTTP reads and writes at a node that follows, over HTTP, also when the leader is killed; and the commands for
// operators work with any node.
func TestClusterOverHTTP(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--http", "127.0.0.1:0", "--http-write", "--node-offset", "7")
	leader := c.leader()
	follower := (leader + 1) % 3
	url := c.nodes[follower].web()
	ask := func(method, path, value string, header ...string) (code int, body, tag string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, url+path, strings.NewReader(value))
		testenv.Must(t, err)
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		answer, err := http.DefaultClient.Do(r)
		testenv.Must(t, err)
		defer answer.Body.Close()
		b, err := io.ReadAll(answer.Body)
		testenv.Must(t, err)
		return answer.StatusCode, string(b), answer.Header.Get("ETag")
	}
	testenv.Eventually(t, "the node does not serve", func() bool { code, _, _ := ask("GET", "/v1/kv/none", ""); return code == 404 })
	code, body, tag := ask("PUT", "/v1/kv/k", "1")
	if code != 204 || tag == "" {
		t.Errorf("set: %d %s, tag %q", code, body, tag)
	}
	if code, body, is := ask("GET", "/v1/kv/k", ""); code != 200 || body != "1" || is != tag {
		t.Errorf("get: %d %q, tag %q, want %q", code, body, is, tag)
	}
	if got := must(t, "get", "/k", "--server", c.endpoints[leader]); got != "1\n" {
		t.Errorf("the leader has %q", got)
	}
	if code, body, _ := ask("PUT", "/v1/kv/k", "x", "If-None-Match", "*"); code != 412 {
		t.Errorf("set if absent: %d %s", code, body)
	}
	if code, body, next := ask("PUT", "/v1/kv/k", "2", "If-Match", tag); code != 204 || next == tag {
		t.Errorf("set with the tag: %d %s", code, body)
	}
	code, body, _ = ask("POST", "/v1/lease", `{"ttl":60}`, "Content-Type", "application/json")
	var lease struct{ ID string }
	if json.Unmarshal([]byte(body), &lease); code != 201 || lease.ID == "" {
		t.Errorf("lease: %d %s", code, body)
	}
	if code, body, _ := ask("PUT", "/v1/kv/leased?lease="+lease.ID, "1"); code != 204 {
		t.Errorf("set with the lease: %d %s", code, body)
	}
	for method, want := range map[string]int{"GET": 200, "PUT": 200} {
		if code, body, _ := ask(method, "/v1/lease/"+lease.ID, ""); code != want {
			t.Errorf("%s of the lease: %d %s", method, code, body)
		}
	}
	if code, body, _ := ask("DELETE", "/v1/lease/"+lease.ID, ""); code != 204 {
		t.Errorf("revoke: %d %s", code, body)
	}
	if code, _, _ := ask("GET", "/v1/kv/leased", ""); code != 404 {
		t.Errorf("the key of the lease: %d", code)
	}
	for _, path := range []string{"/livez", "/readyz", "/metrics", "/clients", "/status"} {
		if code, body, _ := ask("GET", path, ""); code != 200 {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	states := map[string]int{}
	for line := range strings.Lines(must(t, append([]string{"status", "--json"}, c.servers()...)...)) {
		var n struct {
			Node, Term      uint64
			State, Sequence string
			Lag             *int64
		}
		testenv.Must(t, json.Unmarshal([]byte(line), &n))
		states[n.State]++
		if n.Node < 1 || n.Node > 3 || n.Term == 0 || len(n.Sequence) < 2 || n.Lag == nil || *n.Lag < 0 {
			t.Errorf("the status of a node: %s", line)
		}
	}
	if states["leader"] != 1 || states["follower"] != 2 {
		t.Errorf("states %v", states)
	}
	at := []string{"--server", c.endpoints[follower]}
	for _, args := range [][]string{{"clients"}, {"hot", "--interval", "10ms"}, {"status"}, {"wait"}} {
		must(t, append(args, at...)...)
	}
	try(t, append([]string{"failover"}, at...)...).expect(t, exitRefused, "chp cluster transfer")
	try(t, append([]string{"promote"}, at...)...).expect(t, exitRefused, "a majority elects the leader")
	try(t, append([]string{"wait", "--in-sync"}, at...)...).expect(t, exitRefused, "is not part of a pair")
	if _, body, _ := ask("GET", "/metrics", ""); !strings.Contains(body, "\nchp_cluster_nodes 3\n") || !strings.Contains(body, "\nchp_wal_fsync_duration_seconds_count ") {
		t.Errorf("metrics of a node: %s", body)
	}
	if got := must(t, append([]string{"status"}, at...)...); !strings.Contains(got, "follower") {
		t.Errorf("status of a node that follows: %s", got)
	}
	c.kill(leader)
	for i := range c.nodes {
		if i != leader {
			p := c.nodes[i]
			testenv.Eventually(t, "the log does not say that another node leads", func() bool { return strings.Contains(p.stderr.String(), "another node leads the cluster") })
		}
	}
	testenv.Eventually(t, "no node says that one is away", func() bool {
		for i := range c.nodes {
			if i == leader {
				continue
			}
			url = c.nodes[i].web()
			if _, body, _ := ask("GET", "/metrics", ""); strings.Contains(body, "\nchp_cluster_nodes_away 1\n") {
				return true
			}
		}
		return false
	})
	url = c.nodes[follower].web()
	testenv.Eventually(t, "the node does not serve without the leader", func() bool { code, _, _ := ask("PUT", "/v1/kv/k", "3"); return code == 204 })
	if code, body, _ := ask("DELETE", "/v1/kv/k", ""); code != 204 {
		t.Errorf("delete: %d %s", code, body)
	}
	if got := try(t, append([]string{"get", "/k"}, at...)...); got.code != exitRefused {
		t.Errorf("%+v", got)
	}
}
