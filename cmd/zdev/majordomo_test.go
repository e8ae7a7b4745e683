package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"clustermap/internal/command"
	"clustermap/internal/commandtest"
	"clustermap/internal/loopback"
	"clustermap/internal/testenv"
	"clustermap/patterns/majordomo"
)

// startBroker starts a broker and returns its endpoint.
func startBroker(t testing.TB, args ...string) (*commandtest.Process, string) {
	t.Helper()
	p := zdev.Start(t, append([]string{"broker", "--bind", "tcp://127.0.0.1:*"}, args...)...)
	return p, p.Ready()[0]
}

func startWorker(t testing.TB, broker string, args ...string) *commandtest.Process {
	t.Helper()
	p := zdev.Start(t, append([]string{"worker", "--broker", broker}, args...)...)
	p.Ready()
	return p
}

func TestBroker(t *testing.T) {
	t.Parallel()
	p, at := startBroker(t)
	echo := startWorker(t, at, "echo", "--echo")
	upper := startWorker(t, at, "upper", "--concurrency", "2", "--mdp", "0.2", "--", "tr", "a-z", "A-Z")
	startWorker(t, at, "broken", "--", "sh", "-c", "echo it is broken >&2; exit 3")
	request := func(args ...string) []string { return append([]string{"request", "--broker", at}, args...) }
	for _, c := range []struct {
		input string
		args  []string
		want  string
	}{
		{"", request("echo", "hello"), "hello\n"},
		{"", request("echo"), "\n"},
		{"from\nstdin", request("upper", "-"), "FROM\nSTDIN\n"},
		{"", request("upper", "raw", "--raw", "--mdp", "0.2"), "RAW"},
		{"", request("echo", "quoted \"", "--json"), `{"frames":["quoted \""]}` + "\n"},
		{"\xff", request("echo", "-", "--json"), `{"frames_base64":["/w=="]}` + "\n"},
		{"", request("mmi.service", "echo"), "200\n"},
		{"", request("mmi.service", "nobody"), "404\n"},
	} {
		if out := zdev.MustInput(t, c.input, c.args...); out != c.want {
			t.Errorf("%q: %q, want %q", c.args, out, c.want)
		}
	}
	zdev.Try(t, request("broken", "x")...).Expect(t, command.ExitRefused, "500: exit status 3: it is broken")
	zdev.Try(t, request("nobody", "x", "--timeout", "100ms")...).Expect(t, command.ExitNoAnswer, `no reply through `+at+` within 100ms: the service "nobody" has no worker`)
	out := zdev.Must(t, "services", "--broker", at)
	for i, want := range []string{"NAME", "broken", "echo", "upper"} {
		if f := strings.Fields(strings.Split(out, "\n")[i]); len(f) != 4 || f[0] != want {
			t.Errorf("services: %s", out)
		}
	}
	line := strings.Split(zdev.Must(t, "services", "--broker", at, "--json"), "\n")[2]
	if o := commandtest.Object(t, line); o["name"] != "upper" || o["workers"] != 2. || o["waiting"] != 0. {
		t.Errorf("services --json: %s", line)
	}
	line = zdev.Must(t, request("echo", "hello", "--count", "500", "--pipeline", "20", "--json")...)
	if o := commandtest.Object(t, line); o["requests"] != 500. || o["per_second"].(float64) <= 0 {
		t.Errorf("--count: %s", line)
	}
	if text := zdev.Must(t, request("echo", "--count", "10")...); !strings.HasPrefix(text, "10 requests in ") {
		t.Errorf("--count: %s", text)
	}
	endsWell(t, echo)
	endsWell(t, upper)
	endsWell(t, p)
}

func TestBrokerUsage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, want string }{
		{"worker", "give the name of one service"},
		{"worker echo", "either --echo or a command"},
		{"worker echo --echo -- cat", "either --echo or a command"},
		{"worker echo more -- cat", "give the name of one service"},
		{"worker echo -- no-such-command-here", "cannot run no-such-command-here"},
		{"worker echo --echo --mdp 3", "--mdp"},
		{"worker mmi.echo --echo", "mmi."},
		{"worker echo --echo --broker nonsense", `--broker "nonsense"`},
		{"worker echo --echo --concurrency 0", "--concurrency"},
		{"request", "arg"},
		{"request echo --count 0", "--count"},
		{"request echo --broker nonsense", `--broker "nonsense"`},
		{"services --timeout 0s", "--timeout"},
		{"broker --liveness 0", "--liveness"},
		{"broker --bind nonsense", `--bind "nonsense"`},
	} {
		t.Run(c.args, func(t *testing.T) {
			t.Parallel()
			zdev.Try(t, strings.Fields(c.args)...).Expect(t, command.ExitUsage, c.want)
		})
	}
	zdev.Try(t, "services", "--broker", "tcp://127.0.0.1:1", "--timeout", "100ms").Expect(t, command.ExitNoAnswer, "no reply")
}

