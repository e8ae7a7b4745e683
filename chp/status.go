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

	"clustermap/sockets"
	"clustermap/zmtp"
)

// Status says how a server is. Its JSON form is what "chp status --json" prints.
// Later versions may add fields.
type Status struct {
	// Endpoint is the snapshot port P: as it was given to [ServerStatus], or, from
	// [Server.Status], ServerOptions.Advertise or where the server listens.
	Endpoint string `json:"endpoint"`

	Role  ServerRole  `json:"role"`
	State ServerState `json:"state"`

	// Epoch is the number of the active server's reign, which rises with each
	// failover; 0 for a server that is alone.
	Epoch uint64 `json:"epoch"`

	Sequence int64 `json:"sequence"` // of the last update that was published
	Keys     int   `json:"keys"`
	Clients  int   `json:"clients"` // connections to the publisher port: each client has one

	// Peer is the snapshot port of the other server of the pair, "" for a server that
	// is alone. Lag is how many updates the peer does not have yet, and -1 while it
	// does not follow; 0 on a server that is not active.
	Peer string `json:"peer"`
	Lag  int64  `json:"lag"`

	// InSync says that the other server of a pair has all that the active one has
	// published, and that an update is published only when both have it: see
	// [PairOptions.Acks].
	InSync bool `json:"in_sync"`

	// MemoryBytes is the resident memory of the server's process: what the
	// operating system counts, whatever in the process it is for. Where the system
	// does not tell (all but Linux) it is what the Go runtime has taken. MapBytes is
	// the part that keys, values and properties make up, as ServerOptions.MaxMapBytes
	// counts.
	MemoryBytes int64 `json:"memory_bytes"`
	MapBytes    int64 `json:"map_bytes"`

	// SnapshotBytes is how many bytes of snapshots the server has handed to connections
	// since it began, and EncodedBytes how many it made for that: clients that join
	// together are sent the same bytes.
	SnapshotBytes int64 `json:"snapshot_bytes"`
	EncodedBytes  int64 `json:"encoded_bytes"`

	UptimeSeconds int64 `json:"uptime_seconds"` // since it began to serve; 0 before
}

// ServerRole is what a server was started as.
type ServerRole string

// Roles of a server.
const (
	RolePrimary ServerRole = "primary" // of a pair; preferred when both start
	RoleBackup  ServerRole = "backup"  // of a pair
	RoleAlone   ServerRole = "alone"   // not one of a pair
)

// ServerState is what a server does.
type ServerState string

// States of a server.
const (
	ServerActive  ServerState = "active"  // takes updates and serves clients
	ServerPassive ServerState = "passive" // follows the active server of its pair
	ServerWaiting ServerState = "waiting" // neither yet
)

// ErrNoStatus is returned for a server of another make: it cannot be asked.
var ErrNoStatus = errors.New("chp: the server is not of this package, and cannot be asked")

// Status returns how the server is now.
func (s *Server) Status() Status {
	s.state.Lock()
	st := Status{Endpoint: cmp.Or(s.opts.Advertise, s.endpoints.Snapshot), Role: RoleAlone, State: ServerWaiting}
	if !s.began.IsZero() {
		st.UptimeSeconds = int64(time.Since(s.began) / time.Second)
		st.State = ServerActive
	}
	s.state.Unlock()
	st.Sequence, st.Keys, st.Clients = s.Sequence(), s.Len(), int(s.clients.Load())
	st.MapBytes, st.MemoryBytes = s.sequencer.mapBytes(), residentBytes()
	st.SnapshotBytes, st.EncodedBytes = s.snapshots.sent.Load(), s.snapshots.copied.Load()
	s.pairStatus(&st)
	return st
}

// pairStatus fills in what depends on the server's place in a pair: Role, State,
// Epoch, Peer and Lag. They are those of a server that is alone.
func (s *Server) pairStatus(st *Status) {
	p := s.pair
	if p == nil {
		return
	}
	st.Role, st.Peer, st.State = RolePrimary, s.opts.Pair.Peer, ServerWaiting
	if s.opts.Pair.Backup {
		st.Role = RoleBackup
	}
	s.state.Lock()
	node := p.node
	s.state.Unlock()
	if node == nil {
		return // the server does not listen yet
	}
	q := &s.sequencer
	q.mu.Lock()
	defer q.mu.Unlock()
	st.Epoch = node.Epoch()
	switch {
	case p.active.Load():
		st.State = ServerActive
		if f := q.follower; f != nil && !f.left {
			st.Lag = max(q.newest.last-f.have, 0)
			st.InSync = q.commits.peer && f.have >= min(q.published.Load(), q.newest.last)
		} else {
			st.Lag = -1
		}
	case p.follows.Load():
		st.State = ServerPassive
	}
}

