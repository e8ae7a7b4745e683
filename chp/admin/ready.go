package admin

import (
	"context"
	"net/http"

	"clustermap/chp"
)

// A Check is one thing that must be so for a service to be ready.
type Check struct {
	Name string
	Test func(context.Context) error // must return when the context ends
}

// ClientCheck returns the check whether a client follows a server, and has come to within maxLag
// updates of it: see [chp.Client.Ready].
func ClientCheck(name string, c *chp.Client, maxLag int64) Check {
	return Check{name, func(ctx context.Context) error { return c.Ready(ctx, maxLag) }}
}

// NewReadyHandler returns a handler for /readyz of a service: 200 if all checks are, else 503 with
// those that are not, and why. ?verbose names all. Each check has two seconds, and four requests
// at a time are answered.
func NewReadyHandler(all ...Check) http.Handler {
	asking := make(chan struct{}, maxProbes)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var o outcome
		select {
		case asking <- struct{}{}:
			defer func() { <-asking }()
			for _, c := range all {
				ctx, cancel := context.WithTimeout(r.Context(), checkTimeout)
				o.report(r, c.Name, c.Test(ctx))
				cancel()
			}
		default:
			o.report(r, "answers", errBusy)
		}
		o.send(w)
	})
}
