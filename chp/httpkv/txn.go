package httpkv

import (
	"bytes"
	"mime"
	"net/http"
	"strings"

	"clustermap/internal/jsonline"
	"clustermap/internal/kvjson"
)

// json returns a problem if the body is not said to be JSON: a form of another origin's page cannot say that.
func (q *request) json() *problem {
	kind, _, err := mime.ParseMediaType(q.Header.Get("Content-Type"))
	switch kind {
	case "application/json", "application/jsonl", "application/x-ndjson":
		if err == nil {
			return nil
		}
	}
	return trouble(http.StatusUnsupportedMediaType, "unsupported-body", "")
}

// transact makes several updates at once, or none.
func (q *request) transact(w http.ResponseWriter) *problem {
	if !q.h.o.Write {
		return q.may(VerbWrite, "")
	}
	if p := q.json(); p != nil {
		return p
	}
	body, done, p := q.body(w, q.h.o.MaxBody)
	defer done()
	if p != nil {
		return p
	}
	var t kvjson.Transaction
	if err := t.Read(bytes.NewReader(body), int(q.h.o.MaxBody)); err != nil {
		return trouble(http.StatusBadRequest, "bad-body", "%s", strings.ReplaceAll(err.Error(), "chp: ", ""))
	}
	if len(t.Keys) == 0 {
		return trouble(http.StatusBadRequest, "bad-body", "there are no lines")
	}
	for _, k := range t.Keys {
		verb := VerbRead
		if k.Update {
			verb = VerbWrite
		}
		p := q.may(verb, k.Key)
		if p == nil && k.Lease != "" {
			p = q.mayLease(VerbWrite, k.Lease)
		}
		if p != nil {
			return p
		}
	}
	ctx, cancel := q.limited(w)
	defer cancel()
	first, err := q.server.ApplyIf(ctx, &t.Updates, t.Checks...)
	if err != nil {
		return q.h.explain(err)
	}
	out := kvjson.AppendSequence([]byte{'{'}, "seq", first)
	out = append(jsonline.AppendNumber(append(out, ','), "updates", int64(t.Updates.Len())), '}', '\n')
	return answer(w, http.StatusOK, out)
}

// answer answers with JSON.
func answer(w http.ResponseWriter, status int, body []byte) *problem {
	w.Header()["Content-Type"] = jsonType
	w.WriteHeader(status)
	_, _ = w.Write(body) // the asker is gone
	return nil
}
