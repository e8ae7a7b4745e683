package chp

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"clustermap/sockets"
	"clustermap/zmtp"
)

// The log of a server says which keys were denied and which came and went, and noise of
// others does not hide that.
func TestLogSaysWhoWasDeniedAndWhoCame(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	keys, known, other := zmtp.GenerateKeyPair(), zmtp.GenerateKeyPair(), zmtp.GenerateKeyPair()
	var log lockedLog
	s := startServer(t, ServerOptions{Logger: log.logger(), Security: sockets.Security{
		CurveServer: true, CurveSecretKey: keys.Secret, Authenticate: sockets.AllowKeys(known.Public),
	}})
	for range 20 { // noise: connections without a word, and without CURVE
		noise, err := sockets.NewSub(sockets.Options{Linger: sockets.LingerNone, ReconnectInterval: sockets.ReconnectNever})
		must(t, err)
		must(t, noise.Connect(s.Endpoints().Publisher))
		must(t, noise.Close())
	}
	client := func(k zmtp.KeyPair) ClientOptions {
		return ClientOptions{Servers: []string{s.Endpoints().Snapshot}, Security: sockets.Security{CurveSecretKey: k.Secret, CurveServerKey: keys.Public}}
	}
	good, err := NewClient(client(known))
	must(t, err)
	must(t, good.WaitActive(ctx))
	must(t, good.Close())
	bad, err := NewClient(client(other))
	must(t, err)
	line := func(text, key string) func() bool {
		return func() bool {
			for l := range strings.Lines(log.String()) {
				if strings.Contains(l, text) && strings.Contains(l, key) {
					return true
				}
			}
			return false
		}
	}
	eventually(t, "the denied key is logged", line("client denied", other.Public.String()))
	eventually(t, "the end of the accepted one is logged", line("client disconnected", known.Public.String()))
	if !line("client connected", known.Public.String())() {
		t.Errorf("no line about the accepted key in:\n%s", log.String())
	}
	must(t, bad.Close())
}

// A full map has a line in the log for who filled it, and a crowd of refusals no more.
func TestLogSaysWhoseUpdatesAreRefused(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	var log lockedLog
	s := startServer(t, ServerOptions{Logger: log.logger(), MaxMapBytes: 4 << 20})
	c := followServer(t, s.Endpoints().Snapshot)
	var refused error
	for i := 0; refused == nil && i < 10_000; i++ {
		_, refused = c.SetSync(ctx, fmt.Sprintf("/%d", i), make([]byte, 1<<20))
	}
	if !errors.Is(refused, &MessageError{Reason: ReasonMapFull}) {
		t.Fatal(refused)
	}
	for range 100 {
		_, err := c.SetSync(ctx, "/more", make([]byte, 1<<20))
		if !errors.Is(err, ErrRefused) {
			t.Fatal(err)
		}
	}
	if n := strings.Count(log.String(), "updates refused"); n < 1 || n > 5 { // more than one on a very slow machine only
		t.Errorf("%d lines about refusals:\n%s", n, log.String())
	}
	if !strings.Contains(log.String(), "map full") {
		t.Errorf("no reason in:\n%s", log.String())
	}
}

// The log of a client says when it follows its server again.
func TestLogOfAClientSaysThatAnOutageIsOver(t *testing.T) {
	t.Parallel()
	s := newScripted(t, asOurs)
	var log lockedLog
	c := followScripted(t, ClientOptions{Logger: slog.New(warnings{log.logger().Handler()})}, s) // what a logger shows by default
	s.answer(1)
	must(t, c.WaitActive(testContext(t)))
	s.kvpub(pub{"k", 20, "after a gap"})
	s.answer(30)
	eventually(t, "the end of the outage is logged", func() bool { return strings.Contains(log.String(), "following the server again") })
}

// The log for debugging says where a server listens.
func TestLogSaysWhereAServerListens(t *testing.T) {
	t.Parallel()
	var log lockedLog
	s := startServer(t, ServerOptions{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	want := "msg=listening port=publisher endpoint=" + s.Endpoints().Publisher + "\n"
	eventually(t, "the endpoint is logged", func() bool { return strings.Contains(log.String(), want) })
}

// Events are readable in a log of JSON.
func TestLinkEventInJSON(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(LinkEvent{Kind: LinkLost, Server: "tcp://a:1", Sequence: 3, Err: ErrSilent})
	must(t, err)
	if want := `{"Kind":"lost","Server":"tcp://a:1","Sequence":3,"Err":"chp: the server is silent"}`; string(text) != want {
		t.Errorf("%s, want %s", text, want)
	}
	text, err = json.Marshal(Event{Op: OpDelete, Cause: CauseExpired, TTL: time.Second})
	must(t, err)
	if !strings.Contains(string(text), `"Op":"delete","Cause":"expired"`) {
		t.Errorf("%s", text)
	}
}
