package sockets

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"clustermap/zmtp"
)

func TestSecurityOptions(t *testing.T) {
	t.Parallel()
	ours, other := zmtp.GenerateKeyPair(), zmtp.GenerateKeyPair()
	long := strings.Repeat("x", 256)
	for name, c := range map[string]struct {
		security Security
		fields   []string // that are wrong
	}{
		"NULL":                    {Security{}, nil},
		"a domain":                {Security{ZAPDomain: "d"}, nil},
		"a PLAIN server":          {Security{PlainServer: true}, nil},
		"a PLAIN client":          {Security{PlainUsername: "u", PlainPassword: "p"}, nil},
		"no password":             {Security{PlainUsername: "u"}, nil},
		"a CURVE server":          {Security{CurveServer: true, CurveSecretKey: ours.Secret}, nil},
		"a CURVE client":          {Security{CurveSecretKey: ours.Secret, CurvePublicKey: ours.Public, CurveServerKey: other.Public}, nil},
		"no user name":            {Security{PlainPassword: "p"}, []string{"PlainUsername"}},
		"both roles of PLAIN":     {Security{PlainServer: true, PlainUsername: "u"}, []string{"PlainServer"}},
		"both mechanisms":         {Security{PlainServer: true, CurveServer: true, CurveSecretKey: ours.Secret}, []string{""}},
		"a server without a key":  {Security{CurveServer: true}, []string{"CurveSecretKey"}},
		"a client without a key":  {Security{CurveServerKey: other.Public}, []string{"CurveSecretKey"}},
		"only a public key":       {Security{CurvePublicKey: ours.Public}, []string{"CurveSecretKey", "CurveServerKey"}},
		"no key of the server":    {Security{CurveSecretKey: ours.Secret}, []string{"CurveServerKey"}},
		"a foreign public key":    {Security{CurveServer: true, CurveSecretKey: ours.Secret, CurvePublicKey: other.Public}, []string{"CurvePublicKey"}},
		"both roles of CURVE":     {Security{CurveServer: true, CurveSecretKey: ours.Secret, CurveServerKey: other.Public}, []string{"CurveServer"}},
		"texts that are too long": {Security{PlainUsername: long, PlainPassword: long, ZAPDomain: long}, []string{"PlainUsername", "PlainPassword", "ZAPDomain"}},
	} {
		_, err := Options{Security: c.security}.withDefaults()
		var got []string
		if err != nil {
			for _, e := range err.(interface{ Unwrap() []error }).Unwrap() {
				var typed *OptionError
				if !errors.As(e, &typed) {
					t.Fatalf("%s: %v", name, e)
				}
				got = append(got, typed.Field)
			}
		}
		var want []string
		for _, f := range c.fields {
			want = append(want, strings.TrimSuffix("Security."+f, "."))
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: wrong are %v, want %v", name, got, want)
		}
	}
}

// TestSecuritySecrets: no secret is in anything that is printed.
func TestSecuritySecrets(t *testing.T) {
	t.Parallel()
	keys := zmtp.GenerateKeyPair()
	curve := Security{CurveSecretKey: keys.Secret, CurveServerKey: zmtp.GenerateKeyPair().Public}
	broken := curve
	broken.PlainUsername, broken.PlainPassword = "user", "secret!"
	_, invalid := NewDealer(Options{Security: broken})
	_, foreign := NewDealer(Options{Security: Security{CurveServer: true, CurveSecretKey: keys.Secret, CurvePublicKey: curve.CurveServerKey}})
	dealer := open(t, NewDealer, Options{Security: curve})
	options := Options{Security: curve}
	plain := Options{Security: Security{PlainUsername: "user", PlainPassword: "secret!"}}
	request := AuthRequest{Mechanism: "PLAIN", username: "user", password: "secret!"}
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("", "a", options, "b", plain, "c", request)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("", "a", options.Security, "b", plain.Security, "c", request)
	texts := []string{invalid.Error(), foreign.Error(), log.String()}
	for _, v := range []any{options, &options, options.Security, &options.Security, plain, &plain, plain.Security, broken, request, &request, dealer, keys} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%X", "%q", "%d"} {
			texts = append(texts, fmt.Sprintf(verb, v))
		}
	}
	secret := keys.Secret[:]
	for _, text := range texts {
		lower := strings.ToLower(text)
		for _, forbidden := range []string{
			"secret!", hex.EncodeToString([]byte("secret!")), keys.Secret.Z85(), hex.EncodeToString(secret),
			strings.Trim(fmt.Sprint(secret), "[]"), strings.TrimPrefix(fmt.Sprintf("%#v", secret[:8]), "[]byte{"),
		} {
			if strings.Contains(lower, strings.ToLower(forbidden)) {
				t.Errorf("%q is in %s", forbidden, text)
			}
		}
	}
	if text := fmt.Sprint(options); !strings.Contains(text, "CURVE client "+keys.Public.String()) {
		t.Errorf("the public key is missing in %s", text)
	}
}

