package libzmq

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"clustermap/internal/link"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// The requirements of libzmq's fuzzers, whose programs say what must hold, and whose
// inputs are only ones that were found interesting: a socket that is given any endpoint
// lives on, and one whose peer sends any bytes goes on serving another.

// corpora is a folder with libzmq's inputs (https://github.com/zeromq/libzmq-fuzz-corpora).
// They have no licence, so they are not here.
var corpora = flag.String("libzmq-corpora", "", "folder with libzmq-fuzz-corpora, to be tried as well")

// fuzzerInputs returns the good inputs, what spoil makes of them, and libzmq's inputs for
// a program.
func fuzzerInputs(t *testing.T, program string, good map[string][]byte) map[string][]byte {
	t.Helper()
	all := maps.Clone(good)
	for name, b := range good {
		for seed := range spoilings() {
			all[fmt.Sprintf("%s, seed %d", name, seed)] = spoil(seed, b)
		}
	}
	if *corpora != "" {
		files, err := filepath.Glob(filepath.Join(*corpora, "test_"+program+"_seed_corpus", "*"))
		must(t, err)
		if len(files) == 0 {
			t.Errorf("no inputs for %s in %s", program, *corpora)
		}
		for _, f := range files {
			all[f], err = os.ReadFile(f)
			must(t, err)
		}
	}
	return all
}

// spoilings is how many seeds are tried.
func spoilings() uint64 {
	if testing.Short() {
		return 8
	}
	return 40
}

// spoil changes bytes, inserts, removes or repeats some, or cuts the rest off. The result
// is different from b.
func spoil(seed uint64, b []byte) []byte {
	r := rand.New(rand.NewPCG(seed, 0))
	for spoilt := bytes.Clone(b); ; {
		for range 1 + r.IntN(4) {
			at := r.IntN(len(spoilt) + 1)
			end := min(at+1+r.IntN(8), len(spoilt))
			switch part := bytes.Clone(spoilt[at:end]); r.IntN(5) {
			case 0:
				spoilt = spoilt[:at]
			case 1:
				spoilt = slices.Insert(spoilt, at, make([]byte, 1+r.IntN(8))...)
			case 2:
				spoilt = slices.Delete(spoilt, at, end)
			case 3:
				spoilt = slices.Insert(spoilt, at, part...)
			case 4:
				for i := at; i < end; i++ {
					spoilt[i] ^= byte(r.Uint32())
				}
			}
		}
		if !bytes.Equal(spoilt, b) {
			return spoilt
		}
	}
}

// tells writes bytes to a socket that may have closed the connection, in the order of
// libzmq's programs: what may be a greeting, and the rest when the other side has said
// something.
func tells(r *raw, b []byte) {
	first := 0
	if len(b) >= zmtp.GreetingSize {
		first = zmtp.GreetingSize
	}
	_, _ = r.Conn.Write(b[:first])
	_, _ = r.In.Peek(1)
	_, _ = r.Conn.Write(b[first:])
}

// leaves ends what the raw peer says, and waits until the socket has done so, too.
func leaves(r *raw) {
	_ = r.Conn.(interface{ CloseWrite() error }).CloseWrite()
	r.Ended()
	r.Conn.Close()
}

// endpointInputs are those of both fuzzers of endpoints.
func endpointInputs(t *testing.T, program string) map[string][]byte {
	good := map[string][]byte{}
	for _, e := range []string{
		"tcp://127.0.0.1:*", "tcp://127.0.0.1:9", "tcp://[::1]:9", "tcp://*:*", "tcp://lo:*;localhost:9", "tcp://localhost:65536",
		"ipc://name", "ipc://*", "ipc://@", "ipc://@name", "ipc://" + strings.Repeat("x", 109), "inproc://name", "inproc://" + strings.Repeat("x", 257),
		"udp://127.0.0.1:9", "ws://%:9", "", "://",
	} {
		good[e] = []byte(e)
	}
	return fuzzerInputs(t, program, good)
}

// stays reports whether an endpoint concerns only this machine and the working directory:
// others are valid, too, and none of a test's business.
func stays(text string, bind bool) bool {
	e, err := link.Parse(text, bind)
	if err != nil {
		return true
	}
	ip, notIP := netip.ParseAddr(e.Host())
	return !strings.Contains(e.Name, "/") && (notIP != nil || ip.IsLoopback())
}

