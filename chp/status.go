package chp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"

	"clustermap/chp/internal/follow"
	"clustermap/chp/internal/order"
	"clustermap/chp/internal/wire"
	"clustermap/internal/hooks"
	"clustermap/internal/option"
	"clustermap/internal/version"
	"clustermap/internal/wake"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// Status describes the current state of a server. "chp status --json" prints its JSON
// form, in which it makes Sequence a string, and fields that the server does not know
// null. Later versions may add fields.
type Status struct {
	// Endpoint is the snapshot port P: from [ServerStatus] as it was passed in, from
	// [Server.Status] ServerOptions.Advertise or where the server listens.
	Endpoint string `json:"endpoint"`

	// Version is that of this module in the server's program: of a release, with a commit
	// for a build from a checkout, or "unknown". From a server of an earlier version it is
	// "".
	Version string `json:"version"`

	Role  ServerRole  `json:"role"`
	State ServerState `json:"state"`

	// TakesOver reports that the server is not active, but becomes so when a client asks
	// for the map: it has not heard the active server of its pair for the time-out.
	TakesOver bool `json:"takes_over"`

	// Epoch is the number of the active server's reign, which increases with each
	// failover. It is 0 for a server without a pair.
	Epoch uint64 `json:"epoch"`

	Sequence int64 `json:"sequence"` // of the last published update
	Keys     int   `json:"keys"`
	Clients  int   `json:"clients"` // connections to the publisher port: each client has one

	// Peer is the snapshot port of the other server of the pair, or "" without a pair.
	// Lag is the number of updates that the peer does not have yet, or -1 while it does
	// not follow or is sent the whole map; on a server that is not active it is 0.
	Peer string `json:"peer"`
	Lag  int64  `json:"lag"`

	// PeerError says why the server does not hear the other one of the pair, although
	// somebody answers at the addresses of that: it refuses this server's key, for example.
	// It is "" if the other server is heard, or nobody answers there. From a server of an
	// earlier version it is "".
	PeerError string `json:"peer_error"`

	// InSync reports that the other server of the pair has all published updates, and
	// that an update is published only when both servers have it: see
	// [PairOptions.Acks]. Only the active server of a pair knows this: on another one,
	// and without a pair, it is false.
	InSync bool `json:"in_sync"`

	// MemoryBytes is the resident memory of the server's process, as the operating
	// system counts it. On systems other than Linux it is the memory that the Go
	// runtime has obtained. MapBytes is the part that keys, values and properties use,
	// counted as for ServerOptions.MaxMapBytes.
	MemoryBytes int64 `json:"memory_bytes"`
	MapBytes    int64 `json:"map_bytes"`

	// SnapshotBytes is the number of bytes of snapshots that the server has sent since
	// it started. EncodedBytes is the number of bytes that it has encoded for them: clients
	// that join together share the same bytes, and those of this module are sent most of
	// them as they are in the map.
	SnapshotBytes int64 `json:"snapshot_bytes"`
	EncodedBytes  int64 `json:"encoded_bytes"`

	// Refused are the numbers of messages that the server has refused since it
	// started, as in ServerStats. From a server of an earlier version all are 0.
	Refused RefusalCounts `json:"refused"`

	// BadAsks is the number of snapshot requests that the server has refused since it
	// started: they were malformed, or one client had too many. From a server of an
	// earlier version it is 0.
	BadAsks uint64 `json:"bad_asks"`

	UptimeSeconds int64 `json:"uptime_seconds"` // since Serve began; 0 before

	// Cluster is what a node of a cluster knows of it, and nil for other servers.
	Cluster *NodeStatus `json:"cluster"`
}

// ServerRole is the role in which a server was started.
type ServerRole string

// Roles of a server.
const (
	RolePrimary ServerRole = "primary" // of a pair; becomes active when both start with the same data
	RoleBackup  ServerRole = "backup"  // of a pair
	RoleAlone   ServerRole = "alone"   // not part of a pair or a cluster
	RoleNode    ServerRole = "node"    // of a cluster
)

// ServerState is the current state of a server.
type ServerState string

// States of a server.
const (
	ServerActive  ServerState = "active"  // accepts updates and serves clients
	ServerPassive ServerState = "passive" // follows the active server of its pair, or the leader of its cluster, and then serves, too
	ServerWaiting ServerState = "waiting" // not yet either of the two
)

// ErrNoStatus is returned for a server of another implementation, which cannot be asked
// for its status.
var ErrNoStatus = errors.New("chp: the server is of another implementation and has no status")

