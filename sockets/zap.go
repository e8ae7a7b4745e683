package sockets

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"clustermap/zmtp"
)

// ZAP (RFC 27) lets a program bind one socket, of type REP or ROUTER, to
// inproc://zeromq.zap.01, and judge the peers of all its servers there. It is
// asked where Security.Authenticate is not set.

const (
	zapName     = "zeromq.zap.01"
	zapEndpoint = "inproc://" + zapName
	zapVersion  = "1.0"
	zapID       = "1" // of the only request on its connection, as in libzmq
	zapReply    = 7   // frames, with the delimiter
)

// ZAPError is a handler's reply that is none (RFC 27, The ZAP Reply). It ends the
// connection that was to be judged, without a word to the peer.
type ZAPError struct {
	Reason string
	code   uint32
}

func (e *ZAPError) Error() string { return "sockets: reply of the ZAP handler: " + e.Reason }

// Code returns libzmq's number for the fault (ZMQ_PROTOCOL_ERROR_ZAP_*).
func (e *ZAPError) Code() uint32 { return e.code }

// The faults of a reply.
var (
	errZAPMalformed = &ZAPError{"not an empty frame and six others", zmtp.CodeZAPMalformedReply}
	errZAPID        = &ZAPError{"another request's id", zmtp.CodeZAPBadRequestID}
	errZAPVersion   = &ZAPError{"not version 1.0", zmtp.CodeZAPBadVersion}
	errZAPStatus    = &ZAPError{"status is none of 200, 300, 400, 500", zmtp.CodeZAPInvalidStatus}
	errZAPMetadata  = &ZAPError{"malformed metadata", zmtp.CodeZAPInvalidMetadata}
)

// zapHandler returns how to ask the ZAP handler, nil if there is none or it is
// not to be asked.
func (s *socket) zapHandler() Authenticator {
	sec := s.security()
	switch {
	case sec.role() == roleNull && sec.ZAPDomain == "":
		return nil
	case sec.role() == roleCurveServer && sec.ZAPEnforceDomain && sec.ZAPDomain == "":
		return nil
	case !s.inproc().isBound(zapName):
		return nil
	}
	return s.askZAP
}

// isBound says whether somebody is bound to a name.
func (n *Inproc) isBound(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.bound[name] != nil
}

// askZAP asks the ZAP handler, on a connection of its own, so that requests do
// not wait for each other and answers cannot be mixed up. When the context ends,
// the request is withdrawn unless the handler has received it, so that requests of
// peers that have gone do not pile up there. If the handler's socket is closed, or
// of the wrong type, the error is ErrNoAuthenticator.
func (s *socket) askZAP(ctx context.Context, r AuthRequest) (User, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	d, err := NewDealer(Options{Inproc: s.opts.Inproc, Linger: -1, Monitor: func(e Event) {
		if e.Kind == Disconnected || e.Kind == HandshakeFailed {
			cancel(ErrNoAuthenticator)
		}
	}})
	if err != nil {
		return User{}, err
	}
	defer d.Close()
	d.withdraws = true
	if err := d.Connect(zapEndpoint); err != nil {
		return User{}, err
	}
	if err := d.Send(ctx, zapRequest(&r)...); err != nil {
		return User{}, zapFault(ctx, err)
	}
	reply, err := d.Recv(ctx)
	if err != nil {
		if reply, err = d.TryRecv(); err != nil { // the handler may have answered before it closed
			return User{}, zapFault(ctx, err)
		}
	}
	return parseZAPReply(reply)
}

// zapFault returns why a request failed: the cause of the context's end or, if it
// has not ended, err. It never returns nil, which would let the peer in.
func zapFault(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// zapRequest returns the frames of a request. The identity is the peer's, as RFC 27
// has it; libzmq sends its own.
func zapRequest(r *AuthRequest) [][]byte {
	frames := [][]byte{
		{}, []byte(zapVersion), []byte(zapID), []byte(r.Domain), []byte(r.Address), []byte(r.Identity), []byte(r.Mechanism),
	}
	switch r.Mechanism {
	case "PLAIN":
		frames = append(frames, []byte(r.username), []byte(r.password))
	case "CURVE":
		frames = append(frames, r.key[:])
	}
	return frames
}

// parseZAPReply returns the verdict in the frames of a reply.
func parseZAPReply(frames [][]byte) (User, error) {
	if len(frames) != zapReply || len(frames[0]) > 0 {
		return User{}, errZAPMalformed
	}
	version, id, status, text, user, metadata := frames[1], frames[2], frames[3], frames[4], frames[5], frames[6]
	switch {
	case string(version) != zapVersion:
		return User{}, errZAPVersion
	case string(id) != zapID:
		return User{}, errZAPID
	}
	verdict := error(nil)
	switch string(status) {
	case zmtp.StatusAccepted:
	case zmtp.StatusTemporary:
		verdict = ErrTemporary
	case zmtp.StatusDenied:
		verdict = ErrDenied
	case zmtp.StatusFailed:
		verdict = errZAPFailed
	default:
		return User{}, errZAPStatus
	}
	properties, err := zmtp.ParseMetadata(metadata)
	switch {
	case err != nil:
		return User{}, errZAPMetadata
	case verdict == nil:
	case len(text) > 0:
		return User{}, fmt.Errorf("%w: %s", verdict, strconv.Quote(string(text)))
	default:
		return User{}, verdict
	}
	u := User{ID: string(user), Metadata: make(map[string]string, len(properties))}
	for _, p := range properties {
		if _, twice := u.Metadata[p.Name]; !twice { // the first one counts, as in libzmq
			u.Metadata[p.Name] = string(p.Value)
		}
	}
	return u, nil
}

var errZAPFailed = errors.New("sockets: the ZAP handler failed")