// TestLibzmq_bind_fuzzer: whatever Bind is given, the socket closes as others do.
func TestLibzmq_bind_fuzzer(t *testing.T) {
	t.Chdir(t.TempDir()) // ipc makes files
	names := new(sockets.Inproc)
	bound := 0
	for name, text := range endpointInputs(t, "bind_fuzzer") {
		if !stays(string(text), true) {
			continue
		}
		pub := open(t, sockets.NewPub, sockets.Options{Linger: sockets.LingerNone, Inproc: names})
		if err := pub.Bind(testContext(t), string(text)); err == nil {
			bound++
		} else if err.Error() == "" {
			t.Errorf("%s: an error that says nothing", name)
		}
		within(t, "Close after "+name, func() { must(t, pub.Close()) })
	}
	if left, err := os.ReadDir("."); err != nil || len(left) > 0 || bound == 0 {
		t.Errorf("%d endpoints were bound; they leave %v, %v", bound, left, err)
	}
}

// TestLibzmq_connect_fuzzer: the same for Connect, which refuses at once only what is no
// endpoint.
func TestLibzmq_connect_fuzzer(t *testing.T) {
	t.Parallel()
	names := new(sockets.Inproc)
	connected := 0
	for name, text := range endpointInputs(t, "connect_fuzzer") {
		if !stays(string(text), false) {
			continue
		}
		pub := open(t, sockets.NewPub, quick(sockets.Options{Linger: sockets.LingerNone, Inproc: names}))
		var typed *sockets.EndpointError
		if err := pub.Connect(string(text)); err == nil {
			connected++
		} else if !errors.As(err, &typed) {
			t.Errorf("%s: %v", name, err)
		}
		within(t, "Close after "+name, func() { must(t, pub.Close()) })
	}
	if connected == 0 {
		t.Error("no endpoint was one to connect to")
	}
}

// nullInputs are what peers of each version of ZMTP say to a PUB or SUB.
func nullInputs(t *testing.T, program, peer string) map[string][]byte {
	v3 := slices.Concat(greeting(1), ready(peer, nil))
	return fuzzerInputs(t, program, map[string][]byte{
		"ZMTP 3.1": slices.Concat(v3, zmtp.AppendSubscribe(nil, nil), wire("hello", "world"), zmtp.AppendPing(nil, 1, []byte("p"))),
		"ZMTP 3.0": slices.Concat(greeting(0), ready(peer, []byte("me")), wire("\x01"), wire("hello")),
		"ZMTP 2":   []byte("\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x01\x01\x00\x00" + "\x00\x01\x01" + "\x01\x05hello\x00\x05world"),
		"ZMTP 1":   []byte("\x01\x00" + "\x02\x00\x01" + "\x06\x01hello\x06\x00world"),
		"zeros":    make([]byte, 200),
		"ones":     bytes.Repeat([]byte{0xff}, 200),
		"long":     slices.Concat(v3, bytes.Repeat([]byte("\x01\x01x\x04\x01"), 50_000)),
	})
}

// TestLibzmq_bind_null_fuzzer: a PUB publishes to its subscriber, while a peer says
// anything, and when that has gone.
func TestLibzmq_bind_null_fuzzer(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	pub := bind(t, sockets.NewPub, sockets.Options{MaxMessageSize: 64 << 20})
	for name, input := range nullInputs(t, "bind_null_fuzzer", "SUB") {
		r := dialRaw(t, pub.LastEndpoint())
		sub := open(t, sockets.NewSub, sockets.Options{})
		must(t, sub.Subscribe(""))
		must(t, sub.Connect(pub.LastEndpoint()))
		tells(r, input)
		must(t, sub.WaitSubscribed(ctx))
		publishes := func(text string) {
			t.Helper()
			must(t, pub.Send(ctx, []byte(text)))
			wantRecv(t, func() (sockets.Message, error) { return sub.Recv(ctx) }, text)
		}
		publishes("HELLO")
		leaves(r)
		publishes("and again")
		must(t, sub.Close())
		if t.Failed() {
			t.Fatal(name)
		}
	}
	eventually(t, "all peers have gone", func() bool { return len(pub.Peers()) == 0 })
}