// TestOptionsSecrets: the password for a proxy is not in anything that is printed
// either, and the other options are.
func TestOptionsSecrets(t *testing.T) {
	t.Parallel()
	o := Options{SOCKSProxy: "localhost:1080", SOCKSUser: "user", SOCKSPassword: "secret!"}
	dealer := open(t, NewDealer, o)
	long := o
	long.SOCKSPassword = strings.Repeat("secret!", 40)
	_, invalid := NewDealer(long)
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("", "a", o, "b", &o)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("", "a", o, "b", &o)
	texts := []string{invalid.Error(), log.String()}
	for _, v := range []any{o, &o, []Options{o}, struct{ O Options }{o}, dealer} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%X", "%q", "%d"} {
			texts = append(texts, fmt.Sprintf(verb, v))
		}
	}
	for _, text := range texts {
		lower := strings.ToLower(text)
		for _, forbidden := range []string{"secret!", hex.EncodeToString([]byte("secret!"))} {
			if strings.Contains(lower, forbidden) {
				t.Errorf("%q is in %s", forbidden, text)
			}
		}
	}
	for _, want := range []string{"SOCKSProxy:localhost:1080", "SOCKSUser:user", "SOCKSPassword:(hidden)", "Security:Security(NULL)"} {
		for _, v := range []any{o, &o} {
			if text := fmt.Sprintf("%+v", v); !strings.Contains(text, want) {
				t.Errorf("%s is missing in %s", want, text)
			}
		}
	}
	if text := fmt.Sprintf("%+v", Options{}); !strings.Contains(text, "SOCKSPassword: ") {
		t.Errorf("a password that there is not is in %s", text)
	}
}

// pair is the two ends of a mechanism.
type pair struct{ server, client Security }

// pairs is those of all mechanisms; the server lets in its client as the user
// "user".
func pairs() map[string]pair {
	server, client := zmtp.GenerateKeyPair(), zmtp.GenerateKeyPair()
	named := func(allow Authenticator) Authenticator {
		return func(ctx context.Context, r AuthRequest) (User, error) {
			_, err := allow(ctx, r)
			return User{ID: "user", Metadata: map[string]string{"Colour": r.Mechanism}}, err
		}
	}
	return map[string]pair{
		"NULL": {Security{Authenticate: named(func(context.Context, AuthRequest) (User, error) { return User{}, nil })}, Security{}},
		"PLAIN": {Security{PlainServer: true, Authenticate: named(AllowUsers(map[string]string{"user": "secret"}))},
			Security{PlainUsername: "user", PlainPassword: "secret"}},
		"CURVE": {Security{CurveServer: true, CurveSecretKey: server.Secret, Authenticate: named(AllowKeys(client.Public))},
			Security{CurveSecretKey: client.Secret, CurveServerKey: server.Public}},
	}
}

