package httpkv

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"clustermap/chp"
	"clustermap/chp/internal/subtree"
	"clustermap/internal/kvjson"
	"clustermap/internal/kvmsg"
)

// The headers of a key beside its value.
const (
	headerTTL      = "Chp-Ttl"      // seconds that it has left
	headerLease    = "Chp-Lease"    // to which it is attached
	headerTime     = "Chp-Time"     // when the server accepted it
	headerBy       = "Chp-By"       // who sent it
	headerProperty = "Chp-Property" // name=value, both percent-encoded; once for each
)

// get answers with the value of a key, or the keys with a prefix.
func (q *request) get(w http.ResponseWriter) *problem {
	switch {
	case q.query.Has("prefix"):
		return q.list(w)
	case q.query.Has("history"):
		return q.history(w)
	}
	if p := q.only(); p != nil {
		return p
	}
	if p := q.checkKey(); p != nil {
		return p
	}
	if p := q.may(VerbRead, q.key); p != nil {
		return p
	}
	c, p := q.conditions()
	if p != nil {
		return p
	}
	e, presence := q.server.Lookup(q.key)
	absent := presence != chp.PresenceFound
	if c.match.given && !c.match.has(e.Sequence) {
		return q.h.explain(&chp.ConflictError{Key: q.key, Sequence: e.Sequence})
	}
	if absent {
		return trouble(http.StatusNotFound, "absent", "")
	}
	header := w.Header()
	header["Etag"] = []string{etag(e.Sequence)}
	if c.none.has(e.Sequence) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	if len(e.Properties) > 0 {
		describe(header, &e)
	}
	header["Content-Type"] = octetStream
	header["Content-Length"] = []string{strconv.Itoa(len(e.Value))}
	if q.Method == http.MethodHead {
		return nil
	}
	if len(e.Value) <= smallBody {
		_, _ = w.Write(e.Value) // the asker is gone
		return nil
	}
	if !q.h.memory.take(len(e.Value)) {
		header.Del("Content-Length")
		return busy("the values of other requests take all the memory for them")
	}
	defer q.h.memory.give(len(e.Value))
	if _, err := newTaker(w, q.h.patience, q.mayRead(q.key)).Write(e.Value); err != nil {
		return aborted
	}
	return nil
}

// history answers with the versions of a key that the server keeps, the oldest first.
func (q *request) history(w http.ResponseWriter) *problem {
	p := q.only("history")
	if p == nil {
		p = q.checkKey()
	}
	if p == nil {
		p = q.may(VerbRead, q.key)
	}
	if p != nil {
		return p
	}
	all, err := q.server.History(q.key)
	switch {
	case errors.Is(err, chp.ErrNoHistory):
		return trouble(http.StatusNotFound, "no-history", "the server keeps the latest version only")
	case err != nil:
		return q.h.explain(err)
	case len(all) == 0:
		return trouble(http.StatusNotFound, "absent", "")
	}
	w.Header()["Content-Type"] = lines
	if q.Method == http.MethodHead {
		return nil
	}
	lasts(w)
	out := bufio.NewWriterSize(newTaker(w, q.h.patience, q.mayRead(q.key)), writeChunk)
	for _, v := range all {
		if _, err := out.Write(kvjson.AppendVersion(out.AvailableBuffer(), q.key, v)); err != nil {
			return aborted
		}
	}
	if out.Flush() != nil {
		return aborted
	}
	return nil
}

// checkKey returns a problem for a key that no map has.
func (q *request) checkKey() *problem {
	if q.key == "" {
		return trouble(http.StatusBadRequest, "invalid-key", "the path ends before the key")
	}
	if refusal := (*chp.MessageError)(nil); errors.As(kvmsg.ValidKey([]byte(q.key)), &refusal) {
		return refused(refusal)
	}
	return nil
}

