// Package option checks the fields of options and sets their defaults, the same way in
// all packages.
package option

import (
	"errors"
	"fmt"
	"time"
)

// Error describes one invalid field of the options of a package.
type Error struct {
	Package string // name, such as "sockets"
	Field   string // name, such as "SendBuffer" or "Security.CurveServerKey"
	Reason  string // the fault of its value
}

func (e *Error) Error() string { return e.Package + ": option " + e.Field + ": " + e.Reason }

// New returns an error for a field.
func New(pkg, field, format string, args ...any) error {
	return &Error{Package: pkg, Field: field, Reason: fmt.Sprintf(format, args...)}
}

// A Checker collects the errors of all invalid fields.
type Checker struct {
	Package string // as in Error

	errs []error
}

// Bad reports a field whose value is invalid.
func (c *Checker) Bad(field, format string, args ...any) {
	c.errs = append(c.errs, New(c.Package, field, format, args...))
}

// If reports a field if the condition holds.
func (c *Checker) If(bad bool, field, reason string) {
	if bad {
		c.Bad(field, "%s", reason)
	}
}

// Valid reports a field whose own check has failed.
func (c *Checker) Valid(field string, err error) {
	if err != nil {
		c.Bad(field, "%v", err)
	}
}

// Err returns the errors of all fields, joined by errors.Join, or nil.
func (c *Checker) Err() error { return errors.Join(c.errs...) }

// Forever is the longest time that an option needs. Unlike the longest time.Duration, it can
// be added to the time that a process has run, and doubled.
const Forever = 100 * 365 * 24 * time.Hour

// Default sets the default of a number, which must not be negative.
func Default[T int | int64 | time.Duration](c *Checker, field string, v *T, standard T) {
	c.If(*v < 0, field, "is negative")
	if *v == 0 {
		*v = standard
	}
}