// TestSecurityTraffic: messages of all shapes pass both ways, with either side as the
// server, and both know their peer.
func TestSecurityTraffic(t *testing.T) {
	t.Parallel()
	shapes := [][][]byte{
		{{}}, {bytes.Repeat([]byte("a"), 255)}, {bytes.Repeat([]byte("b"), 256)}, {{}, []byte("two"), {}, []byte("four")},
		{bytes.Repeat([]byte("c"), 1<<20), []byte("end")},
	}
	for name, p := range pairs() {
		for _, serverBinds := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/server binds=%v", name, serverBinds), func(t *testing.T) {
				t.Parallel()
				ctx := testContext(t)
				seen, met := newEvents(), newEvents()
				ours, theirs := Options{Security: p.server, Monitor: seen.Tell}, Options{Security: p.client, Monitor: met.Tell}
				routerOptions, dealerOptions := ours, theirs
				if !serverBinds {
					routerOptions, dealerOptions = theirs, ours
				}
				router := bind(t, NewRouter, routerOptions)
				dealer := open(t, NewDealer, dealerOptions)
				must(t, dealer.Connect(router.LastEndpoint()))
				for _, m := range shapes {
					for range 5 {
						must(t, dealer.Send(ctx, m...))
					}
					for range 5 {
						got, err := router.Recv(ctx)
						must(t, err)
						must(t, router.Send(ctx, got...))
					}
					for range 5 {
						got, err := dealer.Recv(ctx)
						must(t, err)
						if show(texts(got)...) != show(texts(m)...) {
							t.Fatalf("%s came back as %s", show(texts(m)...), show(texts(got)...))
						}
					}
				}
				peer := seen.Await(t, EventHandshakeSucceeded).Peer
				user, _ := peer.Property("user-id")
				colour, _ := peer.Property("Colour")
				if peer.UserID() != "user" || user != "user" || colour != name {
					t.Errorf("user %q, %q of colour %q", peer.UserID(), user, colour)
				}
				if got, want := peer.PublicKey(), p.client.publicKey(); got != want {
					t.Errorf("the client's key is %v, want %v", got, want)
				}
				if got, want := met.Await(t, EventHandshakeSucceeded).Peer.PublicKey(), p.client.CurveServerKey; got != want {
					t.Errorf("the server's key is %v, want %v", got, want)
				}
			})
		}
	}
}

// TestSecurityPublish: subscriptions go through a codec as well.
func TestSecurityPublish(t *testing.T) {
	t.Parallel()
	for name, p := range pairs() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			pub := bind(t, NewPub, Options{Security: p.server, WaitSubscriber: true})
			sub := open(t, NewSub, Options{Security: p.client})
			must(t, sub.Subscribe("a"))
			must(t, sub.Connect(pub.LastEndpoint()))
			for i := range 100 {
				must(t, pub.Send(ctx, fmt.Appendf(nil, "a%d", i), bytes.Repeat([]byte{byte(i)}, i*100)))
			}
			for i := range 100 {
				m, err := sub.Recv(ctx)
				must(t, err)
				if string(m[0]) != fmt.Sprint("a", i) || len(m[1]) != i*100 {
					t.Fatalf("message %d is %.10q", i, m)
				}
			}
		})
	}
}

// refusal has the errors that both sides must get.
type refusal struct {
	server, client error
	status         string // that the client is told
	retried        bool   // by the client
}

