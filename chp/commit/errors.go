package commit

import (
	"errors"
	"fmt"
)

// Errors of a log. They are wrapped, with the file and the system's error; use
// [errors.Is].
var (
	// ErrLocked means that another process has the log open.
	ErrLocked = errors.New("log: another process has it open")
	// ErrReadOnly means that the file system or the permissions do not allow writing.
	ErrReadOnly = errors.New("log: not writable")
	// ErrFull means that the disk, or the user's quota, is full.
	ErrFull = errors.New("log: disk full")
	// ErrFailed means that a write or a flush failed. It is permanent until the log is
	// opened again: a failed flush leaves the contents of the disk unknown, and a second
	// flush can succeed without writing the data that the first one lost. Replay copies
	// such data to new files.
	ErrFailed = errors.New("log: failed")
	// ErrClosed means that the log or the group was closed.
	ErrClosed = errors.New("log: closed")
	// ErrNotReplayed means that Replay must be called first.
	ErrNotReplayed = errors.New("log: not replayed")
	// ErrOrder means that an entry does not follow the last one, or that an index is
	// outside of the log.
	ErrOrder = errors.New("log: index out of order")
	// ErrGone means that an entry was removed after a checkpoint.
	ErrGone = errors.New("log: entry was removed by a checkpoint")
	// ErrTooLarge means that an entry exceeds MaxEntryBytes.
	ErrTooLarge = errors.New("log: entry too large")
	// ErrUnreadable means that a file or directory cannot be read, because of its
	// permissions or because the disk reports an error.
	ErrUnreadable = errors.New("log: cannot read")
	// ErrFormat means that something was written by a newer version of this program. The
	// error is a [*FormatError].
	ErrFormat = errors.New("log: written by a newer version")
)

// A FormatError says that something was written by a newer version of this program: a
// file, an entry, or a message of the other server of a pair. It is not damage. It is
// [ErrFormat] for [errors.Is].
type FormatError struct {
	What    string // what has the version, such as the name of a file
	Unit    string // what is numbered: "format" of a file, "kind" of an entry, "protocol" of a message
	Version uint32 // the number found
	Newest  uint32 // the newest number that this program knows
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("log: %s was written by a newer version (%s %d; this program reads up to %d)", e.What, e.Unit, e.Version, e.Newest)
}

// Is reports whether target is ErrFormat.
func (e *FormatError) Is(target error) bool { return target == ErrFormat }

// A CorruptError describes damage other than the torn end of the last write: entries
// that were once on disk cannot be read, or are missing.
type CorruptError struct {
	File     string // the damaged file, or the one where the log ends too early
	Offset   int64  // of the first unreadable byte
	LastGood uint64 // index of the last readable entry before it
	Lost     uint64 // index of the last entry known to have been on the disk, 0 if unknown
	Reason   error
}

func (e *CorruptError) Error() string {
	if e.File == "" { // see Log.Replay
		return fmt.Sprintf("log: corrupt: %v", e.Reason)
	}
	s := fmt.Sprintf("log: corrupt: %s at offset %d, last readable entry %d", e.File, e.Offset, e.LastGood)
	if e.Lost > 0 {
		s += fmt.Sprintf(" of at least %d", e.Lost)
	}
	return fmt.Sprintf("%s: %v", s, e.Reason)
}

func (e *CorruptError) Unwrap() error { return e.Reason }

// MarshalText returns the text of Error.
func (e *CorruptError) MarshalText() ([]byte, error) { return []byte(e.Error()), nil }
