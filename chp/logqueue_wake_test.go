package chp

import (
	"log/slog"
	"strings"
	"testing"
	"time"
)

// The number of records left out is logged after their period, also when no other
// record comes and the queue's goroutine was asleep when they were left out.
func TestLeftOutRecordsAreReported(t *testing.T) {
	t.Parallel()
	var out lockedLog
	q := newLogQueue(slog.NewTextHandler(&out, nil))
	defer q.close()
	log := q.logger()
	for range logPerKind {
		log.Warn("handshake failed")
	}
	eventually(t, "all are logged", func() bool { return strings.Count(out.String(), "handshake failed") >= logPerKind })
	time.Sleep(20 * time.Millisecond) // time for the goroutine to fall asleep; without it the test shows less
	leftOut := func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.kinds["handshake failed"].omitted > 0
	}
	for log.Warn("handshake failed"); !leftOut(); { // more than once if a new period has begun
		log.Warn("handshake failed")
	}
	eventually(t, "the number is logged", func() bool { return strings.Contains(out.String(), "more=") })
}
