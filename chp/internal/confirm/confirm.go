// Package confirm answers a client's question up to which sequence its server has committed
// updates: see wire.ParseSyncQuestion. A client waits until its replica has come so far, and
// then has all that was committed before it asked.
//
// The answer goes over the snapshot connection. A client of subtrees also gets a heartbeat, on
// the connection of its updates and in order with them: only that shows it that no update of its
// subtrees is missing below the sequence.
package confirm

import (
	"context"
	"sync"
	"time"

	"clustermap/chp/internal/wire"
	"clustermap/internal/hooks"
	"clustermap/internal/wake"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// Sequencer is what orders the updates.
type Sequencer interface {
	// Confirm is order.Sequencer.Confirm.
	Confirm(f func(last int64)) (confirmed bool, again <-chan struct{})
}

// Options are what a Server needs.
type Options struct {
	Order     Sequencer
	Router    *sockets.Router // with the snapshot connections
	Publisher *sockets.Pub    // with the connections of updates

	// Index, if not nil, returns when this server has all that was committed anywhere before the call: a server of a
	// cluster has to ask others. Then the questions that wait are answered together.
	Index func(context.Context) error
}

// Server answers. It is safe for concurrent use.
type Server struct {
	o       Options
	running sync.WaitGroup

	turn sync.Mutex                 // of answer; locked before that of the sequencer
	now  map[*sockets.Peer]question // those that it answers
	wire []byte                     // its scratch

	// mu guards the fields below. No other lock is taken under it: monitors take it.
	mu          sync.Mutex
	subscribers map[client]*subscriber
	waiting     map[*sockets.Peer]question // the last one of each connection
	retries     bool                       // a goroutine answers them later
}

// client is one session of a client.
type client struct {
	id         string
	generation uint64
}

// subscriber is a connection of updates.
type subscriber struct {
	peer *sockets.Peer
	sent int64 // sequence of the last heartbeat that was sent to it alone; guarded by Server.turn
}

type question struct {
	number    uint64
	heartbeat bool
}

// New returns a server of answers.
func New(o Options) *Server {
	return &Server{
		o: o, now: map[*sockets.Peer]question{}, waiting: map[*sockets.Peer]question{}, subscribers: map[client]*subscriber{},
	}
}

// Watch handles a monitor event of the publisher.
func (s *Server) Watch(e sockets.Event) {
	if e.Kind != sockets.EventHandshakeSucceeded && e.Kind != sockets.EventDisconnected {
		return
	}
	id, generation, ok := wire.ClientOf(e.Peer)
	if !ok {
		return
	}
	c := client{id, generation}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch known := s.subscribers[c]; {
	case e.Kind == sockets.EventHandshakeSucceeded:
		s.subscribers[c] = &subscriber{peer: e.Peer}
	case known != nil && known.peer == e.Peer:
		delete(s.subscribers, c)
	}
}

// Forget forgets a snapshot connection that has ended.
func (s *Server) Forget(peer *sockets.Peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waiting, peer)
}

// Ask answers a message if it is the question, and reports whether it is: at once, or when the
// server may confirm something. A server that becomes passive meanwhile disconnects the client.
// The context is the one of the server.
func (s *Server) Ask(ctx context.Context, peer *sockets.Peer, m zmtp.WireMessage) bool {
	number, heartbeat, ok := wire.ParseSyncQuestion(m)
	if !ok {
		return false
	}
	s.mu.Lock()
	s.waiting[peer] = question{number, heartbeat || s.waiting[peer].heartbeat}
	later := s.retries
	if s.o.Index != nil {
		s.retries = true
	}
	s.mu.Unlock()
	if s.o.Index != nil {
		if !later {
			s.running.Go(func() { s.answerIndexed(ctx) })
		}
		return true
	}
	if !later {
		if again := s.answer(); again != nil {
			s.running.Go(func() { s.retry(ctx, again) })
		}
	}
	return true
}

// answerIndexed answers questions, together those that wait, until there are none.
func (s *Server) answerIndexed(ctx context.Context) {
	s.turn.Lock()
	defer s.turn.Unlock()
	for {
		s.mu.Lock()
		if s.now, s.waiting = s.waiting, s.now; len(s.now) == 0 {
			s.retries = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		for s.o.Index(ctx) != nil {
			if !wake.Pause(ctx, indexPause) {
				return
			}
		}
		s.send()
		clear(s.now)
	}
}

// indexPause is the pause after an error of Index, which is one of a server that ends.
const indexPause = 20 * time.Millisecond

// retry answers the questions when that is possible.
func (s *Server) retry(ctx context.Context, again <-chan struct{}) {
	for again != nil {
		select {
		case <-again:
		case <-ctx.Done():
			return
		}
		again = s.answer()
	}
}

// answer answers the questions that wait, or returns a channel that is closed when it may be
// possible.
func (s *Server) answer() (again <-chan struct{}) {
	s.turn.Lock()
	defer s.turn.Unlock()
	for more := true; more; {
		s.mu.Lock()
		s.now, s.waiting = s.waiting, s.now
		s.mu.Unlock()
		if more, again = s.answerNow(); again != nil {
			s.putBack()
		}
		clear(s.now)
	}
	return again
}

// answerNow answers the questions in now. It reports whether others have come meanwhile that
// nobody else answers, or returns a channel as answer does.
func (s *Server) answerNow() (more bool, again <-chan struct{}) {
	if again = s.send(); again != nil {
		return false, again
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retries = false
	return len(s.waiting) > 0, nil
}

// send answers the questions in now, or returns a channel as answer does.
func (s *Server) send() (again <-chan struct{}) {
	var sequence int64
	confirmed, again := s.o.Order.Confirm(func(last int64) {
		sequence = last
		for peer, q := range s.now {
			if q.heartbeat {
				s.beat(peer, last)
			}
		}
	})
	if again != nil {
		return again
	}
	for peer, q := range s.now {
		if !confirmed {
			break
		}
		s.wire = wire.AppendSync(s.wire[:0], q.number, sequence)
		// Without room, as behind an answer to another question, the client asks again.
		_ = hooks.SendWireTo(wake.Ended, s.o.Router, peer, s.wire, 1, nil)
	}
	return nil
}

// putBack makes the questions wait again.
func (s *Server) putBack() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retries = true
	for peer, q := range s.now {
		newer := s.waiting[peer]
		s.waiting[peer] = question{max(q.number, newer.number), q.heartbeat || newer.heartbeat}
	}
}

// beat sends a heartbeat to the client of a snapshot connection, behind all updates that are
// published, unless that client has got this one.
func (s *Server) beat(snapshot *sockets.Peer, sequence int64) {
	id, generation, _ := wire.ClientOf(snapshot)
	s.mu.Lock()
	to := s.subscribers[client{id, generation}]
	s.mu.Unlock()
	if to == nil || to.sent == sequence {
		return
	}
	to.sent = sequence
	s.wire = wire.AppendHeartbeat(s.wire[:0], sequence)
	_ = hooks.SendTo(s.o.Publisher, to.peer, s.wire, 1, nil) // fails if the connection has ended
}

// Wait waits for the goroutines, after the contexts of Ask have ended. Ask must not be called
// meanwhile.
func (s *Server) Wait() { s.running.Wait() }
