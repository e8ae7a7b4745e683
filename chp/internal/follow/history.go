package follow

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"clustermap/chp/internal/wire"
	"clustermap/zmtp"
)

// ErrNoHistory is chp.ErrNoHistory.
var ErrNoHistory = errors.New("chp: the server keeps no history: chp serve --history does")

// questions asks a session's server for versions of keys, one question at a time.
type questions struct {
	kept    bool               // the server answers
	turn    chan struct{}      // capacity 1: held by who asks
	number  atomic.Uint64      // of the last question
	answers chan historyAnswer // capacity 1: to that question
}

type historyAnswer struct {
	body []byte
	more bool
	err  error // the client may not ask
}

func (q *questions) init() {
	q.turn, q.answers = make(chan struct{}, 1), make(chan historyAnswer, 1)
}

// hear takes an answer, and reports whether the message was one. It runs in the goroutine that
// reads the connection.
func (q *questions) hear(m zmtp.WireMessage) bool {
	number, more, body, ok := wire.ParseHistory(m)
	var err error
	if !ok {
		var d wire.Denial
		if d, ok = wire.ParseDenial(m); !ok || d.Question != wire.AskHistory {
			return ok
		}
		number, err = d.Number, &d.Why
	}
	if number == q.number.Load() {
		select {
		case q.answers <- historyAnswer{bytes.Clone(body), more, err}:
		default: // there was one
		}
	}
	return ok
}

// History asks the server that the client follows for the versions of a key after a sequence, and
// returns a portion of them, and whether there are more. The error is ErrDisconnected without a
// server, or when it is lost.
func (f *Follower) History(ctx context.Context, key string, after int64) (portion []byte, more bool, err error) {
	s := f.current.Load()
	switch {
	case s == nil:
		return nil, false, ErrDisconnected
	case !s.questions.kept:
		return nil, false, ErrNoHistory
	}
	q := &s.questions
	select {
	case q.turn <- struct{}{}:
	case <-s.over:
		return nil, false, ErrDisconnected
	case <-ctx.Done():
		return nil, false, ctx.Err()
	}
	defer func() { <-q.turn }()
	again := time.NewTicker(askAgain)
	defer again.Stop()
	for {
		number := q.number.Add(1)
		select {
		case <-q.answers: // to an earlier question
		default:
		}
		sent := s.dealer.Send(ctx, wire.HistoryQuestion(number, key, after)...) == nil
		select {
		case a := <-q.answers:
			return a.body, a.more, a.err
		case <-s.over:
			return nil, false, ErrDisconnected
		case <-ctx.Done():
			return nil, false, ctx.Err()
		case <-again.C:
			if !sent {
				return nil, false, ErrDisconnected
			}
		}
	}
}