// Status returns the current status of the server.
func (s *Server) Status() Status {
	s.state.Lock()
	st := Status{Endpoint: s.opts.Advertise, Version: version.String(), Role: RoleAlone, State: ServerWaiting}
	if len(s.endpoints) > 0 {
		st.Endpoint = cmp.Or(st.Endpoint, s.endpoints[0].Snapshot)
	}
	if !s.began.IsZero() {
		st.UptimeSeconds = int64(time.Since(s.began) / time.Second)
		st.State = ServerActive
	}
	s.state.Unlock()
	st.Sequence, st.Keys, st.Clients = s.Sequence(), s.Len(), int(s.counts.clients.Load())
	s.sequencer.Between(func(now *order.Moment) { st.MapBytes = int64(now.State.Store.LiveBytes()) })
	st.MemoryBytes = residentBytes()
	st.SnapshotBytes, st.EncodedBytes = s.snapshots.Counted.SentBytes.Load(), s.snapshots.Counted.EncodedBytes.Load()
	st.Refused, st.BadAsks = s.counts.refused.load(), s.counts.badAsks.Load()
	s.pairStatus(&st)
	s.nodeStatus(&st)
	return st
}

// Active reports whether the server serves, and accepts updates: its Status has the state ServerActive. So does
// a node of a cluster that follows, as long as it hears the leader. It takes no lock.
func (s *Server) Active() bool {
	select {
	case <-s.ended:
		return false
	default:
	}
	select {
	case <-s.ready:
		return (s.pair == nil || s.pair.Active()) && (s.member == nil || s.member.Serves())
	default:
		return false
	}
}

// Ask counts as a request of a client. A server of a pair that is not active, and has not heard the other one
// for the time-out, becomes active when clients ask for the map: whoever opens another door to it than
// the protocol's calls Ask when somebody comes and the server is not active.
func (s *Server) Ask() {
	if s.pair != nil {
		s.pair.Ask()
	}
}

// pairStatus sets the fields that depend on the pair: Role, State, TakesOver, Epoch, Peer,
// PeerError, Lag and InSync. Without a pair it changes nothing.
func (s *Server) pairStatus(st *Status) {
	if s.pair == nil {
		return
	}
	st.Role, st.Peer, st.State = RolePrimary, s.opts.Pair.Peer, ServerWaiting
	if s.opts.Pair.Backup {
		st.Role = RoleBackup
	}
	p := s.pair.Status()
	st.Epoch, st.TakesOver, st.Lag, st.InSync, st.PeerError = p.Epoch, p.TakesOver, p.Lag, p.InSync, p.Fault
	switch {
	case p.Active:
		st.State = ServerActive
	case p.Follows:
		st.State = ServerPassive
	}
}

// residentBytes returns the resident memory of this process.
func residentBytes() int64 {
	// The second number is the resident memory in pages.
	if text, err := os.ReadFile("/proc/self/statm"); err == nil {
		if fields := strings.Fields(string(text)); len(fields) > 1 {
			if pages, err := strconv.ParseInt(fields[1], 10, 64); err == nil {
				return pages * int64(os.Getpagesize())
			}
		}
	}
	m := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(m)
	return int64(m[0].Value.Uint64() - m[1].Value.Uint64())
}

// answerQuestion answers a question about the server, and reports whether the message
// was one. It does not block.
func (s *Server) answerQuestion(ctx context.Context, peer *sockets.Peer, m zmtp.WireMessage) bool {
	if m.Len() > 2 || !wire.Ours(peer) {
		return false
	}
	question, rest := m.Next()
	if len(rest) > 0 {
		about, _ := rest.Next()
		switch string(question) {
		case wire.AskClients:
			s.answerClients(peer, string(about))
		case wire.AskKick:
			s.answerKick(peer, string(about))
		case wire.AskHot:
			s.answerHot(peer, string(about))
		case wire.AskCluster:
			s.startChange(ctx, peer, about)
		default:
			return false
		}
		return true
	}
	switch string(question) {
	case wire.AskStatus:
		s.replyJSON(peer, wire.AnswerStatus, s.Status())
	case wire.AskWho:
		s.reply(peer, wire.AnswerWho, s.identify(peer))
	case wire.AskReload:
		s.startReload(ctx, peer)
	case wire.AskHandover:
		s.startHandover(ctx, peer)
	case wire.AskPromote:
		s.startPromotion(ctx, peer)
	default:
		return false
	}
	return true
}

// replyJSON sends an answer whose second frame is a value in JSON.
func (s *Server) replyJSON(peer *sockets.Peer, answer string, value any) {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // it has numbers and strings only
	}
	s.reply(peer, answer, text)
}

