package httpkv

import (
	"cmp"
	"errors"
	"io"
	"net/http"
	"os"
	"time"
)

// A taker sends an answer of any size to a peer that must take it in time.
type taker struct {
	w        http.ResponseWriter
	c        *http.ResponseController
	patience time.Duration
	may      func() bool // the answer may go on
	steady   bool        // what is sent holds memory, so it must be taken at leastRate
	began    time.Time
	sent     int64
}

func newTaker(w http.ResponseWriter, patience time.Duration, may func() bool) *taker {
	return &taker{w: w, c: http.NewResponseController(w), patience: patience, may: may, steady: true, began: time.Now()}
}

// errMayNot ends an answer to somebody who has lost the right to it, or of a server that is not active.
var errMayNot = errors.New("httpkv: the answer may not go on")

// Write implements io.Writer. It fails if the peer does not take the bytes in time.
func (t *taker) Write(b []byte) (n int, err error) {
	for len(b) > 0 && err == nil {
		if !t.may() {
			return n, errMayNot
		}
		part := b[:min(len(b), writeChunk)]
		by := time.Now().Add(t.patience)
		if steady := t.began.Add(t.patience + time.Duration(t.sent)*time.Second/leastRate); t.steady && steady.Before(by) {
			by = steady
		}
		_ = t.c.SetWriteDeadline(by) // a ResponseWriter that has none is not one of a network
		var wrote int
		wrote, err = t.w.Write(part)
		t.sent += int64(wrote)
		n += wrote
		b = b[wrote:]
	}
	return n, err
}

// Flush sends what was written.
func (t *taker) Flush() error {
	_ = t.c.SetWriteDeadline(time.Now().Add(t.patience))
	return t.c.Flush()
}

// lasts lets an answer take its time: an http.Server ends the context of a request with the time for
// reading it. The body, if there is one, must have been read.
func lasts(w http.ResponseWriter) { _ = http.NewResponseController(w).SetReadDeadline(time.Time{}) }

// body reads the body of a request. The caller must call done when it does not need it any more.
func (h *Handler) body(w http.ResponseWriter, r *http.Request, most int64) (body []byte, done func(), p *problem) {
	done = func() {}
	switch {
	case r.ContentLength > most:
		return nil, done, tooLarge(most)
	case r.Header.Get("Content-Encoding") != "" && r.Header.Get("Content-Encoding") != "identity":
		return nil, done, trouble(http.StatusUnsupportedMediaType, "encoded-body", "a value is stored as it is sent; there is no Content-Encoding")
	case r.ContentLength == 0:
		return nil, done, nil
	}
	c := http.NewResponseController(w)
	began := time.Now()
	_ = c.SetReadDeadline(began.Add(h.patience)) // see Write
	body = make([]byte, 0, min(max(r.ContentLength, 512)+1, smallBody))
	taken := 0
	done = func() { h.memory.give(taken) }
	for {
		n, err := r.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case int64(len(body)) > most:
			return nil, done, tooLarge(most)
		case err == io.EOF:
			return body, done, nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			_ = c.SetWriteDeadline(time.Now().Add(h.patience)) // its time may be over, too
			return nil, done, trouble(http.StatusRequestTimeout, "body-too-slow", "it has %v, and a second for each %d KiB", h.patience, leastRate>>10)
		case err != nil:
			return nil, done, aborted
		}
		if len(body) == cap(body) {
			more := cap(body)
			if !h.memory.take(more) {
				return nil, done, busy("the bodies of other requests take all the memory for them")
			}
			taken += more
			body = append(make([]byte, 0, 2*more), body...)
			_ = c.SetReadDeadline(began.Add(h.patience + time.Duration(len(body))*time.Second/leastRate))
		}
	}
}

// body is Handler.body. It asks once more who makes the request: a large body may take minutes, and who has lost the right to
// change something meanwhile must not.
func (q *request) body(w http.ResponseWriter, most int64) (body []byte, done func(), p *problem) {
	body, done, p = q.h.body(w, q.Request, most)
	if who, err := q.h.o.Access.Who(q.Request); p == nil && (err != nil || who != q.who) {
		p = unauthorized(cmp.Or(err, ErrNoProof))
	}
	return body, done, p
}

func tooLarge(most int64) *problem {
	return trouble(http.StatusRequestEntityTooLarge, "body-too-large", "the largest is of %d bytes", most)
}
