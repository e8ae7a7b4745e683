package commit

import "time"

// KindRecords is the kind of entry that holds updates.
const KindRecords = 0

// Kinds of entries in the log of a node of a cluster (see clustermap/chp/cluster), which are
// about the cluster and not about the map.
const (
	// KindEmpty is the kind of an entry without records: the log of a new node begins with one,
	// and so does each term of a leader.
	KindEmpty uint32 = 1<<16 + iota
	// KindChange is the kind of a change of the members.
	KindChange
	// KindMembers is the kind of the first entry of a checkpoint, which has the members.
	KindMembers
)

// OfCluster reports whether an entry is about a cluster and not about the map. A node needs
// it; a backup that is restored becomes that of another server, or of another cluster.
func (e *Entry) OfCluster() bool { return e.Kind >= KindEmpty && e.Kind <= KindMembers }

// An Entry is one batch of updates, and the unit that a [Log] appends, reads and
// verifies. Batches of about 100 KiB are best: all costs of a log except copying and
// checksums are per entry.
type Entry struct {
	// Index is the position in the log. Indexes are consecutive; the first is 1.
	// Each entry of a checkpoint has the index of the checkpoint.
	Index uint64
	// Epoch identifies the reign of the server that made the batch.
	Epoch uint64
	// First is the sequence of the first update, and Count the number of updates.
	First uint64
	Count uint32
	// Kind is the kind of Records. KindRecords means a batch of updates; the server may
	// use other values for itself. A log only stores the kind.
	Kind uint32
	// Time is the wall clock time at which the batch was made, in nanoseconds since
	// 1970.
	Time int64
	// Records has the updates in wire form. A log does not keep the slice after its
	// method returns. A function that a log calls with an entry must not keep the
	// slice.
	Records []byte
	// Parts has more records, which follow those in Records. Only a [Gatherer] gets entries
	// with parts; entries that a log reads have none. What is said of Records holds for them.
	Parts [][]byte
}

// RecordBytes returns the size of all records.
func (e *Entry) RecordBytes() int {
	n := len(e.Records)
	for _, p := range e.Parts {
		n += len(p)
	}
	return n
}

// When returns Time as a time.Time.
func (e *Entry) When() time.Time { return time.Unix(0, e.Time) }
