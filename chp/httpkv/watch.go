package httpkv

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"clustermap/chp"
	"clustermap/internal/kvjson"
)

// watch answers with server-sent events: without a sequence to begin at, the state and what it begins with
// (reset) and ends with (synced), and then each change; with one, the changes from there on.
//
// An event has an id, the sequence, where a stream may begin again: at synced, and at the end of each
// transaction. What is sent at once, and then sent again to a peer that has lost its connection, is so a whole
// number of transactions.
func (q *request) watch(w http.ResponseWriter) *problem {
	tree, p := q.subtreeOrKey()
	if p == nil {
		p = q.may(VerbRead, tree)
	}
	if p != nil {
		return p
	}
	o := chp.WatchOptions{Bookmarks: true}
	if tree != "" {
		o.Subtrees = []string{tree}
	}
	if o.Since, p = q.since(); p != nil {
		return p
	}
	if !q.h.streams.begin(q.from) {
		p := trouble(http.StatusTooManyRequests, "too-many-streams", "the limit is %d of all, and %d from one address", q.h.streams.most, q.h.streams.each)
		p.header = retry
		return p
	}
	defer q.h.streams.end(q.from)
	feed, err := q.server.WatchWith(o)
	if errors.Is(err, chp.ErrCompacted) && q.Header.Get("Last-Event-ID") != "" {
		// A browser asks again by itself, and does not look at a status.
		o.Since = 0
		feed, err = q.server.WatchWith(o)
	}
	if err != nil {
		return q.h.explain(err)
	}
	defer feed.Close()
	lasts(w)
	header := w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no") // nginx holds back answers otherwise
	ctx, cancel := context.WithCancel(q.Context())
	defer cancel()
	defer context.AfterFunc(q.h.ended, cancel)()
	s := stream{q: q, tree: tree, feed: feed, to: newTaker(w, q.h.patience, q.mayRead(tree)), since: o.Since}
	s.out = bufio.NewWriterSize(s.to, writeChunk)
	if !s.run(ctx) {
		return aborted
	}
	return nil
}

// subtreeOrKey returns what is watched: a key, or the subtree of a prefix.
func (q *request) subtreeOrKey() (string, *problem) {
	if q.key != "" && q.key[len(q.key)-1] != '/' {
		return q.key, q.checkKey()
	}
	return q.subtree()
}

// since returns the sequence behind which a stream begins, or 0 for one that begins with the state.
func (q *request) since() (int64, *problem) {
	text, name := q.Header.Get("Last-Event-ID"), "Last-Event-ID"
	if text == "" { // a browser that has lost its connection asks for the same query again
		if !q.query.Has("since") {
			return 0, nil
		}
		text, name = q.query.Get("since"), "since"
	}
	seq, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seq <= 0 {
		return 0, trouble(http.StatusBadRequest, "bad-parameter", "%s: want a sequence", name)
	}
	return seq, nil
}

// A stream sends the events of a watch.
type stream struct {
	q       *request
	tree    string
	feed    *chp.Watch
	to      *taker
	out     *bufio.Writer
	flushed int64 // of what the taker has sent
	since   int64
	line    []byte
	named   int64 // the last id
	group   int64 // the transaction of the last event, if it has more than one update; 0 before synced, too
	begun   bool  // synced was sent, or the stream began at a sequence
}

// run sends events until the peer or the server ends, or the stream may not go on. It returns false if the
// peer has not taken all that was sent.
func (s *stream) run(ctx context.Context) (taken bool) {
	if s.begun = s.since > 0; s.begun {
		s.to.steady = false
		_, _ = s.out.WriteString(": since\n\n") // so that headers are sent
	} else {
		_, _ = s.out.WriteString("event: reset\ndata: {\"op\":\"reset\"}\n\n")
	}
	quiet := time.Now() // since then
	for err := s.flush(); ; {
		if err != nil {
			return false
		}
		limited, cancel := context.WithTimeout(ctx, s.q.h.lookAgain)
		failed := error(nil)
		err = s.feed.NextBatch(limited, func(e chp.Event) bool {
			failed = s.send(e)
			return failed == nil
		})
		cancel()
		switch {
		case failed != nil:
			return false
		case ctx.Err() != nil:
			return s.flush() == nil
		case errors.Is(err, context.DeadlineExceeded):
			err = nil
		case err != nil: // the server ends, or the peer is too slow
			return s.flush() == nil && !errors.Is(err, chp.ErrLagged)
		default:
			s.endGroup()
		}
		if !s.to.may() {
			return s.flush() == nil
		}
		now := time.Now()
		if s.out.Buffered() == 0 && s.to.sent == s.flushed {
			if now.Sub(quiet) < s.q.h.heartbeat {
				continue
			}
			_, _ = s.out.WriteString(":\n\n")
		}
		quiet, err = now, s.flush()
	}
}

// flush sends what was written.
func (s *stream) flush() error {
	if err := s.out.Flush(); err != nil {
		return err
	}
	s.flushed = s.to.sent
	return s.to.Flush()
}

// endGroup names the sequence at the end of a transaction of which an event was sent.
func (s *stream) endGroup() {
	if s.group > 0 {
		s.line = append(s.name(s.line[:0], s.group), '\n')
		_, _ = s.out.Write(s.line) // the writer keeps an error
		s.group = 0
	}
}

// name appends an id.
func (s *stream) name(dst []byte, sequence int64) []byte {
	s.named = sequence
	return append(strconv.AppendInt(append(dst, "id: "...), sequence, 10), '\n')
}

// send sends an event.
func (s *stream) send(e chp.Event) error {
	if s.group > 0 && e.Transaction != s.group {
		s.endGroup()
	}
	if e.Op == chp.OpBookmark {
		if !s.begun || e.Sequence == s.named { // a server repeats it while nothing happens
			return nil
		}
		// Without data it is no event to the reader, but it has read the id.
		s.line = append(s.name(s.line[:0], e.Sequence), '\n')
		_, err := s.out.Write(s.line)
		return err
	}
	if kvjson.HasKey(e.Op) && !s.q.shows(e.Key) {
		return nil
	}
	line := append(append(append(s.line[:0], "event: "...), kvjson.OpName(e.Op)...), '\n')
	if e.Op == chp.OpSynced {
		s.begun, s.to.steady = true, false
	}
	switch {
	case !s.begun, e.Cause == chp.CauseResync: // it is one of many, in no order
	case e.Transaction == 0:
		line = s.name(line, e.Sequence)
	case s.group != e.Transaction:
		s.group = e.Transaction
	}
	line = append(kvjson.AppendEvent(append(line, "data: "...), e), '\n')
	s.line = line
	if cap(s.line) > writeChunk {
		s.line = nil
	}
	_, err := s.out.Write(line)
	return err
}

// shows reports whether a key of the watched subtree is one that was asked for.
func (q *request) shows(key []byte) bool {
	return len(key) >= len(q.key) && string(key[:len(q.key)]) == q.key
}