// TestLibzmq_connect_null_fuzzer: a SUB that connects to one that says anything takes
// what may be taken, and then what a good publisher at that endpoint sends.
func TestLibzmq_connect_null_fuzzer(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	endpoint, accept := listenRaw(t)
	sub := open(t, sockets.NewSub, retrying(sockets.Options{MaxMessageSize: 64 << 20}))
	must(t, sub.Subscribe(""))
	must(t, sub.Connect(endpoint))
	for name, input := range nullInputs(t, "connect_null_fuzzer", "PUB") {
		r := accept()
		tells(r, input)
		leaves(r)
		drained(t, sub)
		good := accept().Greet("PUB", nil)
		good.Send(wire("good", name))
		wantRecv(t, func() (sockets.Message, error) { return sub.Recv(ctx) }, "good", name)
		leaves(good)
		if t.Failed() {
			t.Fatal(name)
		}
	}
}

// retrying returns options with which a socket soon connects again also to a peer that has
// violated the protocol.
func retrying(o sockets.Options) sockets.Options {
	o.ReconnectIntervalMax = 2 * time.Millisecond
	return quick(o)
}

// curveFuzzerKeys returns the keys of libzmq's inputs, whose first command a server with
// these keys understands.
func curveFuzzerKeys(t *testing.T) (server, client zmtp.KeyPair) {
	t.Helper()
	for text, pair := range map[string]*zmtp.KeyPair{
		"T}t5GLq%&Qm1)y3ywu-}pY3KEA//{^Ut!M1ut+B4": &server, "N?Gmik8R[2ACw{b7*[-$S6[4}aO#?DB?#=<OQPc7": &client,
	} {
		var err error
		pair.Secret, err = zmtp.ParseSecretKey(text)
		must(t, err)
		pair.Public = pair.Secret.Public()
	}
	return server, client
}

// curveSide returns one side of a handshake of two DEALERs.
func curveSide(server, client zmtp.KeyPair, isServer bool) *zmtp.Handshake {
	c := zmtp.HandshakeConfig{SocketType: zmtp.TypeDealer}
	if properties := c.AppendProperties(nil); isServer {
		c.Mechanism = zmtp.NewCurveServer(zmtp.CurveServerConfig{Properties: properties, Keys: server})
	} else {
		c.Mechanism = zmtp.NewCurveClient(zmtp.CurveClientConfig{Properties: properties, Keys: client, Server: server.Public})
	}
	return zmtp.NewHandshake(c)
}

// Turns of either side of CURVE: its greeting, its commands of the handshake, a message.
const (
	turnGreeting = iota
	turnFirst    // HELLO, WELCOME
	turnSecond   // INITIATE, READY
	turnMessage
	curveTurns
)

// speaks plays a side of the handshake, and spoils what it says in the given turn.
func speaks(r *raw, h *zmtp.Handshake, spoilt int, seed uint64) {
	out := h.Start(nil)
	var in []byte
	done := false
	for turn := 0; turn < spoilt; turn++ {
		_, _ = r.Conn.Write(out)
		for out = nil; len(out) == 0 && !done; {
			var n int
			var err error
			if n, out, done, err = h.Step(in, out); err != nil {
				r.T.Fatalf("raw peer's handshake: %v", err)
			}
			in = in[n:]
			if _, asks := h.Credentials(); asks {
				if out, done, err = h.Accept(out, "", nil); err != nil {
					r.T.Fatalf("raw peer accepts: %v", err)
				}
			} else if n == 0 && len(out) == 0 {
				var more [512]byte
				if n, err = r.In.Read(more[:]); err != nil {
					r.T.Fatalf("raw peer reads: %v", err)
				}
				in = append(in, more[:n]...)
			}
		}
		if len(out) == 0 {
			out, _ = h.Codec().Encode(nil, wire("first", "message"))
		}
	}
	_, _ = r.Conn.Write(spoil(seed, out))
}

