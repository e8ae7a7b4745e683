package httpkv

import (
	"net/http"
	"strings"
	"time"

	"clustermap/chp"
	"clustermap/internal/jsonline"
	"clustermap/internal/kvjson"
	"clustermap/internal/kvmsg"
)

// leaseRequest is the body of a request for a lease.
type leaseRequest struct {
	TTL *float64 `json:"ttl"`
}

// grant grants a lease.
func (q *request) grant(w http.ResponseWriter) *problem {
	if q.role == nil || !q.role.WritesSome() || !q.h.o.Write {
		if p := q.may(VerbWrite, kvmsg.LeasePrefix); p != nil {
			return p
		}
	}
	if p := q.json(); p != nil {
		return p
	}
	body, done, p := q.body(w, maxLease)
	defer done()
	if p != nil {
		return p
	}
	var l leaseRequest
	if err := jsonline.Decode([]byte(strings.TrimSpace(string(body))), "a lease", &l); err != nil {
		return trouble(http.StatusBadRequest, "bad-body", "%s", err)
	}
	if l.TTL == nil {
		return trouble(http.StatusBadRequest, "bad-body", `want {"ttl":SECONDS}`)
	}
	ttl, p := seconds2ttl(*l.TTL, nil)
	if p != nil {
		return p
	}
	ctx, cancel := q.limited(w)
	defer cancel()
	id, err := q.server.Grant(ctx, ttl)
	if err != nil {
		return q.h.explain(err)
	}
	w.Header().Set("Location", "/v1/lease/"+id)
	return answer(w, http.StatusCreated, append(kvjson.AppendSeconds(appendLease(nil, id), "ttl", ttl), '}', '\n'))
}

func appendLease(dst []byte, id string) []byte {
	return jsonline.AppendField(append(dst, '{'), "id", []byte(id))
}

// leases answers with all leases.
func (q *request) leases(w http.ResponseWriter) *problem {
	if p := q.may(VerbRead, ""); p != nil { // it counts keys
		return p
	}
	ctx, cancel := q.limited(w)
	defer cancel()
	return q.lines(w, "", func(write func(chp.Entry, func([]byte, chp.Entry) []byte) error) error {
		keys := map[string]int64{}
		for e := range q.server.All() {
			if id, ok := e.Properties.Get(kvmsg.PropertyLease); ok {
				keys[string(id)]++
			}
		}
		for e := range q.server.Sorted(kvmsg.LeasePrefix) {
			id := strings.TrimPrefix(string(e.Key), kvmsg.LeasePrefix)
			left, err := q.server.LeaseLeft(ctx, id)
			if err != nil {
				return err
			}
			if left == 0 {
				continue // it has ended
			}
			if err := write(e, func(dst []byte, e chp.Entry) []byte {
				dst = appendLeaseTimes(appendLease(dst, id), e.Value, left)
				return append(jsonline.AppendNumber(append(dst, ','), "keys", keys[id]), '}', '\n')
			}); err != nil {
				return err
			}
		}
		return nil
	})
}

func appendLeaseTimes(dst, value []byte, left time.Duration) []byte {
	return kvjson.AppendSeconds(kvjson.AppendSeconds(dst, "ttl", kvmsg.LeaseTime(value)), "left", left)
}

// id checks the ID of the path, and the right to it.
func (q *request) id(v Verb) *problem {
	if _, ok := kvmsg.ParseLeaseID([]byte(q.key)); !ok {
		return trouble(http.StatusNotFound, "no-such-lease", "an ID has 32 hexadecimal digits in lower case")
	}
	return q.mayLease(v, q.key)
}

func noLease() *problem { return trouble(http.StatusNotFound, "no-such-lease", "") }

// lease answers with what a lease has left.
func (q *request) lease(w http.ResponseWriter) *problem {
	if p := q.id(VerbRead); p != nil {
		return p
	}
	ctx, cancel := q.limited(w)
	defer cancel()
	left, err := q.server.LeaseLeft(ctx, q.key)
	if err != nil {
		return q.h.explain(err)
	}
	e, presence := q.server.Lookup(kvmsg.LeasePrefix + q.key)
	if left == 0 || presence != chp.PresenceFound {
		return noLease()
	}
	out := appendLeaseTimes(appendLease(nil, q.key), e.Value, left)
	return answer(w, http.StatusOK, append(out, '}', '\n'))
}

// renew gives a lease all of its time again.
func (q *request) renew(w http.ResponseWriter) *problem {
	if p := q.id(VerbWrite); p != nil {
		return p
	}
	ctx, cancel := q.limited(w)
	defer cancel()
	switch ttl, err := q.server.RenewLease(ctx, q.key); {
	case err != nil:
		return q.h.explain(err)
	case ttl == 0:
		return noLease()
	default:
		return answer(w, http.StatusOK, append(kvjson.AppendSeconds(appendLease(nil, q.key), "ttl", ttl), '}', '\n'))
	}
}

// revoke ends a lease, and deletes its keys.
func (q *request) revoke(w http.ResponseWriter) *problem {
	if p := q.id(VerbWrite); p != nil {
		return p
	}
	ctx, cancel := q.limited(w)
	defer cancel()
	left, err := q.server.LeaseLeft(ctx, q.key)
	if err == nil && left == 0 {
		return noLease()
	}
	if err == nil {
		err = q.server.RevokeLease(ctx, q.key)
	}
	if err != nil {
		return q.h.explain(err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
