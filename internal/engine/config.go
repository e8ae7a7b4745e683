package engine

import (
	"context"
	"sync/atomic"
	"time"

	"clustermap/internal/bounds"
	"clustermap/internal/link"
	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// Config is what the engine needs of a socket's options, with the defaults filled in and
// queue.Unbounded for no limit. See sockets.Options for the meaning. A Config does not
// change.
type Config struct {
	Of any // the options, for the socket type

	Identity   []byte
	Metadata   zmtp.Metadata
	MinVersion int
	Security   Security
	Inproc     *Names
	Link       link.Options

	Send, Recv                                        queue.HWM // high-water marks
	SendTotalBytes, RecvTotalBytes                    int
	MaxIncompleteBytes                                int
	MaxConnections, MaxHandshakes                     int
	MaxMessageSize                                    int64
	Conflate, Immediate                               bool
	ConnectTimeout, HandshakeTimeout                  time.Duration
	HeartbeatInterval, HeartbeatTimeout, HeartbeatTTL time.Duration
	SendTimeout, RecvTimeout, Linger, BusyPoll        time.Duration
	ReconnectInterval, ReconnectIntervalMax           time.Duration
	ReconnectStop                                     Stops

	// Hello is the first message of each connection in wire form. Parting and Hiccup are the
	// messages that the application receives when a connection has ended: one that was
	// accepted, and one of Connect. Nil for none.
	Hello           []byte
	Parting, Hiccup []byte
	Notices         bool // the application receives messages about a peer that it has not sent

	Monitor  func(Event)      // nil: none
	Operator func(*Peer) bool // nil: no places for operators
}

// Stops says when an endpoint is given up; see sockets.ReconnectStop.
type Stops uint8

const (
	StopOnRefused Stops = 1 << iota
	StopOnHandshakeFailed
	StopAfterDisconnect
	StopOnProtocolError
)

// Security is how a socket and its peers authenticate each other.
type Security struct {
	// Mechanism returns the mechanism of a connection, or nil for NULL without an
	// authenticator. The cookies of a CURVE server live for the given time, or for the
	// usual one if it is 0. A CURVE client takes the server to have a key, of which it knows
	// ServerKeys.
	Mechanism  func(c *zmtp.HandshakeConfig, cookies time.Duration, key int) zmtp.Mechanism
	ServerKeys int
	// Authenticate returns what decides about a client with the given credentials, which it
	// copies, and network address. It returns nil if all are accepted now, and an error if
	// none is. The function may wait until its context is done.
	Authenticate func(c zmtp.Credentials, address string) (func(context.Context) Verdict, error)
	// Authenticates reports whether not all clients are accepted now.
	Authenticates func() bool
	// CurveServer and CurveClient say that the socket is one.
	CurveServer, CurveClient bool
}

// Verdict is the decision about a client.
type Verdict struct {
	Status string // zmtp.Status…; empty if there is none: the connection ends with Err
	Err    error  // why the client is refused

	UserID   string
	Metadata zmtp.Metadata
}

// settings holds the options that are in effect. They can change at any time, and are
// read without a lock. The options that calls need for each message are kept apart, so
// that a message costs no more than if the options were fixed: here, in atomic variables,
// and otherwise under the mutex that the call takes anyway.
//
// The options are behind an atomic pointer, so that formatting a socket with package fmt does
// not show the secrets in them.
type settings struct {
	current atomic.Pointer[Config]

	sendTimeout, recvTimeout atomic.Int64 // SendTimeout and RecvTimeout
	maxMessage               atomic.Int64 // MaxMessageSize
}

// store puts options into effect.
func (t *settings) store(o *Config) {
	t.current.Store(o)
	t.sendTimeout.Store(int64(o.SendTimeout))
	t.recvTimeout.Store(int64(o.RecvTimeout))
	t.maxMessage.Store(o.MaxMessageSize)
}

// admission returns the limits of accepted connections.
func (o *Config) admission() bounds.Limits {
	return bounds.Limits{
		MaxConnections: o.MaxConnections, MaxHandshakes: o.MaxHandshakes,
		Operators: o.Operator != nil, Keys: o.Security.CurveServer,
	}
}

// SendLimit and recvLimit return how long a call waits.
func (s *Socket) SendLimit() queue.Limit {
	return queue.Limit{Patience: time.Duration(s.settings.sendTimeout.Load())}
}

func (s *Socket) recvLimit() queue.Limit {
	return queue.Limit{Patience: time.Duration(s.settings.recvTimeout.Load())}
}

// MaxMessage returns the size of the largest message that can be sent, in bytes on the wire.
func (s *Socket) MaxMessage() int64 { return s.settings.maxMessage.Load() }

// Config returns the options in effect. Code that reads
// several of them for one decision calls it once.
func (s *Socket) Config() *Config { return s.settings.current.Load() }

// SetConfig makes new options take effect. In the end it calls changed.
func (s *Socket) SetConfig(now *Config, changed func()) {
	s.settings.store(now)
	s.In.SetLimits(now.Recv, now.RecvTotalBytes)
	s.admission.Set(now.admission())
	s.incomplete.SetLimit(now.MaxIncompleteBytes)
	s.total.set(now.SendTotalBytes)
	for _, p := range s.Pipes() {
		p.relimit(now)
	}
	changed()
	s.In.Tell()
}

// relimit sets the high-water marks of a pipe's queues. Over inproc, a queue has those
// of both sides together.
func (p *Pipe) relimit(now *Config) {
	if p.Out.SetLimits(now.Send) {
		p.hasRoomAgain()
	}
	peer := p.peer.Load()
	if peer == nil || peer.far == nil {
		return
	}
	far := peer.far.pipe
	if far.Out.SetFarLimits(now.Recv) {
		far.hasRoomAgain()
	}
	p.socket.In.Report(&p.In, far.Out.Limits().Low().Messages)
	far.socket.In.Report(&far.In, p.Out.Limits().Low().Messages)
}

// hasRoomAgain notifies callers that may wait for room in a pipe that was full.
func (p *Pipe) hasRoomAgain() {
	p.socket.pattern.Roomy(p)
	p.socket.In.Tell()
}
