package fuzz

import (
	"bytes"
	"errors"
	"testing"

	"clustermap/zmtp"
)

// FuzzZ85 asserts that decoding and encoding are inverse to each other, and that
// a key is accepted exactly if its text decodes to the size of a key.
func FuzzZ85(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string) {
		data, err := zmtp.DecodeZ85(text)
		if err == nil {
			if again, err := zmtp.EncodeZ85(data); again != text || err != nil {
				t.Fatalf("%q: %x: %q %v", text, data, again, err)
			}
		} else if !errors.Is(err, zmtp.ErrMalformed) {
			t.Fatal(err)
		}
		key, keyErr := zmtp.ParsePublicKey(text)
		if (keyErr == nil) != (err == nil && len(data) == zmtp.KeySize) {
			t.Fatalf("%q: %v, but %v", text, keyErr, err)
		}
		if keyErr == nil && key.String() != text {
			t.Fatalf("%q: %s", text, key)
		}
		coded, err := zmtp.EncodeZ85([]byte(text))
		if (err == nil) != (len(text)%4 == 0) {
			t.Fatalf("%d bytes: %v", len(text), err)
		}
		if err != nil {
			return
		}
		if back, err := zmtp.DecodeZ85(coded); string(back) != text || err != nil {
			t.Fatalf("%q: %q: %q %v", text, coded, back, err)
		}
	})
}

// party is one side of a handshake in memory.
type party struct {
	t    *testing.T
	h    *zmtp.Handshake
	in   []byte
	done bool
	err  error
}

// take passes b to the handshake and returns the bytes it sends. All credentials
// are accepted.
func (p *party) take(b []byte) (out []byte) {
	p.in = append(p.in, b...)
	for p.err == nil && !p.done {
		if _, waiting := p.h.Credentials(); waiting {
			out, p.done, p.err = p.h.Accept(out, "", nil)
			continue
		}
		var n int
		n, out, p.done, p.err = p.h.Step(p.in, out)
		if n < 0 || n > len(p.in) || p.done && p.err != nil {
			p.t.Fatalf("n %d, done %v, %v", n, p.done, p.err)
		}
		p.in = p.in[n:]
		if _, waiting := p.h.Credentials(); n == 0 && !waiting {
			break
		}
	}
	var protocol *zmtp.ProtocolError
	if p.err != nil && (!errors.As(p.err, &protocol) || protocol.Err == nil) {
		p.t.Fatalf("error without a condition: %v", p.err)
	}
	return out
}

// FuzzPlain passes arbitrary bytes after the greeting to both roles of PLAIN. It
// makes the same assertions as FuzzHandshake, except that on Peer.
func FuzzPlain(f *testing.F) {
	greeting := zmtp.AppendGreeting(nil, zmtp.Greeting{Major: 3, Minor: 1, Mechanism: "PLAIN"})
	f.Fuzz(func(t *testing.T, server bool, in []byte, piece byte) {
		run := func(size int) (sent []byte, p *party) {
			c := zmtp.HandshakeConfig{SocketType: zmtp.TypeDealer, Limits: zmtp.Limits{MaxCommand: -1}}
			if properties := c.AppendProperties(nil); server {
				c.Mechanism = zmtp.NewPlainServer(properties)
			} else {
				c.Mechanism = zmtp.NewPlainClient(properties, "name", "word")
			}
			p = &party{t: t, h: zmtp.NewHandshake(c)}
			p.h.Start(nil)
			sent = p.take(greeting)
			for rest := in; len(rest) > 0; {
				n := min(size, len(rest))
				sent = append(sent, p.take(rest[:n])...)
				rest = rest[n:]
			}
			return sent, p
		}
		var whole *party
		var sent []byte
		size := allocated(func() { sent, whole = run(max(1, len(in))) })
		if limit := uint64(1<<20 + 64*len(in)); size > limit {
			t.Fatalf("%d bytes allocated for %d received, limit %d", size, len(in), limit)
		}
		cutSent, cut := run(max(1, int(piece)))
		if !bytes.Equal(sent, cutSent) || whole.done != cut.done || (whole.err == nil) != (cut.err == nil) ||
			whole.err != nil && whole.err.Error() != cut.err.Error() {
			t.Fatalf("whole: %q %v %v, cut: %q %v %v", sent, whole.done, whole.err, cutSent, cut.done, cut.err)
		}
	})
}

