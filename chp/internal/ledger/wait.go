package ledger

import (
	"cmp"
	"errors"
	"fmt"

	"clustermap/internal/kvmsg"
)

// The outcomes of an update that is not in the map, or of which that is not known. The
// package chp documents them.
var (
	ErrUncertain = errors.New("chp: the update was sent and did not come back")
	ErrRefused   = errors.New("chp: the server refused the update")
)

// refusedErrors are allocated once, because any number of updates can be refused.
var refusedErrors = func() (errs [kvmsg.ReasonCount]error) {
	for r := range errs {
		errs[r] = fmt.Errorf("%w: %w", ErrRefused, &kvmsg.MessageError{Reason: kvmsg.Reason(r)})
	}
	errs[kvmsg.ReasonAccess] = fmt.Errorf("%w: %w", ErrRefused, &kvmsg.AccessError{Verb: kvmsg.VerbWrite})
	return errs
}()

// RefusedFor returns the error for an update that the server refused.
func RefusedFor(r kvmsg.Reason) error {
	switch {
	case int(r) < kvmsg.ReasonCount:
		return refusedErrors[r]
	case r == SkipUnknown:
		return ErrRefused
	}
	return fmt.Errorf("%w: %w", ErrRefused, &kvmsg.MessageError{Reason: r})
}

// OverLimit returns the error for a value that is not sent, because the server would refuse
// it: its limit is so many bytes.
func OverLimit(limit int) error {
	return fmt.Errorf("%w: %w", ErrRefused, &kvmsg.MessageError{Reason: kvmsg.ReasonValueTooLarge, Detail: fmt.Sprintf("over the server's limit of %d bytes", limit)})
}

// Wait is a wait for one update, or for all up to one. Done is closed when it ends; then
// Result says how. In a Group only the group ends.
type Wait struct {
	Done chan struct{}

	seq   int64
	err   error
	n     uint64
	all   bool // for all updates up to n
	lost  Losses
	group *Group
}

// Group is a wait for several updates. Done is closed when all are settled; then Seq is
// the highest sequence, and Lost has the errors.
type Group struct {
	Done chan struct{}
	Seq  int64
	Lost Losses
	left int
}

// NewWait returns a wait for one update.
func NewWait() *Wait { return &Wait{Done: make(chan struct{})} }

// NewGroup returns a wait for n updates, and the wait for each of them.
func NewGroup(n int) (*Group, []Wait) {
	g := &Group{Done: make(chan struct{}), left: n}
	waits := make([]Wait, n)
	for i := range waits {
		waits[i].group = g
	}
	return g, waits
}

// Number returns the number of the update, or 0 if it was not staged. A number above
// Account.Sent can become lower later.
func (w *Wait) Number() uint64 { return w.n }

// Result returns the update's sequence, or the error. Done must be closed.
func (w *Wait) Result() (seq int64, err error) { return w.seq, w.err }

func (w *Wait) finish(seq int64, err error) {
	g := w.group
	if g == nil {
		w.seq, w.err = seq, err
		close(w.Done)
		return
	}
	g.Seq = max(g.Seq, seq)
	if err != nil {
		g.Lost.add(err)
	}
	if g.left--; g.left == 0 {
		close(g.Done)
	}
}

// Losses holds why updates were lost: the last error of each kind.
type Losses struct{ uncertain, refused, other error }

// add adds an error.
func (l *Losses) add(err error) {
	switch {
	case errors.Is(err, ErrUncertain):
		l.uncertain = err
	case errors.Is(err, ErrRefused):
		l.refused = err
	default:
		l.other = err
	}
}

func (l *Losses) merge(with Losses) {
	l.uncertain = cmp.Or(with.uncertain, l.uncertain)
	l.refused = cmp.Or(with.refused, l.refused)
	l.other = cmp.Or(with.other, l.other)
}

// Err returns the errors, joined, or nil.
func (l *Losses) Err() error {
	var some []error
	for _, err := range []error{l.uncertain, l.refused, l.other} {
		if err != nil {
			some = append(some, err)
		}
	}
	if len(some) == 1 {
		return some[0]
	}
	return errors.Join(some...)
}
