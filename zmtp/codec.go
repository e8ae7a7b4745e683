package zmtp

// Codec translates between plain ZMTP 3 frames, as used by [Decoder] and
// [AppendMessage], and the bytes on one connection: the MESSAGE commands of
// CURVE, or the framing of an older ZMTP version. [Handshake.Codec] returns it.
// Most connections carry plain frames and have no Codec.
//
// Encode and Decode may be called concurrently with each other, but each only
// by one goroutine at a time. An error is a [*ProtocolError] and is final for
// its direction: the connection must be closed.
type Codec interface {
	// Encode appends the encoded form of frames to dst. frames holds complete
	// frames, of messages and commands, in ZMTP 3 framing. All bytes returned
	// must be sent, in the order of the calls. Encode neither keeps nor changes
	// frames, which must not overlap the unused capacity of dst.
	//
	// Encode does not allocate if dst has enough capacity; see MaxEncoded. The
	// error matches ErrMalformed if frames does not hold complete frames, and
	// ErrTooLarge if the connection cannot carry them.
	Encode(dst, frames []byte) ([]byte, error)
	// MaxEncoded returns an upper bound on the number of bytes that Encode
	// appends for count frames of size bytes in total, including headers.
	MaxEncoded(size, count int) int
	// Decode decodes complete units at the start of wire, which holds the bytes
	// received and not used yet, and appends the resulting frames to dst. It
	// stops when no complete unit is left, or when it has appended at least
	// limit bytes. used is the number of bytes of wire that the caller must
	// drop. need is the number of bytes that wire[used:] must hold before the
	// next unit can be complete, as far as known, and is at least 1. The peer
	// has announced that number, so the caller should not allocate as much
	// before the bytes arrive; it never exceeds the codec's [Limits] by much.
	//
	// out ends with a complete frame, but possibly within a message. Decode
	// does not keep wire, but may change wire[:used], which must not overlap
	// the unused capacity of dst. If err is not nil, out holds the frames
	// before the fault, which may still be delivered.
	Decode(dst, wire []byte, limit int) (out []byte, used, need int, err error)
}
