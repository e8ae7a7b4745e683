package page_test

import (
	"encoding/json"
	"os"
	"regexp"
	"testing"

	"clustermap/chp"
	"clustermap/chp/admin"
)

// TestPageReadsTheStatus: what the page shows of a server, and of the nodes of a cluster, is in the status.
func TestPageReadsTheStatus(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("page.js")
	if err != nil {
		t.Fatal(err)
	}
	overview := regexp.MustCompile(`(?s)\nfunction overview\(.*?\n}\n`).Find(text)
	b, err := json.Marshal(admin.JSON(chp.Status{Cluster: &chp.NodeStatus{Members: make([]chp.NodeMember, 1)}}))
	if err != nil {
		t.Fatal(err)
	}
	var status, cluster, member map[string]json.RawMessage
	var members []json.RawMessage
	for _, part := range []struct {
		from func() json.RawMessage
		to   any
	}{
		{func() json.RawMessage { return b }, &status}, {func() json.RawMessage { return status["cluster"] }, &cluster},
		{func() json.RawMessage { return cluster["members"] }, &members}, {func() json.RawMessage { return members[0] }, &member},
	} {
		if err := json.Unmarshal(part.from(), part.to); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for name, has := range map[string]map[string]json.RawMessage{"s": status, "c": cluster, "m": member} {
		for _, m := range regexp.MustCompile(`[^.\w]`+name+`\??\.(\w+)`).FindAllSubmatch(overview, -1) {
			n++
			if has[string(m[1])] == nil {
				t.Errorf("%s.%s is not in the status", name, m[1])
			}
		}
	}
	if n < 20 {
		t.Errorf("found %d fields", n)
	}
}
