package chp

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"clustermap/internal/loopback"
	"clustermap/internal/wake"
	"clustermap/sockets"
)

// mustBeRefused fails if a follower is sent anything but a challenge before it is
// disconnected.
func (f *wireFollower) mustBeRefused() {
	f.t.Helper()
	select {
	case <-f.gone:
	case <-testContext(f.t).Done():
		f.t.Fatal("the follower is not disconnected")
	}
	for {
		m, err := f.Recv(wake.Ended)
		if err != nil {
			return
		}
		if string(m[0]) != nameChallenge {
			f.t.Errorf("the follower was sent %q", m[0])
		}
	}
}

// Without CURVE a client that is not the server at the other one's state endpoint gets
// neither the map nor the identities of clients: not without a proof, not with one by
// another key, and not while nobody is known to answer at that endpoint.
func TestPairStrangerDoesNotFollow(t *testing.T) {
	t.Parallel()
	s, c := activePrimary(t)
	_, err := c.SetSync(testContext(t), "/a", []byte("1"))
	must(t, err)

	f := dialStranger(t, s) // nobody was found
	f.say(nameFollow, new(followRequest).append(nil))
	f.mustBeRefused()

	f = dialFollower(t, s)
	f.proves = false
	f.say(nameFollow, new(followRequest).append(nil))
	f.mustBeRefused()

	f = dialFollower(t, s)
	f.proves = false
	f.say(nameFollow, new(followRequest).append(nil))
	m, err := f.Recv(testContext(t))
	must(t, err)
	_, f.key, _ = ed25519.GenerateKey(nil)
	f.prove(m[1])
	f.mustBeRefused()
}

// A stranger that asks for the map and does not answer the challenge is in the log, also if it
// leaves, or asks again, before its time is over.
func TestPairStrangerThatGivesUpIsLogged(t *testing.T) {
	t.Parallel()
	for name, givesUp := range map[string]func(*wireFollower){
		"it leaves":     func(f *wireFollower) { must(f.t, f.Close()) },
		"it asks again": func(f *wireFollower) { f.say(nameFollow, new(followRequest).append(nil)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			po, bo := pairOptions(t)
			var told lockedLog
			po.Logger = told.logger()
			s := startAlone(t, po)
			must(t, pairClient(t, po, bo).WaitActive(testContext(t)))
			f := dialFollower(t, s)
			f.proves = false
			f.say(nameFollow, new(followRequest).append(nil))
			m, err := f.Recv(testContext(t))
			must(t, err)
			if string(m[0]) != nameChallenge {
				t.Fatalf("the follower was sent %q", m[0])
			}
			givesUp(f)
			eventually(t, "the stranger is in the log", func() bool {
				return strings.Contains(told.String(), `"refused a follower" remote=127.0.0.1`)
			})
		})
	}
}

// The other server follows after it has proved that it answers at its state endpoint. If
// both have a secret, one that does not know it does not follow.
func TestPairSecret(t *testing.T) {
	t.Parallel()
	for name, secrets := range map[string][2]string{
		"no secret":     {"", ""},
		"the same":      {"0123456789abcdef", "0123456789abcdef"},
		"another one":   {"0123456789abcdef", "0123456789abcdeF"},
		"none":          {"0123456789abcdef", ""},
		"not yet there": {"", "0123456789abcdef"}, // while it is introduced
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			po, bo := pairOptions(t)
			po.Pair.Secret, bo.Pair.Secret = []byte(secrets[0]), []byte(secrets[1])
			var told, refused lockedLog
			po.Logger, bo.Logger = told.logger(), refused.logger()
			primary := startAlone(t, po)
			c := pairClient(t, po, bo)
			_, err := c.SetSync(testContext(t), "/a", []byte("1"))
			must(t, err)
			backup := startPairServer(t, bo)
			if secrets[0] == "" || secrets[0] == secrets[1] {
				eventually(t, "the backup follows", primary.inSync)
				return
			}
			eventually(t, "the backup is refused", func() bool { return strings.Contains(told.String(), "refused a follower") })
			eventually(t, "the backup says why it does not follow", func() bool {
				return strings.Contains(refused.String(), "both need the same pair secret")
			})
			if backup.Len() > 0 {
				t.Error("the backup has the map")
			}
		})
	}
}

