package zmtp_test

import (
	"fmt"
	"os"
	"path/filepath"

	"clustermap/zmtp"
)

func ExampleEncodeZ85() {
	text, err := zmtp.EncodeZ85([]byte{0x86, 0x4F, 0xD2, 0x6F, 0xB5, 0x59, 0xF7, 0x5B})
	fmt.Println(text, err)
	bytes, err := zmtp.DecodeZ85(text)
	fmt.Printf("%x %v\n", bytes, err)
	// Output:
	// HelloWorld <nil>
	// 864fd26fb559f75b <nil>
}

// A secret key is not printed by accident. Use Z85 to store it.
func ExampleGenerateKeyPair() {
	keys := zmtp.GenerateKeyPair()
	fmt.Println(len(keys.Public.String()), keys.Secret)
	again, err := zmtp.ParseSecretKey(keys.Secret.Z85())
	fmt.Println(again.Public() == keys.Public, err)
	// Output:
	// 40 zmtp.SecretKey(redacted)
	// true <nil>
}

// talk carries bytes between two handshakes until both are done or one has failed.
// It calls authenticate to check credentials.
func talk(client, server *zmtp.Handshake, authenticate func(*zmtp.Handshake, zmtp.Credentials) ([]byte, bool, error)) error {
	toServer, toClient := client.Start(nil), server.Start(nil)
	run := func(h *zmtp.Handshake, in []byte) (rest, out []byte, done bool, err error) {
		for {
			var n int
			n, out, done, err = h.Step(in, out)
			in = in[n:]
			if c, waiting := h.Credentials(); waiting {
				var more []byte
				more, done, err = authenticate(h, c)
				out = append(out, more...)
			} else if n == 0 || done || err != nil {
				return in, out, done, err
			}
			if done || err != nil {
				return in, out, done, err
			}
		}
	}
	for clientDone, serverDone := false, false; !clientDone || !serverDone; {
		var out []byte
		var serverErr, clientErr error
		toServer, out, serverDone, serverErr = run(server, toServer)
		toClient = append(toClient, out...)
		toClient, out, clientDone, clientErr = run(client, toClient)
		toServer = append(toServer, out...)
		if clientErr != nil {
			return clientErr
		}
		if serverErr != nil {
			return serverErr
		}
	}
	return nil
}

// A program reads the file that chp keygen or zdev keygen has written.
func ExampleParseKeyFile() {
	read := func(name string) (pair zmtp.KeyPair, err error) {
		text, err := os.ReadFile(name)
		if err != nil {
			return pair, err
		}
		defer clear(text)
		return zmtp.ParseKeyFile(text)
	}
	dir, err := os.MkdirTemp("", "keys")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	name := filepath.Join(dir, "client.key")
	made := zmtp.GenerateKeyPair()
	if err := os.WriteFile(name, zmtp.AppendKeyFile(nil, made), 0o600); err != nil { // as keygen does
		fmt.Println(err)
		return
	}
	pair, err := read(name)
	fmt.Println(pair.Public == made.Public, pair.Secret, err)
	// Output: true zmtp.SecretKey(redacted) <nil>
}

// A server checks the client's password, which may take any time.
func ExampleHandshake_Credentials() {
	authenticate := func(h *zmtp.Handshake, c zmtp.Credentials) ([]byte, bool, error) {
		if string(c.Values[0]) == "admin" && string(c.Values[1]) == "secret" {
			return h.Accept(nil, "the administrator", nil)
		}
		out, err := h.Deny(nil, zmtp.StatusDenied)
		return out, false, err
	}
	for _, password := range []string{"secret", "guess"} {
		c, s := zmtp.HandshakeConfig{SocketType: zmtp.TypeReq}, zmtp.HandshakeConfig{SocketType: zmtp.TypeRep}
		c.Mechanism = zmtp.NewPlainClient(c.AppendProperties(nil), "admin", password)
		s.Mechanism = zmtp.NewPlainServer(s.AppendProperties(nil))
		client, server := zmtp.NewHandshake(c), zmtp.NewHandshake(s)
		err := talk(client, server, authenticate)
		fmt.Println(server.Peer().UserID, err)
	}
	// Output:
	// the administrator <nil>
	//  zmtp: refused by the peer (handshake): "400", these credentials are not accepted
}

// The traffic passes through the codec that the handshake returns.
func ExampleNewCurveClient() {
	clientKeys, serverKeys := zmtp.GenerateKeyPair(), zmtp.GenerateKeyPair()
	c, s := zmtp.HandshakeConfig{SocketType: zmtp.TypePush}, zmtp.HandshakeConfig{SocketType: zmtp.TypePull}
	c.Mechanism = zmtp.NewCurveClient(zmtp.CurveClientConfig{
		Properties: c.AppendProperties(nil),
		Keys:       clientKeys,
		Server:     serverKeys.Public,
	})
	s.Mechanism = zmtp.NewCurveServer(zmtp.CurveServerConfig{
		Properties: s.AppendProperties(nil),
		Keys:       serverKeys,
	})
	client, server := zmtp.NewHandshake(c), zmtp.NewHandshake(s)
	err := talk(client, server, func(h *zmtp.Handshake, c zmtp.Credentials) ([]byte, bool, error) {
		fmt.Println(c.Mechanism, zmtp.PublicKey(c.Values[0]) == clientKeys.Public)
		return h.Accept(nil, "", nil)
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	wire, err := client.Codec().Encode(nil, zmtp.AppendMessage(nil, []byte("hello")))
	fmt.Println(len(wire), err)
	frames, used, _, err := server.Codec().Decode(nil, wire, 1<<16)
	fmt.Printf("%q %d %v\n", zmtp.WireMessage(frames).AppendFrames(nil), used, err)
	// Output:
	// CURVE true
	// 40 <nil>
	// ["hello"] 40 <nil>
}
