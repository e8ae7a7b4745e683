package chp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"clustermap/sockets"
	"clustermap/zmtp"
)

// No way of printing a client, a server, their options or another value that holds one of
// them shows a secret key or a password. A holder with unexported fields is the hardest:
// package fmt prints those without asking their types. Nothing runs here, since that
// reads fields without their locks.
func TestPrintingShowsNoSecret(t *testing.T) {
	t.Parallel()
	pair, other := zmtp.GenerateKeyPair(), zmtp.GenerateKeyPair()
	curve := sockets.Security{CurveSecretKey: pair.Secret, CurveServerKey: other.Public}
	asServer := sockets.Security{CurveServer: true, CurveSecretKey: pair.Secret}
	plain := sockets.Security{PlainUsername: "user", PlainPassword: "open sesame"}
	s, err := NewServer(ServerOptions{Security: asServer, Logger: quiet()})
	must(t, err)
	defer s.Close()
	idle := func(security sockets.Security) *Client {
		c, err := newClient(ClientOptions{Servers: []string{"tcp://127.0.0.1:1"}, Security: security, Logger: quiet()})
		must(t, err)
		c.follower.Start()
		t.Cleanup(func() { must(t, c.Close()) })
		return c
	}
	c, p := idle(curve), idle(plain)
	w := openWatch(t, c)
	type holder struct {
		c *Client
		s *Server
		w *Watch
	}
	for _, v := range []any{
		c, p, s, w, holder{c, s, w}, &holder{p, s, w}, []any{c, s}, map[string]any{"c": c},
		ClientOptions{Security: curve}, &ClientOptions{Security: plain}, ServerOptions{Security: asServer}, &ServerOptions{Security: asServer},
		ServerOptions{Pair: &PairOptions{PeerSecurity: curve}}, &ServerOptions{Pair: &PairOptions{PeerSecurity: plain}}, PairOptions{PeerSecurity: curve}, &PairOptions{PeerSecurity: plain},
		curve, &curve, plain, []sockets.Security{curve, plain}, sockets.Options{Security: plain}, c.Stats(), s.Stats(),
	} {
		var out bytes.Buffer
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%b", "%o", "%c", "%U", "%t", "%e"} {
			fmt.Fprintf(&out, verb+"\n", v)
		}
		slog.New(slog.NewTextHandler(&out, nil)).Info("", "v", v)
		slog.New(slog.NewJSONHandler(&out, nil)).Info("", "v", v)
		if text, err := json.Marshal(v); err == nil {
			out.Write(text)
		}
		secret := pair.Secret[:]
		for _, form := range []string{
			string(secret), strings.Trim(fmt.Sprint(secret), "[]"), fmt.Sprintf("%x", secret), fmt.Sprintf("%X", secret), pair.Secret.Z85(),
			fmt.Sprintf("0x%x, 0x%x, 0x%x", secret[0], secret[1], secret[2]), strings.Trim(fmt.Sprintf("%b", secret[:4]), "[]"),
			strings.Trim(fmt.Sprintf("%x", []any{secret[0], secret[1], secret[2], secret[3]}), "[]"), strings.Trim(fmt.Sprintf("%o", secret[:4]), "[]"),
			"open sesame", fmt.Sprintf("%x", "open sesame"),
		} {
			if strings.Contains(out.String(), form) {
				t.Errorf("printing a %T shows the secret as %q", v, form)
			}
		}
	}
}

// A client and a server print their type and endpoints, also while they run.
func TestPrintingWhatRuns(t *testing.T) {
	t.Parallel()
	s := startServer(t, ServerOptions{})
	c := followServer(t, s.Endpoints().Snapshot)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%d"} {
		if text, want := fmt.Sprintf(verb, s), "chp.Server("+s.Endpoints().Snapshot+")"; text != want {
			t.Errorf("%s prints %s, want %s", verb, text, want)
		}
		at := s.Endpoints().Snapshot
		if text, want := fmt.Sprintf(verb, c), "chp.Client("+at+", ACTIVE with "+at+")"; text != want {
			t.Errorf("%s prints %s, want %s", verb, text, want)
		}
	}
}

// A lease, a view and a watch print their type and key or prefix, also while they run,
// and no value.
func TestPrintingLeaseViewAndWatch(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	c := followServer(t, s.Endpoints().Snapshot)
	lease, err := c.KeepAlive(ctx, "/flags/dark", []byte(`"hush"`), time.Minute)
	must(t, err)
	view, err := NewView(c, "/flags/", ViewOptions[string]{})
	must(t, err)
	defer view.Close()
	must(t, view.WaitSynced(ctx))
	w := openWatch(t, c, "/flags/", "/k")
	nextEvent(t, w)
	for i := range 20 {
		lease.Update(fmt.Appendf(nil, `"hush %d"`, i))
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%d"} {
			for _, p := range []struct {
				v    any
				want string
			}{
				{lease, `chp.Registration("/flags/dark")`},
				{view, `chp.View("/flags/", keys: 1)`},
				{w, `chp.Watch(["/flags/" "/k"])`},
			} {
				if text := fmt.Sprintf(verb, p.v); text != p.want {
					t.Fatalf("%s prints %s, want %s", verb, text, p.want)
				}
			}
		}
	}
}
