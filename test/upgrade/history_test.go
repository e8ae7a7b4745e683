//go:build unix

package upgrade

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"clustermap/chp"
	"clustermap/internal/testenv"
)

// TestHistoryInDataForEarlierVersion: the earlier version refuses a log whose checkpoint has
// versions of keys, and says what it does not know; it does not leave them out.
func TestHistoryInDataForEarlierVersion(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "map")
	dump := filepath.Join(t.TempDir(), "dump")
	testenv.Must(t, os.WriteFile(dump, []byte(`{"key":"/k","value":"v"}`+"\n"), 0o600)) // becomes a checkpoint
	s := serve(t, today(t), "--port", "0", "--data", dir, "--load", dump, "--history", "3")
	s.end(t)
	sound(t, dir)
	refused := old(t).Try(t, "serve", "--port", "0", "--data", dir)
	if refused.Code != 1 || !strings.Contains(refused.Stderr, "entry 1 is of kind 6") {
		t.Errorf("exit code %d: %s", refused.Code, refused.Stderr)
	}
}

// TestHistoryOfMixedPair: a server with a history and stamps copies its map to one of the earlier
// version, which has neither and takes over with all the rest.
func TestHistoryOfMixedPair(t *testing.T) {
	t.Parallel()
	p := newPair(t, false, false)
	p.args[0] = append(p.args[0], "--history", "5", "--stamp")
	ctx := testenv.Context(t)
	p.start(0, today(t))
	c := open(t, chp.ClientOptions{Servers: p.endpoints})
	for _, value := range []string{"1", "2"} { // the first makes the server active alone
		_, err := c.SetSync(ctx, "/k", []byte(value), chp.WithProperty("by", "alice"))
		testenv.Must(t, err)
	}
	p.start(1, old(t))
	p.inSync(0)
	if all, err := c.History(ctx, "/k"); err != nil || len(all) != 2 {
		t.Errorf("%d versions, %v", len(all), err)
	}
	p.servers[0].kill(t)
	_, err := c.SetSync(ctx, "/other", []byte("3"))
	testenv.Must(t, err)
	e, _ := c.Lookup("/k")
	if _, _, stamped := e.Properties.Stamped(); string(e.Value) != "2" || string(e.Properties.User()) != "by=alice\n" || !stamped {
		t.Errorf("%+v", e)
	}
	if _, err := c.History(ctx, "/k"); err != chp.ErrNoHistory {
		t.Errorf("the earlier version's history: %v", err)
	}
}