// The long-term keys of the CURVE targets. Each connection has random keys as
// well, so a run cannot be reproduced byte by byte.
var clientKeys, serverKeys = zmtp.GenerateKeyPair(), zmtp.GenerateKeyPair()

// curveParties returns both sides of CURVE. The properties may be arbitrary
// bytes: they are sent in a box, so a fuzzer cannot reach them by changing the
// stream.
func curveParties(t *testing.T, clientProperties, serverProperties []byte) (client, server *party) {
	c := zmtp.HandshakeConfig{SocketType: zmtp.TypeDealer, Mechanism: zmtp.NewCurveClient(zmtp.CurveClientConfig{
		Properties: clientProperties, Keys: clientKeys, Server: serverKeys.Public})}
	s := zmtp.HandshakeConfig{SocketType: zmtp.TypeDealer, Mechanism: zmtp.NewCurveServer(zmtp.CurveServerConfig{
		Properties: serverProperties, Keys: serverKeys})}
	return &party{t: t, h: zmtp.NewHandshake(c)}, &party{t: t, h: zmtp.NewHandshake(s)}
}

// edits changes the bytes of a stream as they pass. Each change takes five bytes
// of the script: two for its distance from the last change, one for its kind
// (change, insert, delete or repeat), and two for its argument.
type edits struct {
	script  []byte
	at      int // bytes that have passed
	changed bool
}

// pass returns the bytes that arrive when b is sent.
func (e *edits) pass(b []byte) []byte {
	var out []byte
	for len(b) > 0 {
		distance := len(b)
		if len(e.script) >= 5 {
			distance = min(distance, max(0, int(e.script[0])<<8+int(e.script[1])-e.at))
		}
		out = append(out, b[:distance]...)
		b = b[distance:]
		e.at += distance
		if len(b) == 0 || len(e.script) < 5 {
			break
		}
		operation, x, y := e.script[2]%4, e.script[3], e.script[4]
		e.script, e.at = e.script[5:], 0
		e.changed = true
		switch operation {
		case 0:
			out = append(out, b[0]^x)
			b = b[1:]
		case 1:
			out = append(out, x)
		case 2:
			b = b[min(len(b), 1+int(y)):]
		case 3:
			out = append(out, b[:min(len(b), 1+int(y))]...)
		}
	}
	return out
}

// FuzzCurveHandshake runs a handshake between both roles of CURVE, with arbitrary
// properties, and changes the bytes in transit. It asserts that there is no
// panic, that a side that succeeds has the properties of the other, and that
// without a change the handshake fails only if the properties are invalid.
func FuzzCurveHandshake(f *testing.F) {
	f.Fuzz(func(t *testing.T, clientProperties, serverProperties, toServer, toClient []byte) {
		const most = 4096
		clientProperties = clientProperties[:min(len(clientProperties), most)]
		serverProperties = serverProperties[:min(len(serverProperties), most)]
		client, server := curveParties(t, clientProperties, serverProperties)
		there, back := &edits{script: toServer}, &edits{script: toClient}
		fromClient, fromServer := client.h.Start(nil), server.h.Start(nil)
		for len(fromClient)+len(fromServer) > 0 {
			fromClient, fromServer = client.take(back.pass(fromServer)), server.take(there.pass(fromClient))
		}
		for _, side := range []struct {
			p          *party
			properties []byte
		}{{client, serverProperties}, {server, clientProperties}} {
			announced, err := zmtp.ParseMetadata(side.properties)
			if side.p.done {
				got := side.p.h.Peer().Metadata
				if err != nil || len(got) != len(announced) {
					t.Fatalf("%v instead of %v, %v", got, announced, err)
				}
				for i, p := range announced {
					if got[i].Name != p.Name || !bytes.Equal(got[i].Value, p.Value) {
						t.Fatalf("%v instead of %v", got, announced)
					}
				}
			}
		}
		if there.changed || back.changed {
			return
		}
		if _, err := zmtp.ParseMetadata(clientProperties); err != nil && !errors.Is(server.err, zmtp.ErrMalformed) {
			t.Fatalf("properties %x: %v", clientProperties, server.err)
		}
		if client.done && !server.done || server.done && !client.done && client.err == nil {
			t.Fatalf("%v %v, %v %v", client.done, client.err, server.done, server.err)
		}
		if client.done {
			exchange(t, client.h.Codec(), server.h.Codec())
			exchange(t, server.h.Codec(), client.h.Codec())
		}
	})
}

