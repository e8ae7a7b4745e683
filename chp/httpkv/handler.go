package httpkv

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"clustermap/chp"
	"clustermap/internal/hosts"
	"clustermap/internal/kvmsg"
)

// Options are the settings of a Handler.
type Options struct {
	// Write lets requests change the map. Without it they only read.
	Write bool
	// Access says who makes a request, and what that one may do. If it is nil, everybody may do
	// everything.
	Access Access
	// Hosts are names, without ports, under which the server may be asked, in addition to
	// localhost and every IP address. The entry "*" allows all.
	Hosts []string
	// Origins are origins, such as https://app.example, of pages that may use the server in a browser (CORS). The
	// entry "*" allows all; then do so only with an Access.
	Origins []string
	// Rate is how many requests a second one address may make. The default is no limit: behind
	// a reverse proxy all requests come from one address.
	Rate int
	// MaxBody is the largest body of a request in bytes, DefaultMaxBody if it is 0. The server's
	// limit for values holds, too.
	MaxBody int64
	// MaxStreams is how many watches there may be at a time, and MaxStreamsEach how many from one
	// address: DefaultMaxStreams and DefaultMaxStreamsEach if they are 0.
	MaxStreams, MaxStreamsEach int
}

// A Handler answers HTTP requests for the map of one server. It is safe for concurrent use. The
// http.Server that it is used with needs a ReadHeaderTimeout; everything else that may last has a limit
// here.
type Handler struct {
	o       Options
	server  atomic.Pointer[chp.Server]
	foreign http.CrossOriginProtection
	rates   rates
	streams streams
	lists   chan struct{} // has an element for each request that reads the whole map
	memory  budget

	patience, heartbeat, lookAgain time.Duration

	ended   context.Context // by Close
	end     context.CancelFunc
	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup
}

// New returns a Handler whose server is still to come: see [Handler.Attach].
func New(o Options) *Handler {
	o.MaxBody = cmp.Or(o.MaxBody, DefaultMaxBody)
	if o.Access == nil {
		o.Access = everybody{}
	}
	h := &Handler{
		o: o, lists: make(chan struct{}, maxLists), patience: patience, heartbeat: heartbeat, lookAgain: lookAgain,
		streams: streams{most: cmp.Or(o.MaxStreams, DefaultMaxStreams), each: cmp.Or(o.MaxStreamsEach, DefaultMaxStreamsEach)},
	}
	if o.Rate > 0 {
		h.rates.each = time.Second / time.Duration(o.Rate)
	}
	h.ended, h.end = context.WithCancel(context.Background())
	return h
}

// Attach says which server the Handler is about. Before, it answers with status 503.
func (h *Handler) Attach(s *chp.Server) { h.server.Store(s) }

// Close ends all streams, and waits for all requests. Later ones are refused.
func (h *Handler) Close() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.end()
	h.running.Wait()
}

// Format prints the type for every verb: the other fields are of the server.
func (h *Handler) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "httpkv.Handler") }

// begin counts a request, unless the Handler is closed.
func (h *Handler) begin() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.running.Add(1)
	}
	return !h.closed
}

// Handles reports whether a request is one for a Handler: its path, as it was sent, begins with /v1/.
func Handles(r *http.Request) bool { return strings.HasPrefix(r.URL.EscapedPath(), "/v1/") }

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !h.begin() {
		h.explain(chp.ErrClosed).write(w)
		return
	}
	defer h.running.Done()
	header := w.Header()
	header["X-Content-Type-Options"] = nosniff
	header["Content-Security-Policy"] = sandbox
	header["Cache-Control"] = noCache
	if len(r.TransferEncoding) > 0 {
		// It may have had a length, too, which net/http does not tell: whoever is in between may
		// see the end of the body, and the next request, elsewhere (RFC 9112, section 6.3).
		header["Connection"] = closeIt
	}
	if r.ContentLength != 0 {
		// net/http reads what is left of a body before it sends the answer.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(h.patience))
	}
	switch p := h.serve(w, r); p {
	case nil:
	case aborted:
		panic(http.ErrAbortHandler)
	default:
		p.write(w)
	}
}

// Values of headers, which are not changed.
var (
	nosniff     = []string{"nosniff"}
	sandbox     = []string{"default-src 'none'; sandbox"} // a browser shows no value as a page of this origin
	closeIt     = []string{"close"}
	noCache     = []string{"no-cache"}
	octetStream = []string{"application/octet-stream"}
	jsonType    = []string{"application/json"}
	lines       = []string{"application/jsonl"}
)

// A request is one for a server that is active.
type request struct {
	*http.Request
	h      *Handler
	server *chp.Server
	who    string
	role   *chp.Role // of who, if Access has roles
	from   netip.Addr
	key    string // or a prefix, or the ID of a lease
	query  url.Values
}

// A resource is what can be done with some paths.
type resource struct {
	path   string // as it begins
	rest   string // what follows: "key", "id" or ""
	params []string
	bodies string // the method whose requests have a body that means something
	verbs  map[string]func(*request, http.ResponseWriter) *problem
}

