package snail

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"clustermap/sockets"
	"clustermap/zmtp"
)

// Subscriber is a SUB socket that notices when its application falls behind. Recv,
// Stats and Close are safe for concurrent use.
type Subscriber struct {
	opts Options

	turn    chan struct{} // has a token while nobody receives
	closing chan struct{} // closed by Close

	// Owned by whose turn it is.
	batch   sockets.Batch
	at      int // of batch, the next message
	gauge   gauge
	stopped *LagError

	mu     sync.Mutex
	sub    *sockets.Sub
	closed bool
	stats  Stats
}

// Stats are figures about a Subscriber since it was made.
type Stats struct {
	Messages  uint64 // messages with a stamp, and a number if there has to be one
	Malformed uint64 // others, which are dropped

	Missed   uint64 // messages whose sequence numbers are missing
	Restarts uint64 // sequence numbers that went back: the publisher has begun anew
	Lags     uint64 // times that the subscriber had fallen behind

	Delay, LargestDelay time.Duration // of the last message, and the largest one

	// SmallestOffset is the smallest difference between this clock and a stamp:
	// the difference of the clocks and the delay of the fastest message. If it is
	// negative, the publisher's clock is ahead by at least so much.
	SmallestOffset time.Duration
}

// NewSubscriber makes a subscriber and begins to connect it. It returns all faults of
// the options as one error.
func NewSubscriber(o Options) (*Subscriber, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Subscriber{opts: o, turn: make(chan struct{}, 1), closing: make(chan struct{})}
	s.gauge = gauge{opts: o, started: o.Now()}
	if s.sub, err = s.connect(); err != nil {
		return nil, err
	}
	s.turn <- struct{}{}
	return s, nil
}

// connect makes the socket.
func (s *Subscriber) connect() (*sockets.Sub, error) {
	sub, err := sockets.NewSub(s.opts.Socket)
	if err != nil {
		return nil, err
	}
	for _, topic := range s.opts.Topics {
		if err := sub.Subscribe(topic); err != nil {
			sub.Close()
			return nil, err
		}
	}
	for _, endpoint := range s.opts.Endpoints {
		if err := sub.Connect(endpoint); err != nil {
			sub.Close()
			return nil, err
		}
	}
	return sub, nil
}

// Recv waits for a message and returns it as it came, its last frame the stamp. The
// caller owns it. Once the subscriber has stopped, Recv returns the *LagError.
func (s *Subscriber) Recv(ctx context.Context) (sockets.Message, error) {
	if err := s.acquire(ctx); err != nil {
		return nil, err
	}
	defer s.yield()
	view, _, err := s.next(ctx)
	if err != nil {
		return nil, err
	}
	bytes := append([]byte(nil), view...)
	m := make(sockets.Message, 0, view.Len())
	for rest := zmtp.Message(bytes); len(rest) > 0; {
		var body []byte
		body, rest = rest.Next()
		m = append(m, body)
	}
	return m, nil
}

// Next is Recv for a single goroutine, without a copy: the message is lent until the
// next call of Next or Recv, or Close. It also returns how far behind the message is.
func (s *Subscriber) Next(ctx context.Context) (zmtp.Message, Lag, error) {
	if err := s.acquire(ctx); err != nil {
		return nil, Lag{}, err
	}
	defer s.yield()
	return s.next(ctx)
}

// acquire waits for the right to receive; yield returns it.
func (s *Subscriber) acquire(ctx context.Context) error {
	select {
	case <-s.turn:
		return nil
	default:
	}
	select {
	case <-s.turn:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Subscriber) yield() { s.turn <- struct{}{} }

// next returns the next message that is not too far behind, or whatever the policy
// says.
func (s *Subscriber) next(ctx context.Context) (zmtp.Message, Lag, error) {
	for {
		if s.stopped != nil {
			return nil, Lag{}, s.stopped
		}
		if s.at == s.batch.Len() {
			sub, err := s.socket()
			if err == nil {
				s.at = 0
				err = sub.RecvBatch(ctx, &s.batch)
			}
			if err != nil {
				s.batch.Release()
				return nil, Lag{}, err
			}
		}
		m := s.batch.Message(s.at)
		s.at++
		lag, ok := s.measure(m)
		switch {
		case !ok:
			// RecvBatch looks at the context only when it has to wait: without this
			// check a flood of such messages would keep the caller for ever.
			if err := ctx.Err(); err != nil {
				return nil, Lag{}, err
			}
			continue
		case !s.gauge.behind(lag):
			return m, lag, nil
		}
		s.mu.Lock()
		s.stats.Lags++
		s.mu.Unlock()
		switch s.opts.Policy {
		case Report:
			s.opts.OnLag(lag)
			return m, lag, nil
		case Stop:
			s.stopped = &LagError{Lag: lag, MaxDelay: s.opts.MaxDelay, MaxMissed: s.opts.MaxMissed}
			s.drop()
		case Resubscribe:
			if s.opts.OnLag != nil {
				s.opts.OnLag(lag)
			}
			if err := s.resubscribe(ctx); err != nil {
				return nil, Lag{}, err
			}
		}
	}
}

// measure looks at the last frames of a message.
func (s *Subscriber) measure(m zmtp.Message) (Lag, bool) {
	var number, stamp []byte
	for len(m) > 0 {
		number = stamp
		stamp, m = m.Next()
	}
	now := s.opts.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	lag, ok := s.gauge.measure(number, stamp, now, &s.stats)
	if !ok {
		s.stats.Malformed++
		return lag, false
	}
	s.stats.Messages++
	return lag, true
}

// socket returns the socket, or why there is none.
func (s *Subscriber) socket() (*sockets.Sub, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, sockets.ErrClosed
	}
	if s.sub == nil { // a Resubscribe was interrupted
		sub, err := s.connect()
		if err != nil {
			return nil, err
		}
		s.sub = sub
	}
	return s.sub, nil
}

// drop disconnects, and with that drops what is queued at both ends.
func (s *Subscriber) drop() {
	s.batch.Release()
	s.at = 0
	s.gauge.counting = false
	s.mu.Lock()
	sub := s.sub
	s.sub = nil
	s.mu.Unlock()
	if sub != nil {
		sub.Close()
	}
}

// resubscribe drops the connection. The next look for a message connects again.
func (s *Subscriber) resubscribe(ctx context.Context) error {
	s.drop()
	pause := time.NewTimer(s.opts.Pause/2 + rand.N(s.opts.Pause/2+1))
	defer pause.Stop()
	select {
	case <-pause.C:
		return nil
	case <-s.closing:
		return sockets.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Stats returns figures of one moment.
func (s *Subscriber) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// Peers returns a reading of the connections, as sockets.Sub.Peers does. There are
// none once the subscriber has stopped.
func (s *Subscriber) Peers() []sockets.PeerStats {
	s.mu.Lock()
	sub := s.sub
	s.mu.Unlock()
	if sub == nil {
		return nil
	}
	return sub.Peers()
}

// Close ends the subscriber. A receive call that waits returns sockets.ErrClosed.
func (s *Subscriber) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	close(s.closing)
	sub := s.sub
	s.sub = nil
	s.mu.Unlock()
	if sub == nil {
		return nil
	}
	return sub.Close()
}
