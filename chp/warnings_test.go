package chp

import (
	"context"
	"log/slog"
	"strings"
	"testing"
)

// Servers and clients without a logger log warnings and errors, and nothing else.
func TestLoggerDefaults(t *testing.T) {
	t.Parallel()
	s, err := ServerOptions{}.withDefaults()
	must(t, err)
	c, _, err := ClientOptions{Servers: []string{"tcp://127.0.0.1:5556"}}.withDefaults()
	must(t, err)
	for _, l := range []*slog.Logger{s.Logger, c.Logger} {
		if l.Enabled(context.Background(), slog.LevelInfo) || !l.Enabled(context.Background(), slog.LevelWarn) {
			t.Error("the logger is not one for warnings")
		}
	}
	given := quiet()
	if loggerOr(given) != given {
		t.Error("the logger of the options is not used")
	}
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	l := slog.New(warnings{slog.NewTextHandler(&out, nil)})
	for _, l := range []*slog.Logger{l, l.With("a", 1), l.WithGroup("g")} {
		l.Info("info")
		l.Warn("warning", "k", "v")
	}
	if text := out.String(); strings.Contains(text, "info") || strings.Count(text, "warning") != 3 ||
		!strings.Contains(text, "a=1 k=v") || !strings.Contains(text, "g.k=v") {
		t.Error(text)
	}
}
