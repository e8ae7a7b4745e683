package zmtp_test

import (
	"errors"
	"fmt"

	"clustermap/zmtp"
)

func ExampleAppendMessage() {
	wire := zmtp.AppendMessage(nil, []byte("topic"), nil, []byte("value"))
	fmt.Printf("%q\n", wire)
	// Output: "\x01\x05topic\x01\x00\x00\x05value"
}

func ExampleAppendFrame() {
	wire := zmtp.AppendFrame(nil, []byte("topic"), true)
	wire = zmtp.AppendFrame(wire, []byte("value"), false)
	fmt.Printf("%q\n", wire)
	// Output: "\x01\x05topic\x00\x05value"
}

// A header can be written separately if the body is sent from elsewhere.
func ExampleAppendHeader() {
	fmt.Printf("%x\n", zmtp.AppendHeader(nil, zmtp.FlagMore, 3))
	fmt.Printf("%x\n", zmtp.AppendHeader(nil, 0, 1<<20))
	// Output:
	// 0103
	// 020000000000100000
}

func ExampleFrameSize() {
	fmt.Println(zmtp.FrameSize(255), zmtp.FrameSize(256))
	// Output: 257 265
}

func ExampleWireMessage_Next() {
	m := zmtp.WireMessage(zmtp.AppendMessage(nil, []byte("topic"), []byte("value")))
	for rest := m; len(rest) > 0; {
		var body []byte
		body, rest = rest.Next()
		fmt.Printf("%s\n", body)
	}
	// Output:
	// topic
	// value
}

func ExampleWireMessage_Len() {
	fmt.Println(zmtp.WireMessage("\x01\x00\x00\x05value").Len())
	// Output: 2
}

func ExampleWireMessage_AppendFrames() {
	m := zmtp.WireMessage("\x01\x05topic\x00\x05value")
	fmt.Printf("%q\n", m.AppendFrames(nil))
	// Output: ["topic" "value"]
}

// The stream arrives in pieces, and a heartbeat has arrived between the two frames
// of a message.
func ExampleDecoder_Next() {
	d := zmtp.NewDecoder(zmtp.Limits{MaxMessage: 1 << 20})
	var buf []byte
	for _, piece := range []string{"\x01\x05top", "ic\x04\x07\x04PING\x00", "\x00\x00\x05value\x00"} {
		buf = append(buf, piece...)
		for {
			kind, n, err := d.Next(buf)
			if err != nil {
				fmt.Println(err)
				return
			}
			if kind == zmtp.KindNeedMore {
				break
			}
			if kind == zmtp.KindMessage {
				fmt.Printf("message %q\n", zmtp.WireMessage(buf[:n]).AppendFrames(nil))
			} else {
				fmt.Printf("command %q\n", zmtp.CommandBody(buf[:n]))
			}
			buf = buf[n:]
		}
	}
	// Output:
	// command "\x04PING\x00\x00"
	// message ["topic" "value"]
}

func ExampleDecoder_Need() {
	var d zmtp.Decoder
	kind, _, _ := d.Next([]byte("\x00\x05va"))
	fmt.Println(kind == zmtp.KindNeedMore, d.Need())
	// Output: true 7
}

// A Decoder can be reused for another connection, with another limit.
func ExampleDecoder_Reset() {
	var d zmtp.Decoder
	d.Next([]byte("\x01\x05half a message"))
	d.Reset()
	d.SetLimits(zmtp.Limits{MaxFrames: 1})
	_, _, err := d.Next([]byte("\x01\x00\x00\x00"))
	fmt.Println(errors.Is(err, zmtp.ErrTooLarge))
	// Output: true
}

func ExampleParseCommand() {
	frame := zmtp.AppendPing(nil, 300, []byte("id")) // 30 seconds
	c, err := zmtp.ParseCommand(zmtp.CommandBody(frame))
	if err != nil {
		fmt.Println(err)
		return
	}
	switch string(c.Name) {
	case zmtp.CommandPing:
		ttl, context, err := zmtp.ParsePing(c.Data)
		fmt.Println(ttl, string(context), err)
		fmt.Printf("%q\n", zmtp.AppendPong(nil, context))
	case zmtp.CommandError:
		fmt.Println(zmtp.ParseError(c.Data))
	}
	// Output:
	// 300 id <nil>
	// "\x04\a\x04PONGid"
}

func ExampleAppendSubscribe() {
	fmt.Printf("%q\n", zmtp.AppendSubscribe(nil, []byte("A")))
	fmt.Printf("%q\n", zmtp.AppendCancel(nil, []byte("A")))
	// Output:
	// "\x04\v\tSUBSCRIBEA"
	// "\x04\b\x06CANCELA"
}

