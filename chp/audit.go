package chp

import (
	"context"
	"errors"
	"log/slog"

	"clustermap/internal/wake"
)

// tee is a handler that passes records to two others.
type tee struct{ one, two slog.Handler }

func (t tee) Enabled(ctx context.Context, l slog.Level) bool {
	return t.one.Enabled(ctx, l) || t.two.Enabled(ctx, l)
}

func (t tee) Handle(ctx context.Context, r slog.Record) error {
	var errs []error
	for _, h := range []slog.Handler{t.one, t.two} {
		if h.Enabled(ctx, r.Level) {
			errs = append(errs, h.Handle(ctx, r.Clone()))
		}
	}
	return errors.Join(errs...)
}

func (t tee) WithAttrs(attrs []slog.Attr) slog.Handler {
	return tee{t.one.WithAttrs(attrs), t.two.WithAttrs(attrs)}
}

func (t tee) WithGroup(name string) slog.Handler {
	return tee{t.one.WithGroup(name), t.two.WithGroup(name)}
}

// AuditWrites writes a record for each update of the map that follows, until the context ends or the server is closed: the
// message is "write", and the attributes are key; sequence; op, which is set, deleted or expired; by, who sent it, as far as
// ServerOptions.Stamp says so; and before and after, the sizes of the value in bytes, 0 if the key is absent. It returns nil.
//
// It keeps a copy of the values of all keys, and reads the map beside everything else, as a [Watch] does: the server never waits for
// it. If it falls behind by more than ServerOptions.WatchQueue, it writes a record "writes missing" with the last
// sequence before, and goes on with what follows. It does not have the keys of leases.
func (s *Server) AuditWrites(ctx context.Context, to *slog.Logger) error {
	last := int64(0)
	for {
		w, err := s.WatchWith(WatchOptions{NoInitial: true, Previous: true})
		if err != nil {
			return closedIsNil(err)
		}
		err = auditEvents(ctx, w, to, &last)
		_ = w.Close()
		if ctx.Err() != nil || !errors.Is(err, ErrLagged) {
			return closedIsNil(err)
		}
		to.LogAttrs(ctx, slog.LevelWarn, "writes missing", slog.Int64("after", last))
	}
}

// closedIsNil returns nil for the error of an end that was asked for.
func closedIsNil(err error) error {
	if errors.Is(err, ErrClosed) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

func auditEvents(ctx context.Context, w *Watch, to *slog.Logger, last *int64) error {
	for {
		e, err := w.Next(ctx)
		if err != nil {
			return err
		}
		if e.Op != OpSet && e.Op != OpDelete {
			continue
		}
		*last = e.Sequence
		_, by, _ := e.Properties.Stamped()
		to.LogAttrs(wake.Ended, slog.LevelInfo, "write", slog.String("key", string(e.Key)), slog.Int64("sequence", e.Sequence), slog.String("op", e.Cause.String()),
			slog.String("by", by), slog.Int("before", len(e.Previous)), slog.Int("after", len(e.Value)))
	}
}