// resources are all but the description. A path belongs to the first one that it fits.
var resources = []resource{
	{"/v1/kv", "key", []string{"prefix", "keys", "history", "ttl", "lease"}, http.MethodPut, map[string]func(*request, http.ResponseWriter) *problem{
		http.MethodGet: (*request).get, http.MethodHead: (*request).get, http.MethodPut: (*request).put, http.MethodDelete: (*request).remove,
		http.MethodOptions: (*request).methods,
	}},
	{"/v1/watch", "key", []string{"since"}, "", map[string]func(*request, http.ResponseWriter) *problem{http.MethodGet: (*request).watch}},
	{"/v1/txn", "", nil, http.MethodPost, map[string]func(*request, http.ResponseWriter) *problem{http.MethodPost: (*request).transact}},
	{"/v1/lease", "", nil, http.MethodPost, map[string]func(*request, http.ResponseWriter) *problem{http.MethodGet: (*request).leases, http.MethodPost: (*request).grant}},
	{"/v1/lease/", "id", nil, "", map[string]func(*request, http.ResponseWriter) *problem{
		http.MethodGet: (*request).lease, http.MethodPut: (*request).renew, http.MethodDelete: (*request).revoke,
	}},
}

// find returns the resource of a path, as it was sent, and what follows in it.
func find(path string) (*resource, string) {
	for i := range resources {
		c := &resources[i]
		rest, ok := strings.CutPrefix(path, c.path)
		switch {
		case !ok:
		case c.rest == "" && rest == "", c.rest == "id" && rest != "", c.rest == "key" && (rest == "" || rest[0] == '/'):
			return c, rest
		}
	}
	return nil, ""
}

//go:embed openapi.yaml
var description []byte

// serve answers a request, or returns why not.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request) *problem {
	if !hosts.Named(r.Host, h.o.Hosts) {
		return trouble(http.StatusMisdirectedRequest, "misdirected", "")
	}
	if p := h.origin(w, r); p != nil {
		return p
	}
	from := hosts.Of(r.RemoteAddr)
	if !h.rates.admit(from, time.Now()) {
		p := trouble(http.StatusTooManyRequests, "too-many-requests", "the limit is %d a second", h.o.Rate)
		p.header = retry
		return p
	}
	path := r.URL.EscapedPath() // ServeMux and path.Clean would change keys
	if path == "/v1/openapi.yaml" && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		w.Header().Set("Content-Type", "application/yaml")
		_, _ = w.Write(description) // the asker is gone
		return nil
	}
	c, rest := find(path)
	if c == nil {
		return trouble(http.StatusNotFound, "no-such-resource", "see /v1/openapi.yaml")
	}
	do := c.verbs[r.Method]
	if do == nil || r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
		return h.noMethod(w, r, c)
	}
	q := &request{Request: r, h: h, from: from}
	var err error
	if q.who, err = h.o.Access.Who(r); err != nil {
		return unauthorized(err)
	}
	if roles, ok := h.o.Access.(Roles); ok {
		q.role = roles.Role(q.who)
	}
	if q.key, err = url.PathUnescape(rest); err != nil {
		return trouble(http.StatusBadRequest, "invalid-key", "it is not percent-encoded")
	}
	if p := q.parse(c.params); p != nil {
		return p
	}
	if r.ContentLength != 0 && r.Method != c.bodies {
		// It must have arrived: an answer that lasts would give it any time.
		_, done, p := h.body(w, r, smallBody)
		done()
		if p != nil {
			return p
		}
	}
	switch q.server = h.server.Load(); {
	case q.server == nil:
		p := trouble(http.StatusServiceUnavailable, "not-ready", "the server still reads its log or what it loads")
		p.header = retry
		return p
	case !q.server.Active():
		q.server.Ask()
		return h.notActive()
	}
	return do(q, w)
}

// unauthorized is the answer to a request with the error of Access.Who.
func unauthorized(err error) *problem {
	p := trouble(http.StatusUnauthorized, "unauthorized", "%s", strings.TrimPrefix(err.Error(), "httpkv: "))
	p.header = [2]string{"WWW-Authenticate", "Bearer"}
	return p
}

// parse parses the query. A parameter that is misspelled or repeated must not have an effect that
// nobody wants.
func (q *request) parse(known []string) *problem {
	if q.URL.RawQuery == "" {
		return nil
	}
	var err error
	if q.query, err = url.ParseQuery(q.URL.RawQuery); err != nil {
		return trouble(http.StatusBadRequest, "bad-parameter", "the query is malformed")
	}
	for name, values := range q.query {
		if !slices.Contains(known, name) || len(values) > 1 {
			return trouble(http.StatusBadRequest, "bad-parameter", "%.40q is unknown here, or there twice", name)
		}
	}
	return nil
}

// only returns a problem if there are parameters that do not belong to what is asked for.
func (q *request) only(names ...string) *problem {
	for name := range q.query {
		if !slices.Contains(names, name) {
			return trouble(http.StatusBadRequest, "bad-parameter", "%q has no meaning for this request", name)
		}
	}
	return nil
}