// exchange sends a message.
func exchange(t *testing.T, from, to zmtp.Codec) {
	m := zmtp.AppendMessage(nil, []byte("one"), nil)
	wire, err := from.Encode(nil, m)
	if err != nil {
		t.Fatal(err)
	}
	if out, used, _, err := to.Decode(nil, wire, 1<<20); !bytes.Equal(out, m) || used != len(wire) || err != nil {
		t.Fatalf("%x %d %v", out, used, err)
	}
}

// FuzzCurveMessages encodes arbitrary frames, changes the bytes in transit, and
// decodes them in pieces. It asserts that the receiver gets a subsequence of the
// frames sent, and all of them if nothing was changed (RFC 26 allows gaps between
// nonces, so a receiver does not notice missing frames); that the sender refuses
// bytes that are not frames; and that a receiver decodes nothing from arbitrary
// bytes.
func FuzzCurveMessages(f *testing.F) {
	f.Fuzz(func(t *testing.T, frames, script []byte, piece byte, fromServer bool) {
		frames = frames[:min(len(frames), 1<<16)]
		client, server := curveParties(t, nil, nil)
		fromClient, toClient := client.h.Start(nil), server.h.Start(nil)
		for len(fromClient)+len(toClient) > 0 {
			fromClient, toClient = client.take(toClient), server.take(fromClient)
		}
		if !client.done || !server.done {
			t.Fatal(client.err, server.err)
		}
		from, to := client.h.Codec(), server.h.Codec()
		if fromServer {
			from, to = to, from
		}
		wire, err := from.Encode(nil, frames)
		if err != nil && !errors.Is(err, zmtp.ErrMalformed) {
			t.Fatal(err)
		}
		if limit := from.MaxEncoded(len(frames), len(frames)); len(wire) > limit {
			t.Fatalf("%d bytes, above %d", len(wire), limit)
		}
		e := &edits{script: script}
		arriving := e.pass(wire)
		var in, out []byte
		var decodeErr error
		for decodeErr == nil && len(arriving) > 0 {
			n := min(max(1, int(piece)), len(arriving))
			in, arriving = append(in, arriving[:n]...), arriving[n:]
			for {
				var used, need int
				out, used, need, decodeErr = to.Decode(out, in, 1+int(piece))
				if used < 0 || used > len(in) || need < 1 {
					t.Fatalf("used %d of %d, need %d", used, len(in), need)
				}
				in = in[used:]
				if used == 0 || decodeErr != nil {
					break
				}
			}
		}
		// Reserved flags are not transmitted, and sizes have the shortest
		// form.
		want := canonical(frames)
		if !follows(want, out) || !e.changed && (decodeErr != nil || len(in) > 0 || len(out) != len(want)) {
			t.Fatalf("%x arrived as %x, %d bytes left, %v", frames, out, len(in), decodeErr)
		}
		other := client.h.Codec()
		if fromServer {
			other = server.h.Codec()
		}
		if more, _, _, err := other.Decode(nil, frames, 1<<20); len(more) > 0 {
			t.Fatalf("%x from %x, %v", more, frames, err)
		}
	})
}

// follows reports whether the frames in some are a subsequence of those in all.
// All frames must be complete and in their shortest form.
func follows(all, some []byte) bool {
	for len(all) > 0 && len(some) > 0 {
		_, rest := zmtp.WireMessage(all).Next()
		if size := len(all) - len(rest); len(some) >= size && bytes.Equal(some[:size], all[:size]) {
			some = some[size:]
		}
		all = rest
	}
	return len(some) == 0
}

// canonical returns the complete frames at the start of b as a codec returns
// them.
func canonical(b []byte) (out []byte) {
	for len(b) >= 2 {
		flags, size, head := b[0], uint64(b[1]), 2
		if flags&zmtp.FlagLong != 0 {
			if head = 9; len(b) < head {
				break
			}
			size = 0
			for _, x := range b[1:head] {
				size = size<<8 | uint64(x)
			}
		}
		if size > uint64(len(b)-head) {
			break
		}
		end := head + int(size)
		out = append(zmtp.AppendHeader(out, flags, int(size)), b[head:end]...)
		b = b[end:]
	}
	return out
}
