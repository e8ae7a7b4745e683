package examples

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"clustermap/chp"
	"clustermap/internal/loopback"
	"clustermap/internal/testenv"
)

// Two editors change a flag at the same time, while their server is killed and started again.
// No change is lost, and none is made twice.
func TestEditors(t *testing.T) {
	t.Parallel()
	host, data := loopback.Own(), t.TempDir()
	serve := func() *process {
		return start(t, "chp", "serve", "--host", host, "--data", data, "--sync", "always")
	}
	server := serve()
	var editors []*process
	for _, who := range []string{"alice", "bob"} {
		editors = append(editors, start(t, "editors", "-server", "tcp://"+host+":5556", who))
	}
	const changes = 40 // of each editor, at a time
	give := func() {
		for _, e := range editors {
			_, err := fmt.Fprint(e.stdin, strings.Repeat("dark-mode 1\n", changes))
			testenv.Must(t, err)
		}
	}
	const kills = 3
	for range kills {
		give()
		editors[0].until("dark-mode: ") // both have more to do
		testenv.Must(t, server.cmd.Process.Kill())
		for range server.lines { // until it has ended
		}
		give()
		server = serve()
	}
	for _, e := range editors {
		testenv.Must(t, e.stdin.Close())
		e.end()
	}

	c, err := chp.NewClient(chp.ClientOptions{Servers: []string{"tcp://" + host + ":5556"}})
	testenv.Must(t, err)
	defer c.Close()
	testenv.Must(t, c.WaitActive(testenv.Context(t)))
	value, _ := c.Get("/flags/dark-mode")
	var f struct {
		Percent int
		Changes []string
	}
	testenv.Must(t, json.Unmarshal(value, &f))
	const each = kills * 2 * changes
	slices.Sort(f.Changes)
	if want := append(slices.Repeat([]string{"alice"}, each), slices.Repeat([]string{"bob"}, each)...); f.Percent != 2*each || !slices.Equal(f.Changes, want) {
		t.Errorf("%d percent, %d changes, want %d of each editor: %q", f.Percent, len(f.Changes), each, f.Changes)
	}
}