// describe adds the headers of an entry.
func describe(header http.Header, e *chp.Entry) {
	if e.TTL > 0 {
		header.Set(headerTTL, strconv.FormatFloat(max(e.TTL.Seconds(), .001), 'f', 3, 64))
	}
	if lease, ok := e.Properties.Get(kvmsg.PropertyLease); ok {
		header.Set(headerLease, url.PathEscape(string(lease)))
	}
	if at, by, ok := e.Properties.Stamped(); ok {
		header.Set(headerTime, at.UTC().Format(time.RFC3339Nano))
		if by != "" {
			header.Set(headerBy, url.PathEscape(by))
		}
	}
	n := 0
	for name, value := range e.Properties.User().All() {
		if n++; n > maxHeaders {
			break
		}
		header.Add(headerProperty, url.PathEscape(string(name))+"="+url.PathEscape(string(value)))
	}
}

// subtree returns the smallest subtree that has all keys with the prefix of the request, which is one of the
// map's or begins with too few bytes for that.
func (q *request) subtree() (string, *problem) {
	switch {
	case q.key != "" && !strings.HasSuffix(q.key, "/"):
		return "", trouble(http.StatusBadRequest, "bad-parameter", "a prefix ends with a slash")
	case len(q.key) > kvmsg.MaxKey, strings.Contains(q.key, "\x00"):
		return "", trouble(http.StatusBadRequest, "invalid-key", "no key begins like that")
	case subtree.Check(q.key) != nil:
		return "", nil
	}
	return q.key, nil
}

// list answers with the keys with a prefix, of one moment.
func (q *request) list(w http.ResponseWriter) *problem {
	if p := q.only("prefix", "keys"); p != nil {
		return p
	}
	tree, p := q.subtree()
	if p == nil {
		p = q.may(VerbRead, tree)
	}
	if p != nil {
		return p
	}
	format := appendStored
	if q.query.Has("keys") {
		format = kvjson.AppendKey
	}
	return q.lines(w, tree, func(write func(chp.Entry, func([]byte, chp.Entry) []byte) error) error {
		for e := range q.server.Sorted(q.key) {
			if err := write(e, format); err != nil {
				return err
			}
		}
		return nil
	})
}

// appendStored appends a line as of chp dump, with the sequence.
func appendStored(dst []byte, e chp.Entry) []byte {
	dst = kvjson.AppendSequence(append(kvjson.AppendStored(append(dst, '{'), e), ','), "seq", e.Sequence)
	return append(dst, '}', '\n')
}

// lines answers with lines of JSON about entries of a subtree.
func (q *request) lines(w http.ResponseWriter, tree string, all func(write func(chp.Entry, func([]byte, chp.Entry) []byte) error) error) *problem {
	w.Header()["Content-Type"] = lines
	if q.Method == http.MethodHead {
		return nil
	}
	select {
	case q.h.lists <- struct{}{}:
		defer func() { <-q.h.lists }()
	default:
		return busy("it reads the map for %d others", maxLists)
	}
	lasts(w)
	out := bufio.NewWriterSize(newTaker(w, q.h.patience, q.mayRead(tree)), writeChunk)
	err := all(func(e chp.Entry, format func([]byte, chp.Entry) []byte) error {
		if q.h.ended.Err() != nil {
			return q.h.ended.Err()
		}
		_, err := out.Write(format(out.AvailableBuffer(), e))
		return err
	})
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		return aborted
	}
	return nil
}

// put sets a key.
func (q *request) put(w http.ResponseWriter) *problem {
	if p := q.only("ttl", "lease"); p != nil {
		return p
	}
	if p := q.checkWrite(); p != nil {
		return p
	}
	options, p := q.options()
	if p != nil {
		return p
	}
	if q.Header.Get("Content-Range") != "" {
		return trouble(http.StatusBadRequest, "bad-body", "a value is set as a whole")
	}
	value, done, p := q.body(w, q.h.o.MaxBody)
	defer done()
	if p == nil {
		p = q.may(VerbWrite, q.key) // still
	}
	switch {
	case p != nil:
		return p
	case len(value) == 0:
		return trouble(http.StatusBadRequest, "empty-value", "to the map an empty value is a deletion: use DELETE")
	}
	return q.change(w, func(ctx context.Context, more ...chp.IfOption) (int64, error) {
		return q.server.SetIf(ctx, q.key, value, append(more, options...)...)
	})
}