// TestWorkerKilled: if a busy worker is killed, another one executes its request.
func TestWorkerKilled(t *testing.T) {
	t.Parallel()
	_, at := startBroker(t)
	begun := filepath.Join(t.TempDir(), "begun")
	busy := startWorker(t, at, "slow", "--", "sh", "-c", "echo > "+begun+"; exec sleep 1000")
	request := zdev.Start(t, "request", "--broker", at, "slow", "body", "--timeout", "100s")
	testenv.Eventually(t, "the worker is busy", func() bool { return exists(begun) })
	busy.Cmd.Process.Kill()
	startWorker(t, at, "slow", "--echo")
	if code := request.Wait(); code != command.ExitDone || request.Line() != "body" {
		t.Errorf("exit code %d: %s", code, request.Stderr.String())
	}
}

// TestBrokerKilled: a broker is killed under load, and another one replaces it: workers
// and clients reconnect, and every request has a reply.
func TestBrokerKilled(t *testing.T) {
	t.Parallel()
	p := zdev.Start(t, "broker", "--bind", "tcp://"+loopback.Own()+":*")
	at := p.Ready()[0]
	worker, err := majordomo.NewWorker("echo", func(_ context.Context, r [][]byte) ([][]byte, error) { return r, nil },
		majordomo.WorkerOptions{Broker: at, Concurrency: 2, Reconnect: 5 * time.Millisecond, ReconnectMax: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer worker.Close()
	client, err := majordomo.NewClient(majordomo.ClientOptions{Broker: at, Attempts: 100, Reconnect: 5 * time.Millisecond, ReconnectMax: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx := testContext(t)
	var all sync.WaitGroup
	var done [4]int
	stop := make(chan struct{})
	for i := range done {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				body := fmt.Sprint(i, " ", done[i])
				reply, err := client.Request(ctx, "echo", []byte(body))
				if err != nil || len(reply) != 1 || string(reply[0]) != body {
					t.Errorf("%q, %v, want %q", reply, err, body)
					return
				}
				done[i]++
			}
		})
	}
	goesOn := func() {
		before := worker.Stats().Requests
		testenv.Eventually(t, "100 more requests are executed", func() bool { return worker.Stats().Requests >= before+100 })
	}
	for range 3 {
		goesOn()
		p.Cmd.Process.Kill()
		<-p.Exited()
		p = zdev.Start(t, "broker", "--bind", at)
		p.Ready()
	}
	goesOn()
	close(stop)
	all.Wait()
	if s := client.Stats(); s.Repeated == 0 || worker.Stats().Sessions < 4 {
		t.Errorf("client %+v, worker %+v", s, worker.Stats())
	}
	endsWell(t, p)
}

// TestBrokerCurve: with CURVE a broker accepts only the listed keys.
func TestBrokerCurve(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key := func(name string) (file, public string) {
		file = filepath.Join(dir, name)
		return file, strings.TrimSpace(zdev.Must(t, "keygen", "--out", file))
	}
	server, public := key("server")
	known, allowed := key("known")
	stranger, _ := key("stranger")
	_, at := startBroker(t, "--curve-key", server, "--curve-allow", allowed)
	startWorker(t, at, "echo", "--echo", "--curve-key", known, "--curve-server-key", public)
	if out := zdev.Must(t, "request", "--broker", at, "echo", "secret", "--curve-key", known, "--curve-server-key", public); out != "secret\n" {
		t.Errorf("%q", out)
	}
	for _, keys := range [][]string{nil, {"--curve-key", stranger, "--curve-server-key", public}} {
		args := append([]string{"request", "--broker", at, "echo", "body", "--timeout", "300ms"}, keys...)
		zdev.Try(t, args...).Expect(t, command.ExitNoAnswer, "no reply")
	}
}