// origin refuses requests that pages of other origins make in a browser, unless these are allowed. So
// nobody's page can change anything, nor open streams.
func (h *Handler) origin(w http.ResponseWriter, r *http.Request) *problem {
	origin := r.Header.Get("Origin")
	if len(h.o.Origins) > 0 {
		w.Header().Add("Vary", "Origin")
	}
	if origin != "" && (slices.Contains(h.o.Origins, origin) || slices.Contains(h.o.Origins, "*")) {
		w.Header().Set("Access-Control-Allow-Origin", origin)
		w.Header().Set("Access-Control-Expose-Headers", "ETag, Location, "+headerTTL+", "+headerLease+", "+headerTime+", "+headerBy+", "+headerProperty)
		return nil
	}
	if origin == "" && r.Header.Get("Sec-Fetch-Site") == "" {
		return nil
	}
	// To net/http only what changes something may be a forgery. But a stream is held open, and a browser
	// says no more than the origin if the server is not HTTPS and not on its machine.
	changes := *r
	changes.Method = http.MethodPost
	if h.foreign.Check(&changes) != nil {
		return trouble(http.StatusForbidden, "cross-origin", "")
	}
	return nil
}

// noMethod answers a request with a method that a resource does not have, among them a browser's question
// whether a page may use others (CORS).
func (h *Handler) noMethod(w http.ResponseWriter, r *http.Request, c *resource) *problem {
	var names []string
	for name := range c.verbs {
		names = append(names, name)
	}
	slices.Sort(names)
	allowed := strings.Join(names, ", ")
	if r.Method == http.MethodOptions {
		w.Header().Set("Allow", allowed)
		if w.Header().Get("Access-Control-Allow-Origin") != "" {
			w.Header().Set("Access-Control-Allow-Methods", allowed)
			w.Header().Set("Access-Control-Allow-Headers", "Authorization, Content-Type, If-Match, If-None-Match, Last-Event-ID, "+headerProperty)
			w.Header().Set("Access-Control-Max-Age", "600")
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	p := trouble(http.StatusMethodNotAllowed, "method", "it has %s", allowed)
	p.header = [2]string{"Allow", allowed}
	return p
}

// methods answers with the methods that whoever asks may use for a key, or for all keys with a prefix. So a page offers
// nobody what would be refused.
func (q *request) methods(w http.ResponseWriter) *problem {
	if p := q.only(); p != nil {
		return p
	}
	allowed := "OPTIONS"
	if q.h.o.Access.Allow(q.who, VerbRead, q.key) == nil {
		allowed += ", GET, HEAD"
	}
	if q.h.o.Write && q.h.o.Access.Allow(q.who, VerbWrite, q.key) == nil {
		allowed += ", PUT, DELETE"
	}
	w.Header().Set("Allow", allowed)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// notActive names the server that is, or may be.
func (h *Handler) notActive() *problem {
	p := trouble(http.StatusServiceUnavailable, "not-active", "ask the other server of the pair")
	p.header = retry
	if s := h.server.Load(); s != nil {
		switch st := s.Status(); {
		case st.Role == chp.RoleAlone:
			p.detail = "the server does not accept clients yet, or has ended"
		case st.Role == chp.RoleNode:
			p.detail = "the node hears no leader of the cluster, or does not have yet what was committed; ask another one"
		case st.State == chp.ServerPassive:
			p.active = st.Peer
		default:
			p.detail = "neither server of the pair is known to be active"
		}
	}
	return p
}

// may returns a problem if who asks may not do something with a key, or a prefix that ends with a slash.
func (q *request) may(v Verb, key string) *problem {
	if v == VerbWrite && !q.h.o.Write {
		return trouble(http.StatusForbidden, "read-only", "")
	}
	err := q.h.o.Access.Allow(q.who, v, key)
	if err == nil {
		return nil
	}
	if denied := (*chp.AccessError)(nil); errors.As(err, &denied) {
		q.server.Denied(q.RemoteAddr, denied)
	}
	return trouble(http.StatusForbidden, "forbidden", "no right to %s that", v)
}

// mayLease is may for a lease: whoever was granted it may. An ID that nobody has is told to all who could have it.
func (q *request) mayLease(v Verb, id string) *problem {
	if q.role != nil && q.role.WritesSome() && (q.h.o.Write || v == VerbRead) {
		if name, ok := q.server.LeaseOwner(id); !ok || name == q.role.Name() {
			return nil
		}
	}
	return q.may(v, kvmsg.LeasePrefix+id)
}

// mayRead returns a function that reports whether an answer with keys of a subtree may go on: what proves who asks must be
// valid still.
func (q *request) mayRead(tree string) func() bool {
	return func() bool {
		who, err := q.h.o.Access.Who(q.Request)
		return err == nil && who == q.who && q.h.ended.Err() == nil && q.server.Active() && q.may(VerbRead, tree) == nil
	}
}

// limited returns a context for a call that may wait for the server, and gives the answer as much more time.
func (q *request) limited(w http.ResponseWriter) (context.Context, context.CancelFunc) {
	lasts(w)
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(2 * q.h.patience))
	return context.WithTimeout(chp.OnBehalf(q.Context(), q.role), q.h.patience)
}
