package chp

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
)

// Editors of one value, at clients and in the server's process, lose nothing of each other.
func TestViewUpdateLosesNothing(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	editors := []Source{followServer(t, s.Endpoints().Snapshot), followServer(t, s.Endpoints().Snapshot), s}
	const times = 50
	var editing sync.WaitGroup
	for i, source := range editors {
		v := newView(t, source, "/v/", ViewOptions[[]int]{})
		editing.Go(func() {
			last := int64(0)
			for range times {
				seq, err := v.Update(ctx, "/v/list", func(old []int, ok bool) ([]int, error) {
					if ok == (len(old) == 0) {
						t.Errorf("%d values, and there is one: %v", len(old), ok)
					}
					return append(old, i), nil
				})
				if err != nil || seq <= last {
					t.Errorf("sequence %d after %d, %v", seq, last, err)
					return
				}
				last = seq
			}
		})
	}
	editing.Wait()
	var all []int
	value, _ := s.Get("/v/list")
	must(t, JSONCodec[[]int]{}.Unmarshal(value, &all))
	slices.Sort(all)
	for i := range editors {
		for n := range times {
			if at := i*times + n; at >= len(all) || all[at] != i {
				t.Fatalf("%d changes, want %d of each: %v", len(all), times, all)
			}
		}
	}
}

// After an error of Update nothing is changed.
func TestViewUpdateFails(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	c := followServer(t, s.Endpoints().Snapshot)
	_, err := c.SetSync(ctx, "/v/a", []byte("no number"))
	must(t, err)
	numbers, texts := newView(t, c, "/v/", ViewOptions[int]{}), newView(t, c, "/v/", ViewOptions[string]{Codec: TextCodec[string]{}})
	mine := errors.New("mine")
	var undecoded *DecodeError
	_, err = numbers.Update(ctx, "/v/a", func(int, bool) (int, error) { t.Error("called without a value"); return 1, nil })
	if !errors.As(err, &undecoded) || undecoded.Key != "/v/a" {
		t.Errorf("what does not decode: %v", err)
	}
	if _, err = numbers.Update(ctx, "/v/b", func(int, bool) (int, error) { return 1, mine }); err != mine {
		t.Errorf("an error of the function comes back as %v", err)
	}
	if _, err = numbers.Update(ctx, "elsewhere", func(int, bool) (int, error) { return 1, nil }); !errors.As(err, new(*OutsideViewError)) {
		t.Errorf("a key outside of the view: %v", err)
	}
	if _, err = texts.Update(ctx, "/v/a", func(string, bool) (string, error) { return "", nil }); err != ErrEmptyValue {
		t.Errorf("nothing to set: %v", err)
	}
	ended, cancel := context.WithCancel(ctx)
	if _, err = texts.Update(ended, "/v/a", func(string, bool) (string, error) {
		cancel()
		_, err := c.SetSync(ctx, "/v/a", []byte("other")) // so that it has to try again
		return "mine", err
	}); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("the context ended: %v", err)
	}
	if v, _ := s.Get("/v/a"); string(v) != "other" {
		t.Errorf("the value is %q", v)
	}
}
