package zmtp

import "strconv"

// Status codes of an authentication, as passed to [Handshake.Deny] (RFC 27,
// section "The ZAP Reply"). The peer receives an ERROR with the code, except
// for StatusTemporary.
const (
	StatusAccepted  = "200" // the peer is accepted; see Handshake.Accept
	StatusTemporary = "300" // temporary failure: no ERROR is sent, and the peer may try again
	StatusDenied    = "400" // the credentials are rejected
	StatusFailed    = "500" // the authenticator has failed
)

// Status returns the status code of a failed authentication, 300, 400 or 500:
// if we have denied the peer (ErrDenied), or if the peer has denied us and has
// sent the code (ErrRefused). Otherwise it returns 0.
func (e *ProtocolError) Status() int {
	if e.Err != ErrDenied && e.Err != ErrRefused {
		return 0
	}
	switch e.Reason {
	case StatusTemporary, StatusDenied, StatusFailed:
		code, _ := strconv.Atoi(e.Reason)
		return code
	}
	return 0
}

// statusMeanings says what the result of ProtocolError.Status means.
var statusMeanings = map[int]string{
	300: ", nobody can be authenticated at the moment",
	400: ", these credentials are not accepted",
	500: ", the authentication itself failed",
}
