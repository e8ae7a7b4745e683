package examples

import (
	"os/exec"
	"path/filepath"
	"testing"

	"clustermap/chp"
	"clustermap/internal/commandtest"
	"clustermap/internal/loopback"
	"clustermap/internal/testenv"
)

// The audit has every change, and undoes one that was made before the server was killed.
func TestAudit(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	command, err := commandtest.Build("../cmd/chp", t.TempDir())
	testenv.Must(t, err)
	host, data := loopback.Own(), filepath.Join(t.TempDir(), "map")
	endpoint := "tcp://" + host + ":5556"
	serve := func() *exec.Cmd {
		cmd := command.Command(t, "serve", "--host", host, "--data", data, "--sync", "always", "--stamp", "--history", "5")
		run(t, cmd)
		return cmd
	}
	server := serve()
	c, err := chp.NewClient(chp.ClientOptions{Servers: []string{endpoint}})
	testenv.Must(t, err)
	defer c.Close()
	set := func(value string) {
		_, err := c.SetSync(ctx, "/flag", []byte(value))
		testenv.Must(t, err)
	}
	set("good")
	p := start(t, "audit", "-server", endpoint)
	p.until("synced ")
	set("bad")
	p.until("set /flag bad by nobody known ")
	testenv.Must(t, server.Process.Kill())
	misses(t, c)
	serve()
	start(t, "audit", "-server", endpoint, "-undo", "/flag").end()
	p.until("set /flag good by nobody known ")
	_, err = c.DeleteSync(ctx, "/flag")
	testenv.Must(t, err)
	p.until("delete /flag  by nobody known ")
	start(t, "audit", "-server", endpoint, "-undo", "/flag").end()
	p.until("set /flag good by nobody known ")
	p.stop()
}
