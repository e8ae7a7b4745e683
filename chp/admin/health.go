package admin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"

	"clustermap/chp"
)

// notAttached is why a Handler without a server is not ready.
const notAttached = "the server has not begun: it still reads its log or what it loads"

// Why a server fails the check that it answers.
var (
	errSlow = fmt.Errorf("it has not answered within %v", checkTimeout)
	errBusy = fmt.Errorf("it is being asked %d times already", maxProbes)
)

// A check is one thing that must be so.
type check struct {
	name string
	test func(s *chp.Server, st *chp.Status) error
}

// Every set of checks begins with "answers", which gets the status for the others.
var (
	liveChecks  []check
	readyChecks = []check{{"serves", serves}, {"role", inRole}}
)

func serves(s *chp.Server, _ *chp.Status) error {
	select {
	case <-s.Ready():
		return nil
	default:
		return errors.New("it does not accept clients yet")
	}
}

// inRole: a server of a pair that is neither active nor passive cannot serve, unless it would
// become active for the next client.
func inRole(_ *chp.Server, st *chp.Status) error {
	if st.State != chp.ServerWaiting || st.TakesOver {
		return nil
	}
	if st.PeerError != "" {
		return fmt.Errorf("neither active nor passive: %s", st.PeerError)
	}
	return errors.New("neither active nor passive")
}

// outcome is what an answer says about checks.
type outcome struct {
	text   bytes.Buffer
	failed bool
}

func (o *outcome) report(r *http.Request, name string, err error) {
	if err != nil {
		o.failed = true
		fmt.Fprintf(&o.text, "[-] %s: %v\n", name, err)
	} else if r.URL.Query().Has("verbose") {
		fmt.Fprintf(&o.text, "[+] %s\n", name)
	}
}

func (o *outcome) send(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if o.failed {
		w.WriteHeader(http.StatusServiceUnavailable)
	} else if o.text.Len() == 0 {
		o.text.WriteString("ok\n")
	}
	_, _ = w.Write(o.text.Bytes()) // the asker is gone
}

// checks answers with the outcome of checks.
func (h *Handler) checks(all []check) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var o outcome
		s := h.server.Load()
		switch {
		case s == nil && len(all) > 0:
			o.report(r, "attached", errors.New(notAttached))
		case s == nil:
			o.report(r, "attached", nil)
		default:
			st, err := within(r.Context(), h.probes, s.Status)
			o.report(r, "answers", err)
			for _, c := range all {
				if err == nil {
					o.report(r, c.name, c.test(s, &st))
				}
			}
		}
		o.send(w)
	}
}

// probes bounds the goroutines that ask a server, of which any number may be waiting for the lock
// of one that does not answer.
type probes chan struct{}

// within returns what a function returns, unless that takes too long or ctx ends, with the wait for its turn. Then it
// leaves the function behind.
func within[T any](ctx context.Context, p probes, f func() T) (T, error) {
	var none T
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	select {
	case p <- struct{}{}:
	case <-ctx.Done():
		return none, errBusy
	}
	done := make(chan T, 1)
	go func() {
		done <- f()
		<-p
	}()
	select {
	case v := <-done:
		return v, nil
	case <-ctx.Done():
		return none, errSlow
	}
}