// A server of an earlier version, which proves nothing, follows from the address of the
// other server's state endpoint, so that a pair can be upgraded. It does not from
// elsewhere, nor if there is a secret.
func TestPairEarlierVersionFollowsByAddress(t *testing.T) {
	t.Parallel()
	s, _ := activePrimary(t)
	o, _ := pairOptions(t)
	o.Pair.Secret = []byte("0123456789abcdef")
	secret := startAlone(t, o)
	at := func(s pairServer, host string) *wireFollower {
		f := dialStranger(t, s)
		s.finds(t, host, nil)
		f.say(nameFollow, new(followRequest).append(nil))
		return f
	}
	at(secret, "127.0.0.1").mustBeRefused()
	if host := loopback.Own(); host != "127.0.0.1" {
		o, other := pairOptions(t)
		s, err := NewServer(o)
		must(t, err)
		s.admins.local, s.pair.Began = func(string) bool { return false }, time.Time{} // as if they were on other machines
		elsewhere := servePair(t, s)
		must(t, pairClient(t, o, other).WaitActive(testContext(t)))
		at(elsewhere, host).mustBeRefused()
	}
	f := at(s, "127.0.0.1")
	m, err := f.Recv(testContext(t))
	must(t, err)
	if string(m[0]) != nameBase {
		t.Errorf("it is sent %q", m[0])
	}
}

// A secret that is too short, or that CURVE makes pointless, is refused.
func TestPairSecretOptions(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*ServerOptions){
		"short":      func(o *ServerOptions) { o.Pair.Secret = []byte("0123456789abcde") },
		"with CURVE": func(o *ServerOptions) { o.Pair.Secret = make([]byte, 16) },
	} {
		o, other := pairOptions(t)
		if name == "with CURVE" {
			withKeys(&o, &other)
		}
		change(&o)
		s, err := NewServer(o)
		if bad := (*OptionError)(nil); !errors.As(err, &bad) || bad.Field != "Pair.Secret" {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			must(t, s.Close())
		}
	}
}

// No verb prints the secret of a pair.
func TestPairSecretIsNotPrinted(t *testing.T) {
	t.Parallel()
	secret := []byte("0123456789abcdef")
	o := PairOptions{Secret: secret}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		for _, v := range []any{o, &o, ServerOptions{Pair: &o}} {
			text := fmt.Sprintf(verb, v)
			for _, form := range []string{string(secret), hex.EncodeToString(secret), "48 49 50", "0x30, 0x31"} {
				if strings.Contains(text, form) {
					t.Errorf("%s of %T prints the secret", verb, v)
				}
			}
		}
	}
}

// What a client is sent, of this package or not, has no other client's identity: with it
// one could send updates as that client.
func TestSnapshotsHaveNoClientIdentities(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	c := startClient(t, s, ClientOptions{})
	_, err := c.SetSync(ctx, "/a", []byte("1"))
	must(t, err)
	var ids [][]byte
	for id := range s.members.Known() {
		raw, err := hex.DecodeString(id)
		must(t, err)
		ids = append(ids, []byte(id), raw)
	}
	if len(ids) == 0 {
		t.Fatal("the server knows no client")
	}
	for _, properties := range []map[string]string{nil, {"X-CHP": "clustermap/1"}} {
		d, err := sockets.NewDealer(sockets.Options{Metadata: properties, Linger: sockets.LingerNone})
		must(t, err)
		must(t, d.Connect(s.Endpoints().Snapshot))
		must(t, d.Send(ctx, []byte("ICANHAZ?"), nil))
		for done := false; !done; {
			m, err := d.Recv(ctx)
			must(t, err)
			for _, frame := range m {
				for _, id := range ids {
					if bytes.Contains(frame, id) {
						t.Errorf("%q has the identity of a client", m)
					}
				}
			}
			done = string(m[0]) == "KTHXBAI"
		}
		must(t, d.Close())
	}
}
