package lograte

import (
	"errors"
	"net"
	"syscall"
)

// Failures returns a limiter for the causes of failures of something that is tried again and
// again, such as to reach a server.
func Failures() *Limiter {
	return &Limiter{First: failureFirst, Most: failureMost, Size: maxFailures}
}

// Cause returns the text of the root cause of a failure, without the addresses and ports that
// differ each time: that of the system, of the name service, or of the first of some errors
// that it wraps.
func Cause(err error, some ...error) string {
	var number syscall.Errno
	var name *net.DNSError
	switch {
	case errors.As(err, &number):
		return number.Error()
	case errors.As(err, &name):
		return name.Err
	}
	for _, cause := range some {
		if errors.Is(err, cause) {
			return cause.Error()
		}
	}
	return err.Error()
}
