package follow

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"clustermap/internal/lograte"
)

// links logs which server a client follows, and why not, and reports it to the
// application. Only the client's run goroutine uses it.
type links struct {
	log    *slog.Logger
	on     func(kind LinkKind, server, former string, err error) // or nil
	causes *lograte.Limiter

	server string // the last one that the client followed, or ""
	linked bool   // the client still follows it
	warned bool   // it has logged that it does not
	lost   time.Time
}

// begin reports that the client follows a server.
func (l *links) begin(ctx context.Context, server string) {
	kind, former := LinkConnected, ""
	switch l.server {
	case "":
	case server:
		kind = LinkResynced
	default:
		kind, former = LinkFailedOver, l.server
	}
	// Who has read that an outage began reads that it is over.
	level := slog.LevelInfo
	if l.warned {
		level = slog.LevelWarn
	}
	switch kind {
	case LinkConnected:
		l.log.Log(ctx, level, "following the server", "server", server)
	case LinkResynced:
		l.log.Log(ctx, level, "following the server again", "server", server, "outage", time.Since(l.lost).Round(time.Millisecond))
	case LinkFailedOver:
		l.log.Log(ctx, level, "following another server", "server", server, "former", l.server, "outage", time.Since(l.lost).Round(time.Millisecond))
	}
	l.server, l.linked, l.warned = server, true, false
	l.report(ctx, kind, server, former, nil)
}

// end reports that the client no longer follows its server, if it did.
func (l *links) end(ctx context.Context, err error) {
	if l.linked {
		l.linked, l.lost = false, time.Now()
		l.report(ctx, LinkLost, l.server, "", err)
	}
}

// report calls the application, unless ctx, which is the client's, has ended.
func (l *links) report(ctx context.Context, kind LinkKind, server, former string, err error) {
	if l.on != nil && ctx.Err() == nil {
		l.on(kind, server, former, err)
	}
}

// failed logs why a session, or an attempt at one, ended, unless the same cause was logged
// recently. joined reports whether the session had a snapshot; the next attempt is at the
// server next.
func (l *links) failed(server string, err error, joined bool, next string) {
	log, omitted := l.causes.Due(server, cause(err), time.Now())
	if !log {
		return
	}
	attrs := []any{"server", server, "error", err, "next", next}
	if omitted > 0 {
		attrs = append(attrs, slog.Int("repeated", omitted))
	}
	text := "cannot follow the server"
	switch {
	case errors.Is(err, ErrUnreachable): // perhaps it is only starting
		text = "cannot reach the server"
	case joined:
		text = "lost the server"
	}
	l.log.Warn(text, attrs...)
	l.warned = true
}

// cause returns the root cause of a failure, as one of a kind in the log.
func cause(err error) string {
	if mixed := (*MixedError)(nil); errors.As(err, &mixed) {
		return "mixed"
	}
	return lograte.Cause(err, ErrSilent, errStandby, ErrMapTooLarge, ErrOvertaken, ErrNotCHP, errNoSubscription)
}