func ExampleAppendCommand() {
	fmt.Printf("%q\n", zmtp.AppendCommand(nil, "JOIN", []byte("group")))
	// Output: "\x04\n\x04JOINgroup"
}

func ExampleAppendError() {
	c, _ := zmtp.ParseCommand(zmtp.CommandBody(zmtp.AppendError(nil, "not today")))
	reason, err := zmtp.ParseError(c.Data)
	fmt.Println(string(c.Name), reason, err)
	// Output: ERROR not today <nil>
}

func ExampleParseMetadata() {
	b := zmtp.AppendProperty(nil, zmtp.PropertySocketType, []byte("PUB"))
	b = zmtp.AppendProperty(b, "X-Name", []byte("clock"))
	m, err := zmtp.ParseMetadata(b)
	if err != nil {
		fmt.Println(err)
		return
	}
	name, ok := m.Get("x-name")
	fmt.Println(len(m), string(name), ok)
	// Output: 2 clock true
}

func ExampleParseSocketType() {
	t, err := zmtp.ParseSocketType([]byte("DEALER"))
	fmt.Println(t, err)
	// Output: DEALER <nil>
}

func ExampleCompatible() {
	fmt.Println(zmtp.Compatible(zmtp.TypePub, zmtp.TypeSub), zmtp.Compatible(zmtp.TypePub, zmtp.TypePull))
	// Output: true false
}

func ExampleParseGreeting() {
	b := zmtp.AppendGreeting(nil, zmtp.Greeting{Major: 3, Minor: 1, Mechanism: "NULL"})
	_, n, err := zmtp.ParseGreeting(b[:20])
	fmt.Println(n, err)
	g, n, err := zmtp.ParseGreeting(b)
	fmt.Printf("%+v %d %v\n", g, n, err)
	// Output:
	// 0 <nil>
	// {Major:3 Minor:1 Mechanism:NULL AsServer:false} 64 <nil>
}

// Two handshakes are connected without a network.
func ExampleHandshake() {
	client := zmtp.NewHandshake(zmtp.HandshakeConfig{
		SocketType: zmtp.TypeDealer,
		Identity:   []byte("client-1"),
		Metadata:   zmtp.Metadata{{Name: "X-Program", Value: []byte("example")}},
	})
	server := zmtp.NewHandshake(zmtp.HandshakeConfig{SocketType: zmtp.TypeRouter})

	toServer, toClient := client.Start(nil), server.Start(nil)
	run := func(h *zmtp.Handshake, in, out []byte) (rest, answer []byte, done bool) {
		for {
			n, answer, done, err := h.Step(in, out)
			if err != nil || done || n == 0 {
				return in[n:], answer, done
			}
			in, out = in[n:], answer
		}
	}
	var clientDone, serverDone bool
	for !clientDone || !serverDone {
		toServer, toClient, serverDone = run(server, toServer, toClient)
		toClient, toServer, clientDone = run(client, toClient, toServer)
	}
	p := server.Peer()
	program, _ := p.Metadata.Get("X-Program")
	fmt.Printf("ZMTP %d.%d %v %s %s\n", p.Major, p.Minor, p.SocketType, p.Identity, program)
	// Output: ZMTP 3.1 DEALER client-1 example
}

func ExampleHandshakeConfig_Validate() {
	c := zmtp.HandshakeConfig{SocketType: zmtp.TypeReq, Metadata: zmtp.Metadata{{Name: "Name"}}}
	fmt.Println(c.Validate())
	// Output: zmtp: invalid configuration (handshake): property name Name
}

// A mechanism is created with the properties to announce. NULL is the mechanism of
// a HandshakeConfig without Mechanism.
func ExampleNewNull() {
	c := zmtp.HandshakeConfig{SocketType: zmtp.TypeSub}
	c.Mechanism = zmtp.NewNull(c.AppendProperties(nil))
	ready, err := c.Mechanism.Start(nil)
	fmt.Println(c.Mechanism.Name(), len(ready), err)
	// Output: NULL 27 <nil>
}

func ExampleProtocolError() {
	var d zmtp.Decoder
	_, _, err := d.Next([]byte("\x05\x05\x04PONG"))
	var p *zmtp.ProtocolError
	if errors.As(err, &p) {
		fmt.Println(p.Op, "-", p.Reason, "-", errors.Is(err, zmtp.ErrMalformed))
	}
	// Output: decode - command with MORE - true
}
