package commit

import (
	"errors"
	"fmt"
)

// Errors of a log. They come wrapped, with the file and the system's error;
// ask with [errors.Is].
var (
	// ErrLocked says that another process has the log open.
	ErrLocked = errors.New("log: another process has it open")
	// ErrReadOnly says that the file system or the permissions do not allow to
	// write.
	ErrReadOnly = errors.New("log: not writable")
	// ErrFull says that the disk, or the user's share of it, is full.
	ErrFull = errors.New("log: disk full")
	// ErrFailed says that a write or a flush failed. It is final: the log takes
	// nothing more until it is opened again, because after a failed flush nobody
	// knows what is on the disk, and a second flush can succeed without
	// writing what the first one lost.
	ErrFailed = errors.New("log: failed")
	// ErrClosed says that the log or the group was closed.
	ErrClosed = errors.New("log: closed")
	// ErrNotReplayed says that the log has to be replayed first.
	ErrNotReplayed = errors.New("log: not replayed")
	// ErrOrder says that an entry does not follow the last one, or that an
	// index is outside of the log.
	ErrOrder = errors.New("log: index out of order")
	// ErrGone says that an entry was removed after a checkpoint.
	ErrGone = errors.New("log: entry was removed by a checkpoint")
	// ErrTooLarge says that an entry is larger than a log takes.
	ErrTooLarge = errors.New("log: entry too large")
	// ErrFormat says that the files were written by a version of this program
	// whose format this one does not know.
	ErrFormat = errors.New("log: unknown format")
)

// A CorruptError tells of damage that is not the torn end of the last write:
// entries that were once on the disk cannot be read.
type CorruptError struct {
	File     string // the damaged file
	Offset   int64  // where in the file the first unreadable byte is
	LastGood uint64 // index of the last readable entry before it
	Lost     uint64 // index of the last entry known to have been on the disk, 0 if unknown
	Reason   error
}

func (e *CorruptError) Error() string {
	s := fmt.Sprintf("log: corrupt: %s at offset %d, last readable entry %d", e.File, e.Offset, e.LastGood)
	if e.Lost > 0 {
		s += fmt.Sprintf(" of at least %d", e.Lost)
	}
	return fmt.Sprintf("%s: %v", s, e.Reason)
}

func (e *CorruptError) Unwrap() error { return e.Reason }