// reply sends an answer unless the connection's queue is full, which happens only if
// the peer does not read.
func (s *Server) reply(peer *sockets.Peer, answer string, text []byte) {
	wire := zmtp.AppendMessage(nil, []byte(answer), text)
	if err := hooks.SendWireTo(wake.Ended, s.router, peer, wire, 1, nil); err != nil {
		s.log.Debug("no answer sent", "remote", peer.RemoteAddr(), "answer", answer, "error", err)
	}
}

// ServerStatus asks the server at tcp://host:P for its status. security is the same as
// [ClientOptions.Security]. Only servers of this package can answer; for another one
// the error is [ErrNoStatus]. ServerStatus connects once, or again if nobody answers on a
// connection that was made, to another address if the host has several. The context bounds
// the wait for the answer.
func ServerStatus(ctx context.Context, server string, security sockets.Security) (Status, error) {
	text, err := ask(ctx, server, security, wire.AskStatus, wire.AnswerStatus)
	if err != nil {
		return Status{}, err
	}
	var st Status
	if err := json.Unmarshal(text, &st); err != nil {
		return Status{}, fmt.Errorf("%w: %w", follow.ErrNotCHP, err)
	}
	st.Endpoint = server
	return st, nil
}

// ask connects to a server's snapshot port, asks a question, and returns the second
// frame of the answer.
func ask(ctx context.Context, server string, security sockets.Security, question, answer string, more ...[]byte) (text []byte, err error) {
	err = converse(ctx, server, security, func(q *questions) error {
		text, err = q.ask(answer, append([][]byte{[]byte(question)}, more...)...)
		return err
	})
	return text, err
}

// questions asks a server on one connection.
type questions struct {
	ctx    context.Context
	dealer *sockets.Dealer
}

// ask asks a question, and returns the second frame of the answer.
func (q *questions) ask(answer string, question ...[]byte) ([]byte, error) {
	if err := q.dealer.Send(q.ctx, question...); err != nil {
		return nil, cmp.Or(context.Cause(q.ctx), err)
	}
	for {
		m, err := q.dealer.Recv(q.ctx)
		if err != nil {
			return nil, cmp.Or(context.Cause(q.ctx), err)
		}
		if len(m) == 2 && string(m[0]) == answer {
			return m[1], nil
		}
		if d, ok := wire.ParseDenial(zmtp.AppendMessage(nil, m...)); ok && d.Question == string(question[0]) {
			return nil, &d.Why
		}
	}
}

// converse connects to a server's snapshot port, and calls f to ask questions. It asks only
// servers of this package: the guide's servers terminate at an unknown request.
func converse(ctx context.Context, server string, security sockets.Security, f func(*questions) error) error {
	at, err := parseServer(server, wire.DialectOf(ModelSix))
	if err != nil {
		return option.New("chp", "Servers", "%q %v", server, err)
	}
	for limit := firstHandshake; ; limit *= 2 {
		err := converseOnce(ctx, at.Snapshot, security, f, limit)
		if ctx.Err() != nil || !errors.Is(err, sockets.ErrHandshakeTimeout) {
			return err
		}
	}
}

// converseOnce is converse with one connection. With sockets.ErrHandshakeTimeout nothing was
// asked.
func converseOnce(ctx context.Context, endpoint string, security sockets.Security, f func(*questions) error, handshake time.Duration) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	opened := make(chan *sockets.Peer, 1)
	dealer, err := sockets.NewDealer(sockets.Options{
		Security: security, Metadata: wire.Properties(),
		MaxMessageSize: maxAnswer, ReconnectInterval: sockets.ReconnectNever, Linger: sockets.LingerNone, HandshakeTimeout: handshake,
		Monitor: func(e sockets.Event) {
			switch e.Kind {
			case sockets.EventHandshakeSucceeded:
				opened <- e.Peer // it connects once
			case sockets.EventConnectFailed, sockets.EventHandshakeFailed:
				fail(fmt.Errorf("%w: %w", ErrUnreachable, e.Err))
			case sockets.EventDisconnected:
				fail(fmt.Errorf("%w: %w", ErrDisconnected, e.Err))
			}
		},
	})
	if err != nil {
		return err
	}
	defer dealer.Close() // closing a socket does not fail
	if err := dealer.Connect(endpoint); err != nil {
		return err
	}
	select {
	case peer := <-opened:
		if !wire.Ours(peer) && !wire.HasModel(peer) {
			return ErrNoStatus
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return f(&questions{ctx, dealer})
}
