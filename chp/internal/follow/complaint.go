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

// failed logs why a session, or an attempt at one, ended, unless the same cause was logged
// recently. joined reports whether the session had a snapshot; the next attempt is at the
// server next.
func (l *links) failed(server string, err error, joined bool, next string) {
	log, omitted := l.causes.Due(server, Cause(err), time.Now())
	if !log {
		return
	}
	attrs := []any{"server", server, "error", err, "next", next}
	if omitted > 0 {
		attrs = append(attrs, slog.Int("repeated", omitted))
	}
	text := "cannot follow the server"
	switch {
	case errors.Is(err, ErrUnreachable): // perhaps it is only starting
		text = "cannot reach the server"
	case joined:
		text = "lost the server"
	}
	l.log.Warn(text, attrs...)
	l.warned = true
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
