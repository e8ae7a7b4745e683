package chp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"clustermap/internal/testenv"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// keyAccess gives the owners of keys their roles.
type keyAccess struct {
	mu      sync.Mutex
	roles   map[zmtp.PublicKey]*Role
	changed chan struct{}
}

func newKeyAccess(t testing.TB, roles map[zmtp.PublicKey]RoleOptions) *keyAccess {
	t.Helper()
	a := &keyAccess{roles: map[zmtp.PublicKey]*Role{}, changed: make(chan struct{})}
	for key, o := range roles {
		role, err := NewRole(o)
		must(t, err)
		a.roles[key] = role
	}
	return a
}

func (a *keyAccess) Authenticate(_ context.Context, r sockets.AuthRequest) (sockets.User, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if role := a.roles[r.PublicKey()]; role != nil {
		return sockets.User{ID: role.Name()}, nil
	}
	return sockets.User{}, sockets.ErrDenied
}

func (a *keyAccess) Role(p *sockets.Peer) *Role {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.roles[p.PublicKey()]
}

func (a *keyAccess) Changed() <-chan struct{} { return a.changed }

// The servers of a pair need no rights, and no right makes a client one of them: it neither follows nor hears their
// states.
func TestPairWithAccess(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	po, bo := pairOptions(t)
	security := withKeys(&po, &bo)
	access := newKeyAccess(t, map[zmtp.PublicKey]RoleOptions{security.CurveSecretKey.Public(): {Name: "c", Read: []string{""}, Write: []string{"/a/"}, Admin: true}})
	administrator := zmtp.GenerateKeyPair()
	for _, o := range []*ServerOptions{&po, &bo} {
		o.Security.Authenticate, o.Access, o.Admins = nil, access, []zmtp.PublicKey{administrator.Public}
	}
	primary := startAlone(t, po)
	c, err := NewClient(ClientOptions{Servers: []string{bo.Pair.Peer}, Security: security, HeartbeatTimeout: hang, SyncTimeout: hang, Logger: quiet()})
	must(t, err)
	defer c.Close()
	must(t, c.WaitActive(ctx))

	f := dialFollower(t, primary, func(o *sockets.Options) { o.Security = security })
	f.follow(primary)
	select {
	case <-f.gone:
	case <-testContext(t).Done():
		t.Fatal("a client follows as if it were the other server")
	}
	byAdministrator := security
	byAdministrator.CurveSecretKey = administrator.Secret
	for _, security := range []sockets.Security{security, byAdministrator} {
		refused := make(chan error, 100)
		sub, err := sockets.NewSub(sockets.Options{Security: security, Monitor: func(e sockets.Event) {
			if e.Kind == sockets.EventHandshakeFailed {
				select {
				case refused <- e.Err:
				default:
				}
			}
		}})
		must(t, err)
		defer sub.Close()
		must(t, sub.Connect(po.Pair.State))
		select {
		case <-refused:
		case <-testContext(t).Done():
			t.Fatal("a key that is no server's opens the state endpoint")
		}
	}

	backup := startPairServer(t, bo)
	_, err = c.SetSync(ctx, "/a/1", []byte("1"))
	must(t, err)
	if _, err := c.SetSync(ctx, "/b/1", []byte("1")); !isDenied(err, VerbWrite, "/b/1") {
		t.Errorf("a key that may not be written: %v", err)
	}
	eventually(t, "the backup follows", primary.inSync)
	if v, _ := backup.Get("/a/1"); string(v) != "1" {
		t.Errorf("the backup has %q", v)
	}
}

func isDenied(err error, verb Verb, key string) bool {
	why, ok := errors.AsType[*AccessError](err)
	return ok && why.Verb == verb && why.Key == key
}

// A pair without CURVE goes on with rights, though nobody may come by NULL: who is not the other server may nothing.
func TestPairWithAccessAndNoKeys(t *testing.T) {
	t.Parallel()
	po, bo := pairOptions(t)
	access := newKeyAccess(t, nil)
	po.Access, bo.Access = access, access
	primary := startPairServer(t, po)
	startPairServer(t, bo)
	eventually(t, "the backup follows", primary.inSync)
	c, err := NewClient(ClientOptions{Servers: []string{primary.Endpoints().Snapshot}, Logger: quiet()})
	must(t, err)
	defer c.Close()
	testenv.Eventually(t, "the client is denied", func() bool {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		return isDenied(c.WaitActive(ended), VerbRead, "")
	})
}

// The log names a key that a client may not have, and not each one that it asks for: it chooses them.
func TestLogOfDeniedKeysIsBounded(t *testing.T) {
	t.Parallel()
	server, client := zmtp.GenerateKeyPair(), zmtp.GenerateKeyPair()
	var log lockedLog
	s := startServer(t, ServerOptions{
		Audit: log.logger(), Logger: quiet(), Access: newKeyAccess(t, map[zmtp.PublicKey]RoleOptions{client.Public: {Name: "c", Read: []string{"/a/"}}}),
		Security: sockets.Security{CurveServer: true, CurveSecretKey: server.Secret},
	})
	sub, err := sockets.NewSub(sockets.Options{Security: sockets.Security{CurveSecretKey: client.Secret, CurveServerKey: server.Public}})
	must(t, err)
	defer sub.Close()
	const keys = 500
	for i := range keys {
		must(t, sub.Subscribe(fmt.Sprintf("/b/%d", i)))
	}
	must(t, sub.Connect(s.Endpoints().Publisher))
	eventually(t, "they are refused", func() bool { return s.Stats().Refused[ReasonAccess] == keys })
	eventually(t, "it is logged", func() bool { return strings.Contains(log.String(), "/b/") })
	if n := strings.Count(log.String(), "subscription refused"); n > keys/10 { // one, and some more on a very slow machine
		t.Errorf("%d lines", n)
	}
}

// Whoever tries one name after the other does not fill the log with them.
func TestLogOfDeniedNamesIsBounded(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	var log lockedLog
	s := startServer(t, ServerOptions{
		Audit: log.logger(), Logger: quiet(),
		Security: sockets.Security{PlainServer: true, Authenticate: sockets.AllowUsers(nil)},
	})
	const names = 200
	for i := range names {
		denied := make(chan struct{}, 1)
		d, err := sockets.NewDealer(sockets.Options{
			ReconnectInterval: sockets.ReconnectNever, Linger: sockets.LingerNone, Security: sockets.Security{PlainUsername: fmt.Sprint("name", i)},
			Monitor: func(e sockets.Event) {
				if e.Kind == sockets.EventHandshakeFailed {
					denied <- struct{}{}
				}
			},
		})
		must(t, err)
		must(t, d.Connect(s.Endpoints().Snapshot))
		select {
		case <-denied:
		case <-ctx.Done():
			t.Fatal("the client is not denied")
		}
		must(t, d.Close())
	}
	eventually(t, "it is logged", func() bool { return strings.Contains(log.String(), "user=name0") })
	if n := strings.Count(log.String(), "client denied"); n > names/2 { // 33, and more on a very slow machine
		t.Errorf("%d lines", n)
	}
}