// TestSecurityRefused: a client without access is not let in, both sides know why, and
// the client tries again only if that may help.
func TestSecurityRefused(t *testing.T) {
	t.Parallel()
	p := pairs()
	stranger := zmtp.GenerateKeyPair()
	wrongPassword, wrongUser := p["PLAIN"].client, p["PLAIN"].client
	wrongPassword.PlainPassword, wrongUser.PlainUsername = "Secret", "User"
	unknownKey, wrongServer := p["CURVE"].client, p["CURVE"].client
	unknownKey.CurveSecretKey, wrongServer.CurveServerKey = stranger.Secret, stranger.Public
	authenticated := func(s Security, err error) Security {
		s.Authenticate = func(context.Context, AuthRequest) (User, error) { return User{}, err }
		return s
	}
	failed := errors.New("no database")
	none := p["PLAIN"].server
	none.Authenticate = nil
	enforced := Security{ZAPDomain: "domain", ZAPEnforceDomain: true}
	denied := refusal{ErrDenied, zmtp.ErrRefused, "400", false}
	for name, c := range map[string]struct {
		server, client Security
		want           refusal
	}{
		"wrong password":       {p["PLAIN"].server, wrongPassword, denied},
		"wrong user":           {p["PLAIN"].server, wrongUser, denied},
		"unknown key":          {p["CURVE"].server, unknownKey, denied},
		"wrong server":         {p["CURVE"].server, wrongServer, refusal{server: zmtp.ErrCryptographic, retried: true}},
		"NULL denied":          {authenticated(Security{}, ErrDenied), Security{}, denied},
		"NULL to PLAIN":        {p["PLAIN"].server, Security{}, refusal{server: zmtp.ErrMechanism, client: zmtp.ErrMechanism}},
		"PLAIN to CURVE":       {p["CURVE"].server, p["PLAIN"].client, refusal{server: zmtp.ErrMechanism, client: zmtp.ErrMechanism}},
		"two servers":          {p["CURVE"].server, p["CURVE"].server, refusal{server: nil, retried: true}},
		"PLAIN failed":         {authenticated(p["PLAIN"].server, failed), p["PLAIN"].client, refusal{failed, zmtp.ErrRefused, "500", false}},
		"CURVE failed":         {authenticated(p["CURVE"].server, failed), p["CURVE"].client, refusal{failed, zmtp.ErrRefused, "500", false}},
		"PLAIN for now":        {authenticated(p["PLAIN"].server, ErrTemporary), p["PLAIN"].client, refusal{server: ErrTemporary, retried: true}},
		"CURVE for now":        {authenticated(p["CURVE"].server, ErrTemporary), p["CURVE"].client, refusal{server: ErrTemporary, retried: true}},
		"nobody authenticates": {none, p["PLAIN"].client, refusal{server: ErrNoAuthenticator, retried: true}},
		"enforced for nobody":  {enforced, Security{}, refusal{server: ErrNoAuthenticator, retried: true}},
	} {
		if name == "two servers" {
			continue // both wait: nothing happens until the time for it is over
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			atServer, atClient := newEvents(), newEvents()
			router := bind(t, NewRouter, Options{Security: c.server, Monitor: atServer.Tell})
			dealer := open(t, NewDealer, Options{Security: c.client, Linger: LingerNone, Monitor: atClient.Tell, ReconnectStop: ReconnectStopOnProtocolError})
			must(t, dealer.Connect(router.LastEndpoint()))
			_ = dealer.TrySend([]byte("must not arrive")) // it fails if the client has already given up
			if e := atServer.Await(t, EventHandshakeFailed); !errors.Is(e.Err, c.want.server) {
				t.Errorf("the server says %v", e.Err)
			}
			e := atClient.Await(t, EventHandshakeFailed)
			var refused *zmtp.ProtocolError
			if c.want.client != nil && !errors.Is(e.Err, c.want.client) {
				t.Errorf("the client says %v", e.Err)
			}
			if c.want.status != "" && (!errors.As(e.Err, &refused) || refused.Reason != c.want.status) {
				t.Errorf("the client says %v, which is not of status %s", e.Err, c.want.status)
			}
			if c.want.retried {
				atClient.Await(t, EventConnectRetried)
			} else {
				eventually(t, "the client gives up", func() bool {
					return len(dealer.Endpoints()) == 0
				})
				if atClient.Count(EventConnectRetried) > 0 {
					t.Error("the client tries again")
				}
			}
			must(t, dealer.Close())
			if atServer.Count(EventHandshakeSucceeded)+atClient.Count(EventHandshakeSucceeded) > 0 {
				t.Error("it was let in")
			}
		})
	}
}

