package zmtp

import (
	"errors"
	"slices"
	"testing"
)

// TestProtocolErrorCode uses errors of failed handshakes, because the code depends
// on their texts.
func TestProtocolErrorCode(t *testing.T) {
	t.Parallel()
	g := []byte(greetingBytes)
	plain := AppendGreeting(nil, Greeting{Major: 3, Minor: 1, Mechanism: "PLAIN"})
	curve := AppendGreeting(nil, Greeting{Major: 3, Minor: 1, Mechanism: "CURVE"})
	command := func(name string, data ...byte) []byte { return AppendCommand(nil, name, data) }
	for _, c := range []struct {
		name      string
		mechanism Mechanism
		in        []byte
		want      uint32
	}{
		{"old version", nil, []byte("GET"), CodeUnspecified},
		{"mechanism", nil, plain, CodeMechanismMismatch},
		{"message", nil, slices.Concat(g, []byte{0}), CodeUnexpectedCommand},
		{"other command", nil, slices.Concat(g, command("PING")), CodeUnexpectedCommand},
		{"MORE", nil, slices.Concat(g, []byte{5}), CodeMalformedCommand},
		{"no name", nil, slices.Concat(g, []byte{4, 0}), CodeMalformedCommand},
		{"too large", nil, slices.Concat(g, []byte{6, 0, 0, 0, 0, 1, 0, 0, 0}), CodeUnspecified},
		{"ERROR", nil, slices.Concat(g, command("ERROR", 9)), CodeMalformedError},
		{"metadata", nil, slices.Concat(g, command("READY", 5)), CodeInvalidMetadata},
		{"socket type", nil, slices.Concat(g, command("READY", AppendProperty(nil, PropertySocketType, []byte("PUB"))...)), CodeInvalidMetadata},
		{"identity", nil, slices.Concat(g, command("READY", AppendProperty(nil, PropertyIdentity, make([]byte, 256))...)), CodeInvalidMetadata},
		{"HELLO of PLAIN", NewPlainServer(nil), slices.Concat(plain, command("HELLO", 1)), CodeMalformedHello},
		{"INITIATE at once", NewPlainServer(nil), slices.Concat(plain, command("INITIATE")), CodeUnexpectedCommand},
		{"HELLO of CURVE", NewCurveServer(CurveServerConfig{Keys: GenerateKeyPair()}), slices.Concat(curve, command("HELLO", 1)), CodeMalformedHello},
	} {
		h := NewHandshake(HandshakeConfig{SocketType: TypeRep, Mechanism: c.mechanism})
		_, _, _, err := step(h, string(c.in), 1000)
		var p *ProtocolError
		if !errors.As(err, &p) || p.Code() != c.want || p.Status() != 0 {
			t.Errorf("%s: %v, code %#x, want %#x", c.name, err, p.Code(), c.want)
		}
	}
}

func TestProtocolErrorStatus(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  ProtocolError
		want int
	}{
		{ProtocolError{Err: ErrDenied, Reason: StatusTemporary}, 300},
		{ProtocolError{Err: ErrDenied, Reason: StatusDenied}, 400},
		{ProtocolError{Err: ErrDenied, Reason: StatusFailed}, 500},
		{ProtocolError{Err: ErrRefused, Reason: "400"}, 400},
		{ProtocolError{Err: ErrRefused, Reason: "no"}, 0},
		{ProtocolError{Err: ErrMalformed, Reason: "400"}, 0},
	} {
		if got := c.err.Status(); got != c.want {
			t.Errorf("%v: %d, want %d", &c.err, got, c.want)
		}
	}
	if got := (&ProtocolError{Err: ErrCryptographic}).Code(); got != CodeCryptographic {
		t.Errorf("%#x", got)
	}
	if got := (&ProtocolError{Op: "greeting", Err: ErrMalformed, Reason: "identity with MORE"}).Code(); got != CodeUnspecified {
		t.Errorf("%#x", got)
	}
}
