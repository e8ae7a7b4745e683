package main

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"clustermap/internal/command"
	"clustermap/internal/commandtest"
	"clustermap/internal/loopback"
	"clustermap/internal/testenv"
	"clustermap/sockets"
)

var httpLine = regexp.MustCompile(`(?m)^zdev: http on (http://\S+)$`)

// web returns the URL of a device's --http.
func web(t *testing.T, p *commandtest.Process) string {
	t.Helper()
	testenv.Eventually(t, "the device names its address", func() bool { return httpLine.MatchString(p.Stderr.String()) })
	return httpLine.FindStringSubmatch(p.Stderr.String())[1]
}

func page(t *testing.T, url string) (int, string) {
	t.Helper()
	answer, err := http.Get(url)
	testenv.Must(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	testenv.Must(t, err)
	return answer.StatusCode, string(body)
}

// A proxy shows what its sockets have forwarded, also of peers that have gone.
func TestProxyShowsItsSockets(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	p := zdev.Start(t, "proxy", "--kind", "pipeline", "--frontend", "tcp://127.0.0.1:0", "--backend", "tcp://127.0.0.1:0", "--http", "127.0.0.1:0")
	at := p.Ready()
	pull := connected(t, sockets.NewPull, sockets.Options{}, at[1])
	push := connected(t, sockets.NewPush, sockets.Options{}, at[0])
	testenv.Must(t, push.Send(ctx, []byte("message")))
	_, err := pull.Recv(ctx)
	testenv.Must(t, err)
	testenv.Must(t, push.Close())
	url := web(t, p)
	for _, path := range []string{"/livez", "/readyz"} {
		if code, body := page(t, url+path); code != 200 || body != "ok\n" {
			t.Errorf("%s: %d %q", path, code, body)
		}
	}
	for _, line := range []string{`zmq_messages_received_total{socket="frontend"} 1`, `zmq_messages_sent_total{socket="backend"} 1`, `zmq_peers{socket="frontend"} 0`, `zmq_peers{socket="backend"} 1`, "go_goroutines "} {
		testenv.Eventually(t, line, func() bool {
			_, body := page(t, url+"/metrics")
			return strings.Contains(body, "\n"+line)
		})
	}
	endsWell(t, p)
}

// A cache and a broker show what they count; --http of the one cannot be that of the other.
func TestDevicesShowWhatTheyCount(t *testing.T) {
	t.Parallel()
	cache := zdev.Start(t, "cache", "--publisher", "bind:tcp://127.0.0.1:0", "--bind", "tcp://127.0.0.1:0", "--http", "127.0.0.1:0")
	cache.Ready()
	if _, body := page(t, web(t, cache)+"/metrics"); !strings.Contains(body, "\nzdev_cache_topics 0\n") || !strings.Contains(body, "\nzdev_cache_messages_total 0\n") {
		t.Error(body)
	}
	broker := zdev.Start(t, "broker", "--bind", "tcp://127.0.0.1:0", "--http", "127.0.0.1:0")
	broker.Ready()
	if _, body := page(t, web(t, broker)+"/metrics"); !strings.Contains(body, "\nzdev_broker_workers 0\n") || !strings.Contains(body, "\nzdev_broker_requests_total 0\n") {
		t.Error(body)
	}
	taken := strings.TrimPrefix(web(t, broker), "http://")

	freelance := zdev.Start(t, "freelance-serve", "--bind", "tcp://127.0.0.1:0", "--echo", "--http", "127.0.0.1:0")
	freelance.Ready()
	if _, body := page(t, web(t, freelance)+"/metrics"); !strings.Contains(body, "\nzdev_freelance_requests_total 0\n") || !strings.Contains(body, "\nzdev_freelance_waiting 0\n") {
		t.Error(body)
	}
	endsWell(t, freelance)
	for _, c := range []struct {
		code int
		args []string
		want string
	}{
		{command.ExitRefused, []string{"--http", taken}, "--http: "},
		{command.ExitUsage, []string{"--http", "8080"}, "must be HOST:PORT"},
		{command.ExitUsage, []string{"--http-name", "a.example"}, "--http-name needs --http"},
	} {
		zdev.Try(t, append([]string{"broker", "--bind", "tcp://127.0.0.1:0"}, c.args...)...).Expect(t, c.code, c.want)
	}
	endsWell(t, cache)
	endsWell(t, broker)
}

// A worker and Titanic are ready when they are registered with a broker, and show what they count before, too.
func TestReadyIsRegistered(t *testing.T) {
	t.Parallel()
	at := "tcp://" + loopback.Own() + ":5555"
	worker := zdev.Start(t, "worker", "echo", "--echo", "--broker", at, "--http", "127.0.0.1:0")
	titanic := zdev.Start(t, "titanic", "--data", t.TempDir(), "--broker", at, "--http", "127.0.0.1:0")
	devices := map[*commandtest.Process]string{worker: "\nzdev_worker_requests_total 0\n", titanic: "\nzdev_titanic_stored_total 0\n"}
	for p, line := range devices {
		url := web(t, p)
		if code, body := page(t, url+"/readyz"); code != 503 || body != "not registered with the broker\n" {
			t.Errorf("%s: %d %q", p.Name, code, body)
		}
		if code, body := page(t, url+"/livez"); code != 200 || body != "ok\n" {
			t.Errorf("%s: %d %q", p.Name, code, body)
		}
		if _, body := page(t, url+"/metrics"); !strings.Contains(body, line) {
			t.Errorf("%s: %s", p.Name, body)
		}
	}
	broker := zdev.Start(t, "broker", "--bind", at)
	broker.Ready()
	for p := range devices {
		p.Ready()
		if code, body := page(t, web(t, p)+"/readyz"); code != 200 || body != "ok\n" {
			t.Errorf("%s: %d %q", p.Name, code, body)
		}
	}
	if _, body := page(t, web(t, worker)+"/metrics"); !strings.Contains(body, "\nzdev_worker_connected 1\n") {
		t.Error(body)
	}
	endsWell(t, worker)
	endsWell(t, titanic)
}
