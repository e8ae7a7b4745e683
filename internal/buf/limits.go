package buf

import "time"

// Sizes of pooled chunks, in bytes.
const (
	// Large is the size that a connection reads into: large enough that the
	// system call costs little per message, small enough to stay in the
	// second-level cache between the kernel's copy and the decoder.
	Large = 128 << 10

	// Small is the size that messages of a quiet connection are copied into,
	// so that a queue of a few bytes does not keep a Large chunk.
	Small = 4 << 10

	// Largest is the size of the largest pooled chunk: a message of 16 MiB with its
	// headers, and what is read beyond it.
	Largest = 16<<20 + Large

	// page is the unit in which Go allocates large objects.
	page = 8 << 10

	// mostGiven bounds the bytes that a garbage collection turns into exact chunks, for
	// all sockets together: several times what is allocated between two collections of a small
	// program, which is 4 MiB, so that most messages find a chunk.
	mostGiven = 32 << 20
)

// A program that allocates reserveStep bytes for messages in stepTime, 32 MiB a second, gets a
// reserve of reserveSize, unless it may use less than reserveLimit bytes (GOMEMLIMIT). Without the
// reserve its heap would be collected a dozen times a second and more.
const (
	reserveStep  = 8 << 20
	stepTime     = 250 * time.Millisecond
	reserveSize  = 8 << 20
	reserveLimit = 256 << 20
)
