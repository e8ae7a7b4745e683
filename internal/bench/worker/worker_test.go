package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	Main(map[string]Role{
		"doubler": For(func(n int, say func(any)) error {
			say(n)
			Hear()
			say(2 * n)
			return nil
		}),
		"failing": func([]byte, func(any)) error { return errors.New("on purpose") },
		"lacking": func([]byte, func(any)) error { return fmt.Errorf("a program %w", ErrMissing) },
		"endless": func([]byte, func(any)) error { select {} },
	})
	os.Exit(m.Run())
}

func start(t *testing.T, ctx context.Context, role string) *Worker {
	t.Helper()
	w, err := Start(ctx, role, 21)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return w
}

func TestWorkerSaysItsValues(t *testing.T) {
	t.Parallel()
	w := start(t, t.Context(), "doubler")
	for _, want := range []int{21, 42} {
		var n int
		if err := w.Next(&n); err != nil || n != want {
			t.Errorf("%d, %v, want %d", n, err, want)
		}
		if err := w.Tell("go"); err != nil && want == 21 {
			t.Error(err)
		}
	}
	var n int
	if err := w.Next(&n); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	if err := w.Wait(); err != nil || w.Processor() <= 0 {
		t.Error(err, w.Processor())
	}
}

func TestErrorsReachTheParent(t *testing.T) {
	t.Parallel()
	var n int
	if err := start(t, t.Context(), "failing").Next(&n); err == nil || !strings.Contains(err.Error(), "failing failed: on purpose") {
		t.Error(err)
	}
	if err := start(t, t.Context(), "lacking").Next(&n); !errors.Is(err, ErrMissing) || err.Error() != "a program is missing" {
		t.Error(err)
	}
}

func TestEndOfContextKillsTheWorker(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	w := start(t, ctx, "endless")
	cancel()
	if err := w.Wait(); err == nil {
		t.Error("it ended by itself")
	}
}
