package chp

import (
	"errors"
	"fmt"
	"testing"

	"clustermap/sockets"
	"clustermap/zmtp"
)

// A server says which keys are updated most from the first question on, and an asker what has
// happened since the one before.
func TestHotKeys(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	set := func(key string, times int) {
		t.Helper()
		for i := range times {
			_, err := s.SetSync(ctx, key, fmt.Appendf(nil, "%d", i))
			must(t, err)
		}
	}
	set("/before", 20)
	first, err := ServerHot(ctx, s.Endpoints().Snapshot, 10, sockets.Security{})
	must(t, err)
	if len(first.Keys) != 0 || first.Updates != 0 {
		t.Errorf("counted before it was asked: %+v", first)
	}
	set("/hot", 30)
	set("/warm", 10)
	second, err := ServerHot(ctx, s.Endpoints().Snapshot, 10, sockets.Security{})
	must(t, err)
	set("/warm", 5)
	third := s.Hot(10)
	for name, c := range map[string]struct {
		got  HotKeys
		want string
	}{
		"after the first":  {second.Since(first), "40 /hot 30 /warm 10"},
		"after the second": {third.Since(second), "5 /warm 5"},
		"all":              {third.Since(HotKeys{}), "45 /hot 30 /warm 15"},
	} {
		text := fmt.Sprint(c.got.Updates)
		for _, k := range c.got.Keys {
			text += fmt.Sprintf(" %s %d", k.Key, k.Updates)
			if k.Unsure != 0 || k.Bytes < k.Updates*10 {
				t.Errorf("%s: %+v", name, k)
			}
		}
		if text != c.want {
			t.Errorf("%s: %s, want %s", name, text, c.want)
		}
	}
	if got := s.Hot(1); len(got.Keys) != 1 || string(got.Keys[0].Key) != "/hot" {
		t.Errorf("%+v", got)
	}
}

// An answer with as many keys as there may be, of the longest kind, arrives.
func TestManyLongHotKeys(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	s.Hot(0)
	for i := range 2 * mostHot {
		_, err := s.SetSync(ctx, fmt.Sprintf("/%0254d", i), []byte("v"))
		must(t, err)
	}
	h, err := ServerHot(ctx, s.Endpoints().Snapshot, 1<<30, sockets.Security{})
	if err != nil || len(h.Keys) != mostHot {
		t.Errorf("%d keys, %v", len(h.Keys), err)
	}
}

// Keys are for administrators.
func TestOnlyAdministratorsSeeHotKeys(t *testing.T) {
	t.Parallel()
	server, client := zmtp.GenerateKeyPair(), zmtp.GenerateKeyPair()
	s := startServer(t, ServerOptions{Security: sockets.Security{CurveServer: true, CurveSecretKey: server.Secret, Authenticate: sockets.AllowKeys(client.Public)}})
	var refusal *AdminError
	if _, err := ServerHot(testContext(t), s.Endpoints().Snapshot, 1, sockets.Security{CurveSecretKey: client.Secret, CurveServerKey: server.Public}); !errors.As(err, &refusal) {
		t.Errorf("%v", err)
	}
}
