package zmtp

// ZMTP 2.0 uses the same framing as ZMTP 3 but has no commands: bit 2 of the flags
// is reserved (RFC 15). We refuse frames that set it, because a peer that sets it
// sends a command of a later version, not a message.

// parseHeader2 parses the header of a ZMTP 2.0 frame at the start of b. If
// bytes are missing, ok is false and h.size is the size of the header.
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
