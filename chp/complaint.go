package chp

import (
	"errors"
	"log/slog"
	"net"
	"syscall"
	"time"
)

// A client tries an unreachable server twice a second, and a passive server the active one
// 20 times. A cause is logged when it first
// occurs, and then at intervals that double, with the number of failures since.
const (
	complaintFirst = 5 * time.Second
	complaintMost  = 5 * time.Minute
	maxComplaints  = 64 // servers and causes
)

// complain logs why a session, or an attempt at one, ended, unless the same cause was
// logged recently.
func (c *Client) complain(s *session, err error, next int) {
	log, omitted := c.complaints.Due(s.server.name, causeOf(err), time.Now())
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
	c.links.warned = true
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
