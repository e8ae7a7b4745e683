package store

// MaxShards is the number of tables of an index at most: while one grows, its entries are copied,
// and a part of a large map takes less time than all of it.
const MaxShards = 256

// applyBatch is the number of records that Apply copies and links at a time: few enough
// that the copies are still in the first-level cache when they are linked.
const applyBatch = 64

// linkGroup is the number of records that take the last two steps of link together: enough
// that a load from memory is over when the first of them takes the last step, and few
// enough that the lines are still in the first-level cache.
const linkGroup = 16

// compactPace is the number of bytes checked or copied for each appended byte. Above
// log.limit at most two thirds of the log are live, and so at most two thirds of the
// emptiest segment: checking three bytes of it and copying two frees one, and the log
// stops growing. With keys that change evenly a victim is emptier than the average, and
// less than half of this is needed.
const compactPace = 5

// compactAhead is the number of live records from which compactStep checks no further
// block before it moves them.
const compactAhead = 32

// blocksAhead is the distance in blocks at which compactStep prefetches the records that
// it reads.
const blocksAhead = 2

// compactEvery is the number of calls of the writer between two checks whether there is
// anything to compact.
const compactEvery = 16

// TidyPortion is the number of bytes that Tidy is to check under one hold of a mutex.
const TidyPortion = 256 << 10

const (
	// defaultSegment is the size of a store's first segment. It is small because a process
	// may have thousands of stores with a few keys each.
	defaultSegment = 16 << 10

	// slackSegments is the number of segments of dead records that the log may have in
	// addition to those in proportion to its live bytes, before compaction begins. Together
	// they have at most maxSlack/2 bytes.
	slackSegments = 8
	// maxSlack is up to how many bytes the log may have as many dead as live ones.
	maxSlack = 4 * maxSegment

	// reclaimEvery is the number of calls after which retired segments are checked even if
	// no new segment is needed, so that memory is freed after many deletions.
	reclaimEvery = 64
)

// headAhead is the distance in bytes at which putPending prefetches the memory of a record
// to come. Writing there would wait for it, and the atomic stores wait for the writes.
const headAhead = 512

// pendingFrom is the number of live bytes from which records are left pending. A smaller
// map is in the cache.
const pendingFrom = 1 << 20

// maxSegment bounds an ordinary segment: an offset has segmentBits.
const maxSegment = 1 << segmentBits

// ownSegment is the size from which a record that does not fit in the head gets a
// segment of its own, so that the rest of the head is not wasted.
const ownSegment = maxSegment / 4

const (
	// hugePage is the size of a huge page.
	hugePage = 2 << 20
	// hugeSegment is the size of a segment, and hugeTable that of a table in a log of at
	// least hugeLog bytes, from which it should be in a huge page. Segments of that size
	// are those of such a log.
	hugeSegment = 256 << 10
	hugeTable   = 32 << 10
	hugeLog     = hugePage
)

// releaseFrom is the size from which releasing a segment is worth a system call.
const releaseFrom = 64 << 10
