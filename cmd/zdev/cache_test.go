package main

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"clustermap/internal/command"
	"clustermap/internal/commandtest"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// cacheAnswers publishes, and checks the last values that a new subscriber gets.
func cacheAnswers(t *testing.T, in, out string, publisher, subscriber sockets.Security) {
	t.Helper()
	ctx := testContext(t)
	pub := connected(t, sockets.NewPub, sockets.Options{Security: publisher}, in)
	if err := pub.WaitSubscribers(ctx, "", 1); err != nil {
		t.Fatal(err)
	}
	early := connected(t, sockets.NewSub, sockets.Options{Security: subscriber}, out)
	if err := early.Subscribe(""); err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		for _, topic := range []string{"a1", "a2", "b"} {
			if err := pub.Send(ctx, []byte(topic), []byte(strconv.Itoa(n+1)), nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	// They come live or as last values.
	for last := ""; last != "b3"; {
		m, err := early.Recv(ctx)
		if err != nil {
			t.Fatal(err)
		}
		last = string(m[0]) + string(m[1])
	}
	late := connected(t, sockets.NewSub, sockets.Options{Security: subscriber}, out)
	if err := late.Subscribe("a"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"a1", "a2"} {
		if m, err := late.Recv(ctx); err != nil || len(m) != 3 || string(m[0]) != want || string(m[1]) != "3" {
			t.Fatalf("%q, %v; want %s", m, err, want)
		}
	}
}

// TestCache: the device sends last values to a new subscriber, prints statistics, and
// ends after a signal.
func TestCache(t *testing.T) {
	t.Parallel()
	p := zdev.Start(t, "cache", "--publisher", "tcp://127.0.0.1:*", "--bind", "tcp://127.0.0.1:0", "--stats", "20ms", "--json", "--max-bytes", "1MiB", "--expiry", "1h")
	at := p.Ready()
	if len(at) != 2 {
		t.Fatalf("ready at %q", at)
	}
	cacheAnswers(t, at[0], at[1], sockets.Security{}, sockets.Security{})
	for {
		line := commandtest.Object(t, p.Line())
		if line["replayed"].(float64) >= 2 && line["subscribers"].(float64) == 2 {
			if line["topics"] != 3.0 || line["evicted"] != 0.0 {
				t.Errorf("%v", line)
			}
			break
		}
	}
	endsWell(t, p)
}

// TestCacheCurve: both sides of the device with CURVE.
func TestCacheCurve(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "server.key")
	public, err := zmtp.ParsePublicKey(strings.TrimSpace(zdev.Must(t, "keygen", "--out", file)))
	if err != nil {
		t.Fatal(err)
	}
	known := zmtp.GenerateKeyPair()
	p := zdev.Start(t, "cache", "--publisher", "tcp://127.0.0.1:*", "--bind", "tcp://127.0.0.1:*",
		"--curve-key", file, "--curve-allow", known.Public.String())
	at := p.Ready()
	security := sockets.Security{CurveSecretKey: known.Secret, CurveServerKey: public}
	cacheAnswers(t, at[0], at[1], security, security)
	endsWell(t, p)
}

func TestCacheUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"cache"},
		{"cache", "--publisher", "tcp://127.0.0.1:1"},
		{"cache", "--bind", "tcp://127.0.0.1:*"},
		{"cache", "--publisher", "tcp://127.0.0.1:1", "--bind", "tcp://127.0.0.1:*", "--max-topics", "0"},
		{"cache", "--publisher", "tcp://127.0.0.1:1", "--bind", "tcp://127.0.0.1:*", "--max-topics", "3000000000"},
		{"cache", "--publisher", "tcp://127.0.0.1:1", "--bind", "tcp://127.0.0.1:*", "--expiry", "-1s"},
		{"cache", "--publisher", "tcp://127.0.0.1:1", "--bind", "tcp://127.0.0.1:*", "--json"},
		{"cache", "--publisher", "nonsense", "--bind", "tcp://127.0.0.1:*"},
	} {
		zdev.Try(t, args...).Expect(t, command.ExitUsage, "zdev: ")
	}
}
