package chp

import (
	"strings"
	"testing"
)

// While a server is away the log says so once, not with every attempt.
func TestLogOfAServerThatIsAway(t *testing.T) {
	t.Parallel()
	s := newScripted(t, asOurs)
	var log lockedLog
	failures := make(chan error, 100)
	c := followScripted(t, ClientOptions{Logger: log.logger(), OnFailure: func(_ string, err error) {
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
