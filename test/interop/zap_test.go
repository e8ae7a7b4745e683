package interop

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"clustermap/internal/interop"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// zapRequest is the fields of a request to a ZAP handler (RFC 27), and credentials those
// that follow by mechanism.
var (
	zapRequest  = []string{"version", "request id", "domain", "address", "identity", "mechanism"}
	credentials = map[string][]string{"PLAIN": {"user", "password"}, "CURVE": {"key"}}
)

// zapSide is the security of one end in both forms.
type zapSide struct {
	ours   sockets.Security
	theirs []string // arguments of zmq_peer.py
}

// zapSides returns the server's and the client's security by mechanism.
func zapSides() map[string][2]zapSide {
	server, client := zmtp.GenerateKeyPair(), zmtp.GenerateKeyPair()
	text := func(name, value string) string { return "--text=" + name + "=" + value }
	domain := text("ZAP_DOMAIN", "domain")
	return map[string][2]zapSide{
		"NULL": {
			{sockets.Security{ZAPDomain: "domain"}, []string{domain}}, {},
		},
		"PLAIN": {
			{sockets.Security{ZAPDomain: "domain", PlainServer: true}, []string{domain, "--option=PLAIN_SERVER=1"}},
			{sockets.Security{PlainUsername: "user", PlainPassword: "secret"}, []string{text("PLAIN_USERNAME", "user"), text("PLAIN_PASSWORD", "secret")}},
		},
		"CURVE": {
			{sockets.Security{ZAPDomain: "domain", CurveServer: true, CurveSecretKey: server.Secret}, []string{
				domain, "--option=CURVE_SERVER=1", text("CURVE_SECRETKEY", server.Secret.Z85()),
			}},
			{sockets.Security{CurveSecretKey: client.Secret, CurveServerKey: server.Public}, []string{
				text("CURVE_SERVERKEY", server.Public.String()), text("CURVE_PUBLICKEY", client.Public.String()), text("CURVE_SECRETKEY", client.Secret.Z85()),
			}},
		},
	}
}

// askedByUs has a client of the endpoint that connect is called with let in by a ZAP
// handler of our ROUTER, and returns the request and the name that the ROUTER has for it.
func askedByUs(t *testing.T, server zapSide, connect func(endpoint string)) (request []string, peer string) {
	t.Helper()
	ctx := timeLimit(t)
	names := new(sockets.Inproc)
	handler := open(t, sockets.NewRep, sockets.Options{Inproc: names})
	check(t, handler.Bind(ctx, "inproc://zeromq.zap.01"))
	router := open(t, sockets.NewRouter, sockets.Options{Security: server.ours, Identity: []byte("server"), Inproc: names})
	check(t, router.Bind(ctx, anyPort))
	connect(router.LastEndpoint())
	m, err := handler.Recv(ctx)
	check(t, err)
	for _, frame := range m {
		request = append(request, string(frame))
	}
	check(t, handler.Send(ctx, []byte("1.0"), m[1], []byte("200"), []byte("OK"), nil, nil))
	m, err = router.Recv(ctx)
	check(t, err)
	return request, string(m[0])
}

// askedByThem is the same with libzmq's ROUTER and its handler.
func askedByThem(t *testing.T, server zapSide, connect func(endpoint string)) (request []string, peer string) {
	t.Helper()
	router := python(t, "ROUTER", append(slices.Clone(server.theirs), "--zap", "--identity", base64Of("server"), "--bind", ownPort(t))...)
	connect(router.Endpoint)
	var got interop.Received
	router.Call(interop.Op{"op": "admit"}, &got)
	for _, frame := range got.Messages[0] {
		request = append(request, string(frame.Bytes))
	}
	return request, string(pythonReceives(router, 1)[0][0].Bytes)
}

// TestInteropZAP: our server asks a ZAP handler about a client, ours or libzmq's, the
// same that libzmq's server asks, field by field. The identity in it is the server's own;
// the client's is the one by which a ROUTER knows it.
func TestInteropZAP(t *testing.T) {
	t.Parallel()
	for mechanism, s := range zapSides() {
		server, client := s[0], s[1]
		for name, connect := range map[string]func(t *testing.T, endpoint string){
			"our client": func(t *testing.T, endpoint string) {
				dealer := open(t, sockets.NewDealer, sockets.Options{Security: client.ours, Identity: []byte("client")})
				check(t, dealer.Connect(endpoint))
				check(t, dealer.Send(timeLimit(t), []byte("x")))
			},
			"libzmq's client": func(t *testing.T, endpoint string) {
				dealer := python(t, "DEALER", append(slices.Clone(client.theirs), "--identity", base64Of("client"), "--connect", endpoint)...)
				pythonSays(dealer, "x")
			},
		} {
			t.Run(fmt.Sprintf("%s/%s", mechanism, name), func(t *testing.T) {
				t.Parallel()
				interop.Require(t)
				theirs, theirPeer := askedByThem(t, server, func(endpoint string) { connect(t, endpoint) })
				ours, ourPeer := askedByUs(t, server, func(endpoint string) { connect(t, endpoint) })
				fields := append(slices.Clone(zapRequest), credentials[mechanism]...)
				if len(ours) != len(fields) || len(theirs) != len(fields) {
					t.Fatalf("we ask %q, libzmq asks %q, want %s", ours, theirs, strings.Join(fields, ", "))
				}
				for i, field := range fields {
					if field != "request id" && ours[i] != theirs[i] {
						t.Errorf("%s: we ask with %q, libzmq with %q", field, ours[i], theirs[i])
					}
				}
				if ours[4] != "server" || ourPeer != "client" || theirPeer != "client" {
					t.Errorf("the handler is told %q; we know the client as %q, libzmq as %q", ours[4], ourPeer, theirPeer)
				}
			})
		}
	}
}
