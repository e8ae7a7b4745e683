package commit

import (
	"fmt"
	"strings"
	"time"
)

// A Policy says when a [Group] flushes the log, and so which updates a crash can lose.
// The zero value is Interval(DefaultInterval).
//
//	policy        process killed            machine stops or loses power
//	always        no acknowledged update    no acknowledged update
//	interval=D    unwritten updates         the updates of the last D and of one flush
//	never         unwritten updates         updates in the system's cache, usually those
//	                                        of the last 30 seconds
//
// Unwritten updates are those that arrived during the previous write: milliseconds on
// a disk that is not overloaded, and never more than [GroupOptions.Bytes]. A disk that gets
// full loses none of them: see [Reserver]. With every policy a crash leaves a prefix of the
// appended updates, without gaps.
type Policy struct {
	kind     policyKind
	interval time.Duration
}

type policyKind uint8

const (
	byInterval policyKind = iota
	always
	never
)

// Always flushes after every write. An entry is reported as durable only when it is on
// disk, so nothing that was reported can be lost.
func Always() Policy { return Policy{kind: always} }

// Never leaves flushing to the system, except for checkpoints, after 256 MiB, and when the
// log is closed.
func Never() Policy { return Policy{kind: never} }

// Interval flushes at intervals of d while there is unflushed data. If d is 0 or less,
// it means DefaultInterval.
func Interval(d time.Duration) Policy {
	if d == DefaultInterval || d < 0 {
		d = 0 // so that equal policies compare equal
	}
	return Policy{interval: d}
}

// ParsePolicy parses the result of String: always, never, or interval=D with a duration
// such as 100ms. The word interval alone means the default.
func ParsePolicy(s string) (Policy, error) {
	switch s {
	case "always":
		return Always(), nil
	case "never":
		return Never(), nil
	case "interval":
		return Policy{}, nil
	}
	if text, found := strings.CutPrefix(s, "interval="); found {
		d, err := time.ParseDuration(text)
		if err != nil {
			return Policy{}, fmt.Errorf("interval %q is not a duration such as 100ms", text)
		}
		if d <= 0 {
			return Policy{}, fmt.Errorf("interval %s is not positive", text)
		}
		return Interval(d), nil
	}
	return Policy{}, fmt.Errorf("%q is none of always, never and interval=DURATION", s)
}

// Every returns the interval of an interval policy, and 0 for the others.
func (p Policy) Every() time.Duration {
	switch {
	case p.kind != byInterval:
		return 0
	case p.interval == 0:
		return DefaultInterval
	}
	return p.interval
}

// IsAlways reports whether the policy is Always: whether a server must wait for the
// disk before it publishes.
func (p Policy) IsAlways() bool { return p.kind == always }

func (p Policy) String() string {
	switch p.kind {
	case always:
		return "always"
	case never:
		return "never"
	}
	return "interval=" + p.Every().String()
}

// MarshalText returns the result of String, for [flag.TextVar].
func (p Policy) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText is like ParsePolicy, for [flag.TextVar].
func (p *Policy) UnmarshalText(text []byte) error {
	q, err := ParsePolicy(string(text))
	if err == nil {
		*p = q
	}
	return err
}
