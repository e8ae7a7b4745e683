package commit

import "time"

// DefaultGroupBytes is the default of GroupOptions.Bytes.
const DefaultGroupBytes = 16 << 20

// MaxEntryBytes is the maximum size of the records of one entry.
const MaxEntryBytes = 64 << 20

// flushBytes is how much is written without a flush at most, about. The files of a log stay
// open until they are flushed.
const flushBytes = 256 << 20

// entryBytes is the size of an entry without its records, so that a bound in bytes also
// bounds empty entries.
const entryBytes = 64

// EntrySpace is the most that an entry takes in a log beside its records, in bytes, together
// with what is written once for all entries of an Append.
const EntrySpace = 256

// DefaultInterval is the interval of the default policy.
const DefaultInterval = 100 * time.Millisecond