// residentBytes returns the memory of this process.
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

// Questions that a client of this package may ask on the snapshot port, one frame
// each, and the first frame of the answers, which have one more: an object in JSON,
// and why there is no handover, or nothing if there was one.
const (
	askStatus    = "STATUS?"
	answerStatus = "STATUS"

	askHandover    = "FAILOVER?"
	answerHandover = "FAILOVER"
)

// answerQuestion answers a question about the server itself, and says whether the
// message was one. Like all that runRequests does it does not wait.
func (s *Server) answerQuestion(ctx context.Context, peer *sockets.Peer, m zmtp.Message) bool {
	if m.Len() != 1 || peer.Property(propertyCHP) == "" {
		return false
	}
	switch question, _ := m.Next(); string(question) {
	case askStatus:
		text, err := json.Marshal(s.Status())
		if err != nil {
			panic(err) // a Status has numbers and strings only
		}
		s.reply(peer, answerStatus, text)
	case askHandover:
		s.takeHandover(ctx, peer)
	default:
		return false
	}
	return true
}

// reply sends an answer if the connection has room for it, which it has unless the
// peer does not read.
func (s *Server) reply(peer *sockets.Peer, answer string, text []byte) {
	wire := zmtp.AppendMessage(nil, []byte(answer), text)
	if err := s.router.SendWire(ended, peer, wire, 1, nil); err != nil {
		s.log.Debug("no answer sent", "remote", peer.RemoteAddr(), "answer", answer, "error", err)
	}
}

// ServerStatus asks the server at tcp://host:P how it is. security is what
// [ClientOptions.Security] would be. Nobody but servers of this package can answer:
// one of another make is not asked, and the error is [ErrNoStatus]. ServerStatus
// connects once; the context bounds the wait for the answer.
func ServerStatus(ctx context.Context, server string, security sockets.Security) (Status, error) {
	text, err := ask(ctx, server, security, askStatus, answerStatus)
	if err != nil {
		return Status{}, err
	}
	var st Status
	if err := json.Unmarshal(text, &st); err != nil {
		return Status{}, fmt.Errorf("%w: %w", errNotCHP, err)
	}
	st.Endpoint = server
	return st, nil
}

// maxAnswer bounds the bytes of an answer.
const maxAnswer = 64 << 10

// ask connects to a server's snapshot port, asks a question, and returns what the
// answer says. The question is sent only if the server is one of this package: the
// guide's servers end when they are asked what they do not know.
func ask(ctx context.Context, server string, security sockets.Security, question, answer string) ([]byte, error) {
	at, err := parseServer(server, fullModel.dialect())
	if err != nil {
		return nil, &OptionError{"Servers", fmt.Sprintf("%q %v", server, err)}
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	opened := make(chan *sockets.Peer, 1)
	dealer, err := sockets.NewDealer(sockets.Options{
		Security: security, Metadata: map[string]string{propertyCHP: announcement},
		MaxMessageSize: maxAnswer, ReconnectInterval: -1, Linger: -1,
		Monitor: func(e sockets.Event) {
			switch e.Kind {
			case sockets.HandshakeSucceeded:
				opened <- e.Peer // it connects once
			case sockets.ConnectFailed, sockets.HandshakeFailed:
				fail(fmt.Errorf("%w: %w", errUnreachable, e.Err))
			case sockets.Disconnected:
				fail(fmt.Errorf("%w: %w", errDisconnected, e.Err))
			}
		},
	})
	if err != nil {
		return nil, err
	}
	defer dealer.Close() // closing a socket does not fail
	if err := dealer.Connect(at.snapshot); err != nil {
		return nil, err
	}
	select {
	case peer := <-opened:
		if peer.Property(propertyCHP) == "" && peer.Property(propertyModel) == "" {
			return nil, ErrNoStatus
		}
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if err := dealer.Send(ctx, []byte(question)); err != nil {
		return nil, causeOr(ctx, err)
	}
	for {
		m, err := dealer.Recv(ctx)
		if err != nil {
			return nil, causeOr(ctx, err)
		}
		if len(m) == 2 && string(m[0]) == answer {
			return m[1], nil
		}
	}
}

// causeOr returns why a context has ended, or err if it has not.
func causeOr(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}
