package buf

// Span is one whole message inside a run of bytes: the half-open range
// Start..End of them.
type Span struct {
	Start, End uint32

	// Tag is free for who reads the messages: whatever it computes there (a hash,
	// flags) is at hand for the receiver without touching the bytes again.
	Tag uint64
}
