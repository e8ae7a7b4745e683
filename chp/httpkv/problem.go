package httpkv

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"clustermap/chp"
	"clustermap/internal/jsonline"
	"clustermap/internal/kvjson"
)

// A problem is an answer to a request that was not carried out (RFC 9457).
type problem struct {
	kind   string // the end of its type
	status int
	detail string

	conflict *chp.ConflictError // members "key" and "seq"
	active   string             // member "active"
	oldest   int64              // member "oldest"
	header   [2]string
}

// aborted ends a request whose asker is gone, or must see that the answer is not complete.
var aborted = new(problem)

// typePrefix begins the types of all problems.
const typePrefix = "urn:clustermap:problem:"

// titles has the kinds of problems.
var titles = map[string]string{
	"absent":            "The key is not in the map",
	"no-history":        "The server keeps no history",
	"bad-body":          "The body is malformed",
	"bad-condition":     "The condition is malformed",
	"bad-parameter":     "A parameter is malformed or unknown",
	"body-too-large":    "The body is too large",
	"body-too-slow":     "The body did not arrive in time",
	"busy":              "The server has too much to do",
	"compacted":         "The server does not remember what came after that sequence",
	"conflict":          "A condition did not hold",
	"cross-origin":      "The request comes from a page of another origin",
	"empty-value":       "The value is empty",
	"encoded-body":      "The body is encoded",
	"forbidden":         "Who asks may not do that",
	"invalid-key":       "No key is like that",
	"lease-ended":       "The lease has ended",
	"map-full":          "The map is full",
	"method":            "The resource does not have the method",
	"misdirected":       "The Host of the request is no name of this server",
	"no-such-lease":     "There is no such lease",
	"no-such-resource":  "There is no such resource",
	"not-active":        "The server is not active",
	"not-ready":         "The server has not begun",
	"read-only":         "The server accepts no updates over HTTP",
	"refused":           "The update is refused",
	"server-failed":     "The server has failed",
	"timeout":           "The server did not answer in time",
	"too-many-requests": "There are too many requests from one address",
	"too-many-streams":  "There are too many streams",
	"unauthorized":      "The request does not prove who makes it",
	"uncertain":         "It is not known whether the update was made",
	"unsupported-body":  "The Content-Type of the body is not application/json",
}

func trouble(status int, kind, format string, a ...any) *problem {
	if len(a) > 0 {
		format = fmt.Sprintf(format, a...)
	}
	return &problem{kind: kind, status: status, detail: format}
}

// retry says when to ask again.
var retry = [2]string{"Retry-After", "1"}

func busy(format string, a ...any) *problem {
	p := trouble(http.StatusServiceUnavailable, "busy", format, a...)
	p.header = retry
	return p
}

// write sends the answer.
func (p *problem) write(w http.ResponseWriter) {
	body := append(jsonline.AppendField([]byte{'{'}, "type", []byte(typePrefix+p.kind)), ',')
	body = append(jsonline.AppendField(body, "title", []byte(titles[p.kind])), ',')
	body = jsonline.AppendNumber(body, "status", int64(p.status))
	if p.detail != "" {
		body = jsonline.AppendField(append(body, ','), "detail", []byte(p.detail))
	}
	if p.active != "" {
		body = jsonline.AppendField(append(body, ','), "active", []byte(p.active))
	}
	if p.oldest > 0 {
		body = kvjson.AppendSequence(append(body, ','), "oldest", p.oldest)
	}
	h := w.Header()
	if c := p.conflict; c != nil {
		body = jsonline.AppendField(append(body, ','), "key", []byte(c.Key))
		body = kvjson.AppendSequence(append(body, ','), "seq", c.Sequence)
		if c.Sequence > 0 {
			h.Set("ETag", etag(c.Sequence))
		}
	}
	if p.header[0] != "" {
		h.Set(p.header[0], p.header[1])
	}
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Type", "application/problem+json")
	body = append(body, '}', '\n')
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(p.status)
	_, _ = w.Write(body) // the asker is gone
}

// refused returns the problem of a refused message.
func refused(e *chp.MessageError) *problem {
	switch e.Reason {
	case chp.ReasonKey, chp.ReasonReservedKey:
		return trouble(http.StatusBadRequest, "invalid-key", "%s", e.Detail)
	case chp.ReasonValueTooLarge:
		return trouble(http.StatusRequestEntityTooLarge, "body-too-large", "the value exceeds the limit of the server")
	case chp.ReasonLimit:
		return trouble(http.StatusInsufficientStorage, "map-full", "who asks may add no more keys or bytes")
	case chp.ReasonMapFull:
		return trouble(http.StatusInsufficientStorage, "map-full", "the map has no room, or there are too many leases")
	}
	return trouble(http.StatusBadRequest, "refused", "%s: %s", e.Reason, e.Detail)
}

// explain returns the problem that an error of the server is.
func (h *Handler) explain(err error) *problem {
	var conflict *chp.ConflictError
	var message *chp.MessageError
	var compacted *chp.CompactedError
	switch {
	case errors.As(err, &conflict):
		p := trouble(http.StatusPreconditionFailed, "conflict", "the key has another sequence")
		if conflict.Sequence == 0 {
			p.detail = "the key does not exist"
		}
		p.conflict = conflict
		return p
	case errors.Is(err, chp.ErrUncertain): // also one with ErrStandby
		return trouble(http.StatusInternalServerError, "uncertain", "the server stopped being active before the update was published")
	case errors.As(err, &message):
		return refused(message)
	case errors.Is(err, chp.ErrStandby):
		return h.notActive()
	case errors.Is(err, chp.ErrLeaseEnded):
		return trouble(http.StatusConflict, "lease-ended", "nothing was changed")
	case errors.Is(err, chp.ErrNoLeases):
		return trouble(http.StatusBadRequest, "refused", "the server is of a Clone model without leases")
	case errors.Is(err, chp.ErrClosed):
		p := trouble(http.StatusServiceUnavailable, "not-ready", "the server ends")
		p.header = retry
		return p
	case errors.As(err, &compacted):
		p := trouble(http.StatusGone, "compacted", "read the whole state again: watch without since")
		p.oldest = compacted.Oldest
		return p
	case errors.Is(err, context.DeadlineExceeded):
		return trouble(http.StatusGatewayTimeout, "timeout", "an update may still be made")
	case errors.Is(err, context.Canceled):
		return aborted
	}
	return trouble(http.StatusInternalServerError, "server-failed", "%s", strings.TrimPrefix(err.Error(), "chp: "))
}
