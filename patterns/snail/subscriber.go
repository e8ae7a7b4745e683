package snail

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"clustermap/internal/hooks"
	"clustermap/patterns/internal/subscribe"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// Subscriber is a SUB socket that detects when its application falls behind. All methods
// but Next are safe for concurrent use.
type Subscriber struct {
	opts Options

	turn    chan struct{} // has a token while no call receives
	closing chan struct{} // closed by Close

	// Guarded by turn.
	batch   sockets.Batch
	at      int // index of the next message of batch
	gauge   gauge
	stopped *LagError

	mu     sync.Mutex
	sub    *sockets.Sub
	closed bool
	stats  Stats
}

// Format implements [fmt.Formatter]. It writes the name of the type for every verb: its
// options may have a secret key, and other fields change while it is in use.
func (s *Subscriber) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "snail.Subscriber") }

// Stats has the counters of a Subscriber.
type Stats struct {
	Messages  uint64 // with a valid stamp, and with Options.Sequence a valid number
	Malformed uint64 // other messages, which are dropped

	Missed   uint64 // messages whose sequence numbers are missing
	Restarts uint64 // times the sequence numbers started again
	Lags     uint64 // times the subscriber had fallen behind

	Delay, LargestDelay time.Duration // of the last message, and of all messages

	// SmallestOffset is the smallest difference between the subscriber's clock and a
	// stamp: the difference of the clocks plus the delay of the fastest message. If
	// it is negative, the publisher's clock is ahead by at least as much.
	SmallestOffset time.Duration
}

// NewSubscriber returns a subscriber that connects in the background. The error is one or
// more *OptionError, or an error of the socket.
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

func (s *Subscriber) connect() (*sockets.Sub, error) {
	return subscribe.To(s.opts.Topics, s.opts.Endpoints, s.opts.Socket)
}

// Recv waits for a message and returns all of its frames, including the stamp. The
// caller owns them. Once the subscriber has stopped, Recv returns the *LagError.
func (s *Subscriber) Recv(ctx context.Context) (sockets.Message, error) {
	if err := s.acquire(ctx); err != nil {
		return nil, err
	}
	defer s.yield()
	view, _, err := s.next(ctx)
	if err != nil {
		return nil, err
	}
	return hooks.Frames(view), nil
}

// Next is like Recv, but does not copy the message, and also returns its lag. The
// message is valid until the next call of Next, Recv or Close. Next and Recv must not be called
// concurrently.
func (s *Subscriber) Next(ctx context.Context) (zmtp.WireMessage, Lag, error) {
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

// next returns the next message and applies the policy.
func (s *Subscriber) next(ctx context.Context) (zmtp.WireMessage, Lag, error) {
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
			// RecvBatch checks the context only when it has to wait. Without this
			// check, a flood of malformed messages would block the caller forever.
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
		case PolicyReport:
			s.opts.OnLag(lag)
			return m, lag, nil
		case PolicyStop:
			s.stopped = &LagError{Lag: lag, MaxDelay: s.opts.MaxDelay, MaxMissed: s.opts.MaxMissed}
			s.drop()
		case PolicyResubscribe:
			if s.opts.OnLag != nil {
				s.opts.OnLag(lag)
			}
			if err := s.resubscribe(ctx); err != nil {
				return nil, Lag{}, err
			}
		}
	}
}

// measure checks the last frames of a message and counts it.
func (s *Subscriber) measure(m zmtp.WireMessage) (Lag, bool) {
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

// socket returns the socket, and connects it again after PolicyResubscribe.
func (s *Subscriber) socket() (*sockets.Sub, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, sockets.ErrClosed
	}
	if s.sub != nil {
		return s.sub, nil
	}
	var err error
	s.sub, err = s.connect()
	return s.sub, err
}

// drop closes the socket, which drops all queued messages at both ends.
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

// resubscribe drops the connection and waits. The next receive call connects again.
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

// Stats returns the current counters.
func (s *Subscriber) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// Peers returns the statistics of the connections: see sockets.Sub.Peers. There are none
// once the subscriber has stopped.
func (s *Subscriber) Peers() []sockets.PeerStats {
	s.mu.Lock()
	sub := s.sub
	s.mu.Unlock()
	if sub == nil {
		return nil
	}
	return sub.Peers()
}

// Close ends the subscriber. Blocked receive calls return sockets.ErrClosed.
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
