package espresso

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"clustermap/zmtp"
)

// paced is a recording of messages at the given times after the first.
func paced(t *testing.T, at ...time.Duration) *Reader {
	t.Helper()
	var file bytes.Buffer
	w, err := NewWriter(&file, Ends{zmtp.TypeXSub, zmtp.TypeXPub})
	must(t, err)
	begun := time.Now().Add(-time.Hour).UnixNano()
	for i, d := range at {
		wire := zmtp.AppendMessage(nil, fmt.Append(nil, i))
		must(t, w.write(append(appendHead(nil, byte(DirectionFromFrontend), begun+int64(d), len(wire)), wire...)))
	}
	r, err := NewReader(&file)
	must(t, err)
	return r
}

// played returns the times after the call of Play at which events were played.
func played(t *testing.T, r *Reader, speed float64) (at []time.Duration) {
	t.Helper()
	begun := time.Now()
	must(t, Play(testContext(t), r, speed, func(e *Event) error {
		if string(e.Topic()) != fmt.Sprint(len(at)) {
			t.Errorf("event %d is %q", len(at), e.Topic())
		}
		at = append(at, time.Since(begun))
		return nil
	}))
	return at
}

// No event is played before its time divided by the speed. (If events were played much
// too late, the test would take hours.)
func TestPlay(t *testing.T) {
	t.Parallel()
	at := []time.Duration{0, 10 * time.Millisecond, 10 * time.Millisecond, 60 * time.Millisecond}
	for _, c := range []struct {
		speed, unit float64
	}{{1, 1}, {2, 1}, {0.5, 1}, {1000 * 3600, 1000 * 3600}} {
		t.Run(fmt.Sprint(c.speed), func(t *testing.T) {
			t.Parallel()
			var times []time.Duration
			for _, d := range at {
				times = append(times, time.Duration(float64(d)*c.unit))
			}
			got := played(t, paced(t, times...), c.speed)
			for i, d := range times {
				if want := time.Duration(float64(d) / c.speed); got[i] < want {
					t.Errorf("event %d after %v, want %v at least", i, got[i], want)
				}
			}
		})
	}
}

// Play does not wait if the speed is 0, or if times decrease.
func TestPlayAtOnce(t *testing.T) {
	t.Parallel()
	if got := played(t, paced(t, 0, 1000*time.Hour, 2000*time.Hour), 0); len(got) != 3 {
		t.Errorf("%d events", len(got))
	}
	if got := played(t, paced(t, 0, -1000*time.Hour, -1), 1); len(got) != 3 {
		t.Errorf("%d events", len(got))
	}
}

// The context ends a wait at any time and speed; an error of do ends Play as well, and a
// torn end is reported after all events before it.
func TestPlayEnds(t *testing.T) {
	t.Parallel()
	for _, speed := range []float64{1, 1e-300} {
		ctx, cancel := context.WithCancel(testContext(t))
		err := Play(ctx, paced(t, 0, 1<<62), speed, func(*Event) error {
			cancel()
			return nil
		})
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	fault := errors.New("a test's")
	if err := Play(testContext(t), paced(t, 0, 0), 0, func(*Event) error { return fault }); err != fault {
		t.Error(err)
	}
	file := recording(t, 3)
	r, err := NewReader(bytes.NewReader(file[:len(file)-1]))
	must(t, err)
	n := 0
	err = Play(testContext(t), r, 0, func(*Event) error { n++; return nil })
	if torn := (*TornError)(nil); !errors.As(err, &torn) || n != 3 {
		t.Errorf("%d events, %v", n, err)
	}
}