// remove deletes a key.
func (q *request) remove(w http.ResponseWriter) *problem {
	if p := q.only(); p != nil {
		return p
	}
	if p := q.checkWrite(); p != nil {
		return p
	}
	return q.change(w, func(ctx context.Context, more ...chp.IfOption) (int64, error) {
		return q.server.DeleteIf(ctx, q.key, more...)
	})
}

func (q *request) checkWrite() *problem {
	if p := q.checkKey(); p != nil {
		return p
	}
	return q.may(VerbWrite, q.key)
}

// options returns those of a PUT.
func (q *request) options() (o []chp.IfOption, p *problem) {
	if q.query.Has("ttl") {
		seconds, err := strconv.ParseFloat(q.query.Get("ttl"), 64)
		ttl, p := seconds2ttl(seconds, err)
		if p != nil {
			return nil, p
		}
		o = append(o, chp.WithTTL(ttl))
	}
	if q.query.Has("lease") {
		id := q.query.Get("lease")
		if _, ok := kvmsg.ParseLeaseID([]byte(id)); !ok {
			return nil, trouble(http.StatusBadRequest, "bad-parameter", "lease: an ID has 32 hexadecimal digits in lower case")
		}
		if p := q.mayLease(VerbWrite, id); p != nil {
			return nil, p
		}
		o = append(o, chp.WithLeaseID(id))
	}
	for _, line := range q.Header[headerProperty] {
		name, value, found := strings.Cut(line, "=")
		name, err := url.PathUnescape(strings.TrimSpace(name))
		value, also := url.PathUnescape(strings.TrimSpace(value))
		if !found || err != nil || also != nil {
			return nil, trouble(http.StatusBadRequest, "bad-parameter", "%s: want name=value, both percent-encoded", headerProperty)
		}
		o = append(o, chp.WithProperty(name, value))
	}
	return o, nil
}

// seconds2ttl returns the time to live that a request has in seconds.
func seconds2ttl(seconds float64, err error) (time.Duration, *problem) {
	if err != nil || !(seconds > 0) {
		return 0, trouble(http.StatusBadRequest, "bad-parameter", "ttl: want a positive number of seconds")
	}
	ttl, err := kvjson.TimeToLive(seconds)
	if err != nil {
		return 0, trouble(http.StatusBadRequest, "bad-parameter", "%s", err)
	}
	return ttl, nil
}

// change makes an update under the conditions of the request. make makes it under one of the map's.
func (q *request) change(w http.ResponseWriter, make func(context.Context, ...chp.IfOption) (int64, error)) *problem {
	c, p := q.conditions()
	if p == nil && c.given() {
		p = q.may(VerbRead, q.key) // it learns whether the condition holds
	}
	if p != nil {
		return p
	}
	ctx, cancel := q.limited(w)
	defer cancel()
	var seq int64
	var err error
	switch {
	case !c.given():
		seq, err = make(ctx)
	case c.match.any && !c.none.given:
		seq, err = make(ctx, chp.IfPresent())
	case c.none.any && !c.match.given:
		seq, err = make(ctx, chp.IfAbsent())
	default:
		seq, err = q.changeIf(ctx, &c, make)
	}
	if err != nil {
		return q.h.explain(err)
	}
	w.Header()["Etag"] = []string{etag(seq)}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// changeIf makes an update under conditions that the map does not know: while they hold for the key as it
// is, and nobody changes that.
func (q *request) changeIf(ctx context.Context, c *conditions, make func(context.Context, ...chp.IfOption) (int64, error)) (int64, error) {
	e, _ := q.server.Lookup(q.key)
	sequence := e.Sequence
	for {
		if !c.hold(sequence) {
			return 0, &chp.ConflictError{Key: q.key, Sequence: sequence}
		}
		seq, err := make(ctx, chp.IfSequence(sequence))
		conflict := (*chp.ConflictError)(nil)
		if !errors.As(err, &conflict) {
			return seq, err
		}
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		sequence = conflict.Sequence
	}
}
