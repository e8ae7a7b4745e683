package zmtp

import (
	"errors"
	"fmt"
	"testing"
)

func TestProtocolError(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  *ProtocolError
		want string
	}{
		{&ProtocolError{"decode", "command with MORE", ErrMalformed}, "zmtp: malformed (decode): command with MORE"},
		{&ProtocolError{"handshake", "go\naway", ErrRefused}, `zmtp: refused by the peer (handshake): "go\naway"`},
		{&ProtocolError{"handshake", StatusDenied, ErrRefused}, `zmtp: refused by the peer (handshake): "400", these credentials are not accepted`},
		{&ProtocolError{"handshake", StatusFailed, ErrDenied}, `zmtp: credentials denied (handshake): 500, the authentication itself failed`},
		{&ProtocolError{"decode", "400", ErrMalformed}, `zmtp: malformed (decode): 400`},
		{&ProtocolError{Op: "greeting", Err: ErrVersion}, "zmtp: unsupported version (greeting)"},
		{&ProtocolError{Op: "greeting", Reason: "r"}, "zmtp: error (greeting): r"},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
		if c.err.Err != nil && !errors.Is(fmt.Errorf("remote: %w", c.err), c.err.Err) {
			t.Errorf("%v is not %v", c.err, c.err.Err)
		}
	}
}

// wantError fails the test unless err is a *ProtocolError of the given
// condition.
func wantError(t *testing.T, err, condition error) {
	t.Helper()
	var p *ProtocolError
	if !errors.As(err, &p) || !errors.Is(err, condition) {
		t.Errorf("error %v, want a ProtocolError that is %v", err, condition)
	}
}
