package zmtp

// ZMTP 2.0 frames its messages as ZMTP 3 does and has no commands: bit 2 of the
// flags is reserved (RFC 15). A peer that sets it believes to speak to another
// version, and what it means as a command must not pass for a message.

// parseHeader2 reads the header of a ZMTP 2.0 frame at the start of b. With ok
// false bytes are missing; h.size then tells how many the header has, one
// byte being enough to know.
func parseHeader2(b []byte) (h header, ok bool, err error) {
	h, ok, huge := parseHeader(b)
	switch {
	case h.flags&FlagCommand != 0:
		return h, false, malformed("decode", "command from a ZMTP 2.0 peer")
	case huge:
		return h, false, tooLarge("decode", "size of a frame")
	case h.size == 0:
		h.size = shortHeader
	}
	h.flags &= FlagMore
	return h, ok, nil
}

// appendHeader2 appends the header of a ZMTP 2.0 frame.
func appendHeader2(dst []byte, more bool, body int) []byte {
	var flags byte
	if more {
		flags = FlagMore
	}
	return AppendHeader(dst, flags, body)
}
