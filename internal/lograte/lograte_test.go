package lograte

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func limiter(size int) *Limiter {
	return &Limiter{First: 5 * time.Second, Most: 5 * time.Minute, Size: size}
}

// What repeats is logged at once, and again after waits that double, with a count.
func TestRepetitionsAreLoggedAfterWaitsThatDouble(t *testing.T) {
	t.Parallel()
	l := limiter(8)
	now := time.Unix(0, 0)
	begun := now
	var logged []string
	for ; now.Before(begun.Add(time.Minute)); now = now.Add(500 * time.Millisecond) {
		if log, left := l.Due("a", "refused", now); log {
			logged = append(logged, fmt.Sprintf("%v:%d", now.Sub(begun), left))
		}
	}
	if got, want := strings.Join(logged, " "), "0s:0 5s:9 15s:19 35s:39"; got != want {
		t.Errorf("logged %s, want %s", got, want)
	}
	if log, left := l.Due("a", "something else", now); !log || left != 0 {
		t.Errorf("another kind: %v, %d", log, left)
	}
	if log, left := l.Due("b", "refused", now); !log || left != 0 {
		t.Errorf("another peer: %v, %d", log, left)
	}
	logged = nil
	for range 2 {
		l.Flush(now.Add(10*time.Minute), func(peer, kind string, omitted int) {
			logged = append(logged, fmt.Sprint(peer, " ", kind, " ", omitted))
		})
	}
	if !slices.Equal(logged, []string{"a refused 49"}) {
		t.Errorf("flushed %q", logged)
	}
}

// A crowd of peers takes no more memory than the table has, is counted, and hides neither
// what another peer does nor another kind.
func TestACrowdHidesNobody(t *testing.T) {
	t.Parallel()
	l := limiter(100)
	now := time.Unix(0, 0)
	l.Due("known", "denied", now)
	logged := 0
	for i := range 100_000 {
		if log, _ := l.Due(fmt.Sprint(i), "noise", now); log {
			logged++
		}
	}
	if len(l.table) > 102 || logged > 101 {
		t.Errorf("%d peers are remembered, %d lines logged", len(l.table), logged)
	}
	if log, _ := l.Due("new", "denied", now); !log {
		t.Error("the noise hides another kind")
	}
	now = now.Add(6 * time.Second)
	if log, _ := l.Due("known", "denied", now); !log {
		t.Error("the noise hides another peer")
	}
	if log, left := l.Due("x", "other", now); !log || left != 0 {
		t.Error("the quiet peers are not forgotten")
	}
	if log, left := l.Due("99999", "noise", now); !log || left != 0 {
		t.Error("after the crowd a peer has no line of its own")
	}
	left := 0
	l.Flush(now, func(_, kind string, omitted int) { left += omitted })
	if left != 100_000-logged {
		t.Errorf("%d of %d are counted", left, 100_000-logged)
	}
}
