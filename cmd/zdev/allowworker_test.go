package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"clustermap/internal/command"
	"clustermap/zmtp"
)

// A worker of another process does not get the requests of zdev titanic: it is told, and does
// not say that it is ready, and the broker says who it was.
func TestNoOtherWorkerGetsTitanicsRequests(t *testing.T) {
	t.Parallel()
	broker, at := startBroker(t)
	startTitanic(t, at, t.TempDir())
	startWorker(t, at, "echo", "--echo")
	other := zdev.Start(t, "worker", "--broker", at, "titanic.request", "--echo")
	other.Await("refuses a worker of titanic.request")
	broker.Await(`worker refused.*service=titanic.request reason="another worker has the service" remote=127\.0\.0\.1:`)
	if text := other.Stderr.String(); strings.Contains(text, "ready") {
		t.Errorf("%s", text)
	}
	for range 8 {
		id := strings.TrimSpace(zdev.Must(t, "submit", "echo", "hello", "--broker", at))
		if out := zdev.Must(t, "fetch", id, "--wait", "--timeout", "100s", "--broker", at); out != "hello\n" {
			t.Errorf("%q", out)
		}
	}
}

// Rules of --allow-worker say who may be a worker of a service, and the longest one counts.
func TestAllowWorkerRules(t *testing.T) {
	t.Parallel()
	key := zmtp.GenerateKeyPair().Public.String()
	file := filepath.Join(t.TempDir(), "rules")
	if err := os.WriteFile(file, []byte("# who may do what\n\npay.*="+key+"\nhere.* = 10.0.0.0/8, 127.0.0.0/8\n*=local\nno.*=\nno.yes=any\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	broker, at := startBroker(t, "--allow-worker", file, "--allow-worker", "titanic.*=10.9.9.9")
	for _, service := range []string{"pay.me", "no.thing", "titanic.close"} {
		zdev.Start(t, "worker", "--broker", at, service, "--echo").Await("refuses a worker")
		broker.Await(`service=` + service + ` reason="not allowed"`)
	}
	for _, service := range []string{"here.a", "no.yes", "b"} {
		startWorker(t, at, service, "--echo")
		if out := zdev.Must(t, "request", service, "x", "--timeout", "100s", "--broker", at); out != "x\n" {
			t.Errorf("%s: %q", service, out)
		}
	}
	secret := zmtp.GenerateKeyPair().Secret.Z85()
	for rule, message := range map[string]string{
		"x":                    "no such file",
		"=any":                 "begins with the name of a service",
		"x=any,everyone":       "peer 2 is neither",
		"x=" + secret + secret: "peer 1 is neither",
	} {
		out := zdev.Try(t, "broker", "--bind", "tcp://127.0.0.1:*", "--allow-worker", rule)
		out.Expect(t, command.ExitUsage, message)
		if strings.Contains(out.Stderr, secret) {
			t.Errorf("a secret key is printed: %s", out.Stderr)
		}
	}
}
