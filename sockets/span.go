package sockets

// Span is one whole message inside the octets of a [Batch]: the half-open range
// Start..End of [Batch.Wire].
type Span struct {
	Start, End uint32

	// Tag is free for [Options.Prepare], which runs in the goroutine that read
	// the message: whatever it computes there (a hash, flags) is at hand for
	// the receiver of the batch without touching the octets again.
	Tag uint64
}
