package route

import "clustermap/zmtp"

// ReplyEnvelope parses the envelope of a reply: an optional request ID of four
// bytes and the empty delimiter frame, with at least one more frame after it.
// skip is the size of the envelope.
func ReplyEnvelope(m zmtp.WireMessage) (id []byte, skip int, ok bool) {
	first, rest := m.Next()
	if len(first) == 4 && len(rest) > 0 {
		id = first
		first, rest = rest.Next()
	}
	return id, len(m) - len(rest), len(first) == 0 && len(rest) > 0
}

// RequestEnvelope returns the size of a request's envelope: the frames up to
// and including the first empty one, after which there must be at least one
// more. It returns 0 if m is not a request.
func RequestEnvelope(m zmtp.WireMessage) int {
	for rest := m; len(rest) > 0; {
		var frame []byte
		if frame, rest = rest.Next(); len(frame) == 0 && len(rest) > 0 {
			return len(m) - len(rest)
		}
	}
	return 0
}
