package chp

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

// While a server is away the log says so once, not with every attempt.
func TestH15_LogOfAServerThatIsAway(t *testing.T) {
	t.Parallel()
	s := newScripted(t, asOurs)
	var log lockedLog
	failures := make(chan error, 100)
	c := follow(t, ClientOptions{Logger: log.logger(), OnFailure: func(_ string, err error) {
		select {
		case failures <- err:
		default:
		}
	}}, s)
	s.answer(1)
	must(t, c.WaitActive(testContext(t)))
	s.close()
	for range 6 { // the lost connection, and attempts
		<-failures
	}
	must(t, c.Close())
	text := log.String()
	if n := strings.Count(text, "connection refused"); n < 1 || n > 3 { // more than once on a very slow machine only
		t.Errorf("%d records of a refused connection, want one:\n%s", n, text)
	}
	lost, unreachable := strings.Index(text, "lost the server"), strings.Index(text, "cannot reach the server")
	if lost < 0 || unreachable < lost {
		t.Errorf("want that the server was lost, and then that it cannot be reached:\n%s", text)
	}
}

// A cause is logged at once, and again after waits that double, with a count.
func TestH15_Complaints(t *testing.T) {
	t.Parallel()
	m := complaints{}
	now := time.Now()
	begun := now
	var logged []string
	for ; now.Before(begun.Add(time.Minute)); now = now.Add(500 * time.Millisecond) {
		if log, left := m.due("refused", now); log {
			logged = append(logged, fmt.Sprintf("%v:%d", now.Sub(begun), left))
		}
	}
	if got, want := strings.Join(logged, " "), "0s:0 5s:9 15s:19 35s:39"; got != want {
		t.Errorf("logged %s, want %s", got, want)
	}
	if log, left := m.due("something else", now); !log || left != 0 {
		t.Errorf("another cause: %v, %d", log, left)
	}
	for i := range 100 {
		m.due(fmt.Sprint(i), now)
	}
	if len(m) > maxComplaints {
		t.Errorf("%d causes are remembered", len(m))
	}
	if got := causeOf(fmt.Errorf("to 127.0.0.1:4711: %w", syscall.ECONNREFUSED)); got != "connection refused" {
		t.Error(got)
	}
}
