package zmtp

// Codec translates between ZMTP 3 frames in plain wire form, as a [Decoder]
// takes and [AppendMessage] makes them, and what one connection carries
// instead: CURVE's MESSAGE commands, or the framing of an older peer. A
// handshake hands one over when it is done ([Handshake.Codec]); most
// connections, those that carry plain frames, have none.
//
// A Codec serves one connection. Each direction belongs to one goroutine at a
// time; Encode and Decode may run at once, in two. An error is a
// [*ProtocolError] and final for its direction: the connection must be closed.
type Codec interface {
	// Encode appends to dst what the connection carries for frames, which
	// holds whole frames, of messages and commands, in ZMTP 3 form. Every
	// byte returned must be sent, in the order of the calls. frames is
	// neither kept nor written to and must not overlap the room behind dst.
	//
	// With dst roomy enough nothing is allocated; MaxEncoded tells how much
	// is enough. An error Is ErrMalformed if frames does not hold whole
	// frames, or ErrTooLarge for what the connection cannot carry.
	Encode(dst, frames []byte) ([]byte, error)
	// MaxEncoded is an upper bound on what Encode appends for count frames
	// of size bytes altogether, headers included.
	MaxEncoded(size, count int) int
	// Decode takes whole units from the start of wire, the bytes received
	// and not used yet, and appends the frames they stand for to dst. It
	// stops when no whole unit is left, or once dst has grown by limit
	// bytes or more. used is how many bytes of wire the caller must drop.
	// need is how many bytes wire must hold, counted from wire[used:], before
	// the next unit can be whole, as far as known; at least 1. It is what
	// the peer announced, so nothing that large should be allocated before
	// the bytes arrive; but it is bounded by the codec's [Limits].
	//
	// What is appended holds whole frames only, but may end within a
	// message. wire is not kept; the bytes of wire[:used] may be changed
	// in place; they must not overlap the room behind dst. With an error,
	// out holds the frames before the fault, and they may still be delivered.
	Decode(dst, wire []byte, limit int) (out []byte, used, need int, err error)
}
