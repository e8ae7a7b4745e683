package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"clustermap/internal/command"
	"clustermap/internal/commandtest"
	"clustermap/internal/testenv"
)

func startTitanic(t testing.TB, broker, dir string, args ...string) *commandtest.Process {
	t.Helper()
	p := zdev.Start(t, append([]string{"titanic", "--broker", broker, "--data", dir, "--concurrency", "2", "--retry-max", "100ms"}, args...)...)
	p.Ready()
	return p
}

// TestTitanic: submit, fetch and discard, with workers that are commands.
func TestTitanic(t *testing.T) {
	t.Parallel()
	_, at := startBroker(t)
	dir := filepath.Join(t.TempDir(), "data")
	server := startTitanic(t, at, dir)
	run := func(args ...string) []string { return append(args, "--broker", at) }
	submit := func(input string, args ...string) string {
		t.Helper()
		out := zdev.MustInput(t, input, run(append([]string{"submit"}, args...)...)...)
		if !regexp.MustCompile(`^[0-9a-f]{32}\n$`).MatchString(out) {
			t.Fatalf("%q", out)
		}
		return strings.TrimSpace(out)
	}
	id := submit("from\nstdin", "upper", "-")
	zdev.Try(t, run("fetch", id)...).Expect(t, command.ExitRefused, "pending")
	zdev.Try(t, run("fetch", id, "--wait", "--timeout", "100ms")...).Expect(t, command.ExitNoAnswer, "no reply")
	startWorker(t, at, "upper", "--", "tr", "a-z", "A-Z")
	startWorker(t, at, "broken", "--", "sh", "-c", "echo it is broken >&2; exit 3")
	for range 2 {
		for want, args := range map[string][]string{
			"FROM\nSTDIN\n":                     {},
			"FROM\nSTDIN":                       {"--raw"},
			`{"frames":["FROM\nSTDIN"]}` + "\n": {"--json"},
		} {
			if out := zdev.Must(t, run(append([]string{"fetch", strings.ToUpper(id), "--wait", "--timeout", "100s"}, args...)...)...); out != want {
				t.Errorf("%q, want %q", out, want)
			}
		}
		// The same from a server that was ended and started again.
		endsWell(t, server)
		server = startTitanic(t, at, dir)
	}
	zdev.Try(t, run("fetch", submit("", "broken"), "--wait", "--timeout", "100s")...).Expect(t, command.ExitRefused, "refused: 500: exit status 3: it is broken")
	for range 2 {
		zdev.Must(t, run("discard", id)...)
		zdev.Try(t, run("fetch", id)...).Expect(t, command.ExitRefused, "unknown")
	}
	zdev.Try(t, "titanic", "--broker", at, "--data", dir).Expect(t, command.ExitRefused, "another process has the store open")
	endsWell(t, server)
}

// TestTitanicKilled: if a server is killed, the next one executes its requests, and
// reports how many wait.
func TestTitanicKilled(t *testing.T) {
	t.Parallel()
	_, at := startBroker(t)
	dir := t.TempDir()
	server := startTitanic(t, at, dir)
	var ids []string
	for range 3 {
		ids = append(ids, strings.TrimSpace(zdev.Must(t, "submit", "echo", "hello", "--broker", at)))
	}
	server.Cmd.Process.Kill()
	<-server.Exited()
	server = startTitanic(t, at, dir)
	server.Await("3 requests waiting in " + regexp.QuoteMeta(dir))
	startWorker(t, at, "echo", "--echo") // earlier it may have one of them before they are counted
	for _, id := range ids {
		if out := zdev.Must(t, "fetch", id, "--wait", "--timeout", "100s", "--broker", at); out != "hello\n" {
			t.Errorf("%q", out)
		}
	}
	endsWell(t, server)
}

// TestTitanicCurve: with CURVE, server and clients need a key that the broker accepts.
func TestTitanicCurve(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	public := strings.TrimSpace(zdev.Must(t, "keygen", "--out", dir+"/broker.key"))
	zdev.Must(t, "keygen", "--out", dir+"/known.key")
	broker, at := startBroker(t, "--curve-key", dir+"/broker.key", "--curve-allow", dir+"/known.key")
	keys := []string{"--curve-key", dir + "/known.key", "--curve-server-key", public}
	refused := zdev.Start(t, append([]string{"titanic", "--data", dir + "/data", "--broker", at}, keys...)...)
	refused.Await(`refuses a worker of titanic\.\*`)
	broker.Await(`worker refused.* service=titanic\.`)
	endsWell(t, refused)
	startTitanic(t, at, dir+"/data", "--curve-key", dir+"/broker.key", "--curve-server-key", public)
	run := func(args ...string) []string { return append(append(args, "--broker", at), keys...) }
	id := strings.TrimSpace(zdev.Must(t, run("submit", "nobody", "x")...))
	zdev.Try(t, run("fetch", id)...).Expect(t, command.ExitRefused, "pending")
	zdev.Must(t, run("discard", id)...)
	zdev.Try(t, "fetch", id, "--broker", at, "--timeout", "300ms").Expect(t, command.ExitNoAnswer, "no reply")
}

func TestTitanicUsage(t *testing.T) {
	t.Parallel()
	id := strings.Repeat("0", 32)
	for _, c := range []struct{ args, want string }{
		{"titanic", "--data"},
		{"titanic --data x --concurrency 0", "--concurrency"},
		{"titanic --data x --attempt-timeout 0s", "--attempt-timeout"},
		{"titanic --data x --heartbeat 0s", "--heartbeat"},
		{"titanic --data x --max-request 1GiB", "--max-request and --max-reply are at most 512MiB"},
		{"titanic --data x more", "more"},
		{"submit", "arg"},
		{"submit echo --timeout 0s", "--timeout"},
		{"submit echo --broker nonsense", `--broker "nonsense"`},
		{"fetch", "arg"},
		{"fetch ../etc/passwd", "32 hexadecimal characters"},
		{"fetch " + id + " --json --raw", "--raw"},
		{"discard " + id + "0", "32 hexadecimal characters"},
	} {
		t.Run(c.args, func(t *testing.T) {
			t.Parallel()
			cmd := zdev.Command(t, strings.Fields(c.args)...)
			cmd.Dir = t.TempDir()
			zdev.TryCommand(t, cmd).Expect(t, command.ExitUsage, c.want)
			if files, _ := os.ReadDir(cmd.Dir); len(files) > 0 {
				t.Errorf("it has made %v", files)
			}
		})
	}
	for _, args := range [][]string{{"submit", "echo"}, {"fetch", id}, {"discard", id}} {
		zdev.Try(t, append(args, "--broker", "tcp://127.0.0.1:1", "--timeout", "100ms")...).Expect(t, command.ExitNoAnswer, "no reply")
	}
	// A broker that is not there yet is waited for; a signal ends that.
	dir := t.TempDir()
	p := zdev.Start(t, "titanic", "--data", dir, "--broker", "tcp://127.0.0.1:1")
	testenv.Eventually(t, "the store is there", func() bool { return exists(filepath.Join(dir, "titanic.db")) })
	endsWell(t, p)
	// A store that is damaged.
	if err := os.WriteFile(filepath.Join(dir, "titanic.db"), []byte("something else"), 0o600); err != nil {
		t.Fatal(err)
	}
	zdev.Try(t, "titanic", "--data", dir).Expect(t, command.ExitRefused, "store is corrupt")
}
