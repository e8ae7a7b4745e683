package buf

// Span is the range of one whole message in a byte slice: from Start up to, but not
// including, End.
type Span struct {
	Start, End uint32

	// Tag is for the code that decodes the messages: it can store a hash or flags there
	// for the receiver, which then need not read the bytes again.
	Tag uint64
}

// Extent returns the number of bytes from the start of the first span to the end of the
// last.
func Extent(spans []Span) int {
	if len(spans) == 0 {
		return 0
	}
	return int(spans[len(spans)-1].End - spans[0].Start)
}