// TestLibzmq_bind_curve_fuzzer: a CURVE server exchanges messages with a good client,
// while a peer says anything, or one that knows the keys spoils any of its turns.
func TestLibzmq_bind_curve_fuzzer(t *testing.T) {
	t.Parallel()
	keys, clientKeys := curveFuzzerKeys(t)
	names := new(sockets.Inproc)
	zapHandler(t, names, func(request []string) []string {
		verdict := "400"
		if request[6] == "CURVE" && request[7] == string(clientKeys.Public[:]) && request[5] == "IDENT" {
			verdict = "200"
		}
		return []string{"", "1.0", request[2], verdict, "OK", "anonymous", ""}
	})
	server := bind(t, sockets.NewDealer, sockets.Options{
		Security: in("ZAPTEST", true, sockets.Security{CurveServer: true, CurveSecretKey: keys.Secret}), Inproc: names,
		Identity: []byte("IDENT"), MaxMessageSize: 64 << 20, Linger: sockets.LingerNone,
	})
	try := func(name string, bad func(*raw), attached bool) {
		r := dialRaw(t, server.LastEndpoint())
		bad(r)
		if attached { // it would get messages in turn, as a peer
			leaves(r)
			eventually(t, "it has left", func() bool { return len(server.Peers()) == 0 })
		}
		drained(t, server)
		client := open(t, sockets.NewDealer, sockets.Options{Security: sockets.Security{CurveSecretKey: clientKeys.Secret, CurveServerKey: keys.Public}, MaxMessageSize: 64 << 20})
		must(t, client.Connect(server.LastEndpoint()))
		bounced(t, server, client)
		must(t, client.Close())
		if !attached {
			leaves(r)
		}
		eventually(t, "both have left", func() bool { return len(server.Peers()) == 0 })
		if t.Failed() {
			t.Fatal(name)
		}
	}
	for name, input := range fuzzerInputs(t, "bind_curve_fuzzer", curveInputs(keys, clientKeys)) {
		try(name, func(r *raw) { tells(r, input) }, false)
	}
	for turn := range curveTurns {
		for seed := range spoilings() {
			try(fmt.Sprintf("turn %d, seed %d", turn, seed), func(r *raw) {
				speaks(r, curveSide(keys, clientKeys, false), turn, seed)
			}, turn >= turnSecond)
		}
	}
}

// curveInputs are what one side says without the other's answers: all that does not
// depend on them is right.
func curveInputs(server, client zmtp.KeyPair) map[string][]byte {
	h := curveSide(server, client, false)
	answer := curveSide(server, client, true).Start(nil)
	start := h.Start(nil)
	_, hello, _, _ := h.Step(answer, nil)
	command := func(name string, size int) []byte { return zmtp.AppendCommand(nil, name, make([]byte, size)) }
	return map[string][]byte{
		"client":   slices.Concat(start, hello, command("INITIATE", 290), command("MESSAGE", 40)),
		"server":   slices.Concat(answer, command("WELCOME", 160), command("READY", 64), command("MESSAGE", 40)),
		"NULL":     slices.Concat(greeting(1), ready("DEALER", nil), wire("hello")),
		"greeting": start,
		"zeros":    make([]byte, 700),
	}
}

// TestLibzmq_connect_curve_fuzzer: a CURVE client whose server says anything, or spoils
// any of its turns, goes on connecting to it, and exchanges messages with a good one.
func TestLibzmq_connect_curve_fuzzer(t *testing.T) {
	t.Parallel()
	keys, clientKeys := curveFuzzerKeys(t)
	endpoint, accept := listenRaw(t)
	client := open(t, sockets.NewDealer, retrying(sockets.Options{
		Security: sockets.Security{CurveSecretKey: clientKeys.Secret, CurveServerKey: keys.Public}, MaxMessageSize: 64 << 20, Linger: sockets.LingerNone,
	}))
	must(t, client.Connect(endpoint))
	for _, input := range fuzzerInputs(t, "connect_curve_fuzzer", curveInputs(keys, clientKeys)) {
		r := accept()
		tells(r, input)
		leaves(r)
		drained(t, client)
	}
	for turn := range curveTurns {
		for seed := range spoilings() {
			r := accept()
			speaks(r, curveSide(keys, clientKeys, true), turn, seed)
			leaves(r)
			drained(t, client)
		}
	}
	must(t, client.Disconnect(endpoint))
	server := bind(t, sockets.NewDealer, sockets.Options{Security: sockets.Security{CurveServer: true, CurveSecretKey: keys.Secret, Authenticate: sockets.AllowKeys(clientKeys.Public)}})
	must(t, client.Connect(server.LastEndpoint()))
	bounced(t, server, client)
}
