package chp

import (
	"context"
	"log/slog"
)

// warnings is a handler for programs that set no logger: another one, for records of level
// Warn and above only.
type warnings struct{ slog.Handler }

// loggerOr returns a logger of the options or, if that is nil, one for the warnings of
// slog.Default.
func loggerOr(l *slog.Logger) *slog.Logger {
	if l == nil {
		return slog.New(warnings{slog.Default().Handler()})
	}
	return l
}

func (w warnings) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && w.Handler.Enabled(ctx, l)
}

func (w warnings) WithAttrs(attrs []slog.Attr) slog.Handler {
	return warnings{w.Handler.WithAttrs(attrs)}
}

func (w warnings) WithGroup(name string) slog.Handler { return warnings{w.Handler.WithGroup(name)} }
