package sockets

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"syscall"

	"clustermap/internal/engine"
	"clustermap/zmtp"
)

// With ZAP (RFC 27), a program binds one REP or ROUTER socket to
// inproc://zeromq.zap.01 and authenticates the peers of all its servers there. It
// is used if Security.Authenticate is not set.

const (
	zapEndpoint = "inproc://" + engine.ZAPName
	zapVersion  = "1.0"
	zapID       = "1" // the only request of a connection, as in libzmq
	zapReply    = 7   // number of frames, including the delimiter
)

// ZAPError describes an invalid reply of a ZAP handler (RFC 27, section "The
// ZAP Reply"). It is reported to the monitor with EventHandshakeFailed. The
// connection of the peer in question is closed without sending an ERROR.
type ZAPError struct {
	Reason string // why the reply is invalid
	code   uint32
}

func (e *ZAPError) Error() string { return "sockets: invalid reply of the ZAP handler: " + e.Reason }

// Code returns libzmq's number for the error (ZMQ_PROTOCOL_ERROR_ZAP_*).
func (e *ZAPError) Code() uint32 { return e.code }

// Errors in a reply.
var (
	errZAPMalformed = &ZAPError{"not an empty frame followed by six frames", zmtp.CodeZAPMalformedReply}
	errZAPID        = &ZAPError{"wrong request ID", zmtp.CodeZAPBadRequestID}
	errZAPVersion   = &ZAPError{"version is not 1.0", zmtp.CodeZAPBadVersion}
	errZAPStatus    = &ZAPError{"status is not 200, 300, 400 or 500", zmtp.CodeZAPInvalidStatus}
	errZAPMetadata  = &ZAPError{"malformed metadata", zmtp.CodeZAPInvalidMetadata}
)

// zapHandler returns an Authenticator that asks the ZAP handler, or nil if
// there never was one or it must not be used. Once a handler was bound in the namespace,
// the socket refuses peers while there is none: a handler that has ended, such as one that
// failed, must not open the servers that it guarded. libzmq accepts the peers then.
func (s *socket) zapHandler(sec *Security) Authenticator {
	switch {
	case sec.role() == roleNull && sec.ZAPDomain == "":
		return nil
	case sec.role() == roleCurveServer && sec.ZAPEnforceDomain && sec.ZAPDomain == "":
		return nil
	}
	switch bound, ever := (*engine.Names)(s.opts().Inproc).ZAP(); {
	case bound:
		return s.askZAP
	case ever:
		return noZAPHandler
	}
	return nil
}

// errZAPEnded means that there is no handler any more. libzmq's monitor reports EPIPE then,
// and EFAULT if there never was one.
var errZAPEnded = fmt.Errorf("%w: the ZAP handler has ended: %w", ErrNoAuthenticator, syscall.EPIPE)

// noZAPHandler refuses all peers.
func noZAPHandler(context.Context, AuthRequest) (User, error) { return User{}, errZAPEnded }

// askZAP asks the ZAP handler. It uses a connection for each request, so that
// requests do not wait for each other and replies cannot be mixed up. When the
// context is done, the request is withdrawn unless the handler has received it,
// so that requests for peers that have gone do not accumulate. If the handler's
// socket is closed or has the wrong type, the error is ErrNoAuthenticator.
func (s *socket) askZAP(ctx context.Context, r AuthRequest) (User, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	d, err := newDealer(Options{Inproc: s.opts().Inproc, Linger: LingerNone, Monitor: func(e Event) {
		if e.Kind == EventDisconnected || e.Kind == EventHandshakeFailed {
			cancel(errZAPEnded)
		}
	}}, true)
	if err != nil {
		return User{}, err
	}
	defer d.Close()
	if err := d.Connect(zapEndpoint); err != nil {
		return User{}, err
	}
	if err := d.Send(ctx, zapRequest(&r, s.opts().Identity)...); err != nil {
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

// zapFault returns why a request failed: the cause of the context's end or, if
// it has not ended, err. It never returns nil, which would accept the peer.
func zapFault(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// zapRequest returns the frames of a request of a socket with this identity. RFC 27
// calls for the peer's identity, which is not known yet except with CURVE. libzmq
// (src/zap_client.cpp) sends that of the socket, and handlers tell sockets apart by it.
func zapRequest(r *AuthRequest, identity []byte) [][]byte {
	frames := [][]byte{
		{}, []byte(zapVersion), []byte(zapID), []byte(r.Domain), []byte(r.Address), identity, []byte(r.Mechanism),
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
	verdict, known := zapVerdicts[string(status)]
	if !known {
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

// zapVerdicts maps the status of a reply to an error.
var zapVerdicts = map[string]error{
	zmtp.StatusAccepted: nil, zmtp.StatusTemporary: ErrTemporary, zmtp.StatusDenied: ErrDenied, zmtp.StatusFailed: errZAPFailed,
}

var errZAPFailed = errors.New("sockets: the ZAP handler failed")
