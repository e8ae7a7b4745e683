package buf

// Sizes of pooled chunks, in bytes.
const (
	// Large is the size that a connection reads into: large enough that the
	// system call costs little per message, small enough to stay in the
	// second-level cache between the kernel's copy and the decoder.
	Large = 128 << 10

	// Small is the size that messages of a quiet connection are copied into,
	// so that a queue of a few bytes does not keep a Large chunk.
	Small = 4 << 10
)
