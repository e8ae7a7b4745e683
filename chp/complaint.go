package chp

import (
	"errors"
	"log/slog"
	"net"
	"syscall"
	"time"
)

// complaints decides which failures of one server are logged. A client tries an
// unreachable server twice a second; a cause is logged when it first occurs, and then
// at intervals that double, with the number of failures since. Only the client's run
// goroutine uses it.
type complaints map[string]*complaint

// complaint counts the failures with one cause.
type complaint struct {
	next    time.Time     // when the cause is logged again
	wait    time.Duration // from next to the time after it
	omitted int           // failures not logged since the last one that was
}

const (
	complaintFirst = 5 * time.Second
	complaintMost  = 5 * time.Minute
	maxComplaints  = 8 // causes remembered; another one clears them
)

// due reports whether to log a failure, and how many with the same cause were omitted
// since the last logged one.
func (m complaints) due(cause string, now time.Time) (log bool, omitted int) {
	c := m[cause]
	if c == nil {
		if len(m) == maxComplaints {
			clear(m)
		}
		m[cause] = &complaint{next: now.Add(complaintFirst), wait: 2 * complaintFirst}
		return true, 0
	}
	if now.Before(c.next) {
		c.omitted++
		return false, 0
	}
	omitted = c.omitted
	*c = complaint{next: now.Add(c.wait), wait: min(2*c.wait, complaintMost)}
	return true, omitted
}

// complain logs why a session, or an attempt at one, ended, unless the same cause was
// logged recently.
func (c *Client) complain(s *session, err error, next int) {
	m := c.complaints[s.index]
	if m == nil {
		m = complaints{}
		c.complaints[s.index] = m
	}
	log, omitted := m.due(causeOf(err), time.Now())
	if !log {
		return
	}
	attrs := []any{"server", s.server.name, "error", err, "next", c.servers[next].name}
	if omitted > 0 {
		attrs = append(attrs, slog.Int("repeated", omitted))
	}
	text := "cannot follow the server"
	switch {
	case errors.Is(err, ErrUnreachable): // perhaps it is only starting
		text = "cannot reach the server"
	case s.joined.Load():
		text = "lost the server"
	}
	c.log.Warn(text, attrs...)
}

// causeOf returns the text of the root cause of a failure, without the addresses
// and ports that differ each time.
func causeOf(err error) string {
	var number syscall.Errno
	var name *net.DNSError
	switch {
	case errors.As(err, &number):
		return number.Error()
	case errors.As(err, &name):
		return name.Err
	}
	if mixed := (*MixedError)(nil); errors.As(err, &mixed) {
		return "mixed"
	}
	for _, cause := range []error{ErrSilent, ErrStandby, ErrMapTooLarge, errOvertaken, errNotCHP, errNoSubscription} {
		if errors.Is(err, cause) {
			return cause.Error()
		}
	}
	return err.Error()
}