// TestSecurityNothingBefore: nothing that a peer sends without having been let
// in reaches the application.
func TestSecurityNothingBefore(t *testing.T) {
	t.Parallel()
	for name, p := range pairs() {
		if name == "NULL" {
			continue
		}
		seen := newEvents()
		router := bind(t, NewRouter, Options{Security: p.server, Monitor: seen.Tell})
		for _, data := range [][]byte{
			wire("message"), ready("DEALER", nil), append(ready("DEALER", nil), wire("message")...),
			zmtp.AppendCommand(nil, "INITIATE", nil), zmtp.AppendCommand(nil, "MESSAGE", make([]byte, 100)),
			zmtp.AppendError(nil, "400"), zmtp.AppendCommand(nil, "HELLO", nil),
			zmtp.AppendCommand(nil, "HELLO", make([]byte, 194)), make([]byte, 1000),
		} {
			r := dialRaw(t, router.LastEndpoint())
			r.Send(zmtp.AppendGreeting(nil, zmtp.Greeting{Major: 3, Minor: 1, Mechanism: name}), data)
			r.Ended()
			var typed *zmtp.ProtocolError
			if e := seen.Await(t, EventHandshakeFailed); !errors.As(e.Err, &typed) {
				t.Errorf("%s: %v", name, e.Err)
			}
		}
		if n := seen.Count(EventHandshakeSucceeded); n > 0 {
			t.Errorf("%s: %d were let in", name, n)
		}
	}
}

// TestSecurityUserForged: a peer cannot say itself which user it is.
func TestSecurityUserForged(t *testing.T) {
	t.Parallel()
	seen := newEvents()
	router := bind(t, NewRouter, Options{Monitor: seen.Tell})
	properties := zmtp.AppendProperty(nil, "Socket-Type", []byte("DEALER"))
	properties = zmtp.AppendProperty(properties, "User-Id", []byte("root"))
	r := dialRaw(t, router.LastEndpoint())
	r.Send(greeting(1), zmtp.AppendCommand(nil, "READY", properties))
	peer := seen.Await(t, EventHandshakeSucceeded).Peer
	user, ok := peer.Property("User-Id")
	kind, _ := peer.Property("Socket-Type")
	if peer.UserID() != "" || user != "" || ok || kind != "DEALER" {
		t.Errorf("user %q, %q %v, type %q", peer.UserID(), user, ok, kind)
	}
}

// TestSecurityReconnect: with CURVE too, messages wait for the next connection,
// which has keys of its own, and none comes twice.
func TestSecurityReconnect(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	p := pairs()["CURVE"]
	seen := newEvents()
	router := bind(t, NewRouter, Options{Security: p.server, Monitor: seen.Tell})
	dealer := open(t, NewDealer, Options{Security: p.client, ReconnectInterval: 1, Linger: LingerNone})
	must(t, dealer.Connect(router.LastEndpoint()))
	stop, stopped := make(chan struct{}), make(chan error)
	go func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				stopped <- dealer.Send(ctx, []byte("end"))
				return
			default:
			}
			if err := dealer.Send(ctx, fmt.Append(nil, i), make([]byte, 100)); err != nil {
				stopped <- err
				return
			}
		}
	}()
	came := map[int]bool{}
	next := func() bool {
		m, err := router.Recv(ctx)
		must(t, err)
		if string(m[1]) == "end" {
			return false
		}
		var i int
		if _, err := fmt.Sscan(string(m[1]), &i); err != nil || came[i] || len(m[2]) != 100 {
			t.Fatalf("%.20q came before: %v", m, came[i])
		}
		came[i] = true
		return true
	}
	const rounds = 5
	for round := range rounds + 1 {
		peer := seen.Await(t, EventHandshakeSucceeded).Peer
		for range 20 {
			next()
		}
		if round < rounds {
			peer.Disconnect(errors.New("test"))
		}
	}
	close(stop)
	for next() {
	}
	must(t, <-stopped)
}
