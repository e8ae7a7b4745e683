package follow

import (
	"errors"
	"log/slog"
	"net"
	"syscall"
	"time"

	"clustermap/internal/lograte"
)

// Complaints returns a limiter for the causes of failures.
func Complaints() *lograte.Limiter {
	return &lograte.Limiter{First: complaintFirst, Most: complaintMost, Size: maxComplaints}
}

// complain logs why a session, or an attempt at one, ended, unless the same cause was
// logged recently.
func (f *Follower) complain(s *Session, err error, next int) {
	log, omitted := f.complaints.Due(s.server.Name, Cause(err), time.Now())
	if !log {
		return
	}
	attrs := []any{"server", s.server.Name, "error", err, "next", f.opts.Servers[next].Name}
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
	f.opts.Log.Warn(text, attrs...)
	f.links.warned = true
}

// Cause returns the text of the root cause of a failure, without the addresses
// and ports that differ each time.
func Cause(err error) string {
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
	for _, cause := range []error{ErrSilent, ErrStandby, ErrMapTooLarge, ErrOvertaken, ErrNotCHP, errNoSubscription} {
		if errors.Is(err, cause) {
			return cause.Error()
		}
	}
	return err.Error()
}
