package zmtp

// oldCodec is the [Codec] of a connection to a peer of ZMTP 1.0 or 2.0.
//
// Such a peer does not understand commands. SUBSCRIBE and CANCEL are replaced
// by messages (see RFC 23, or RFC 37, "Subscriptions"). Other commands are
// omitted; the peer could not answer a PING, for example.
//
// A frame that exceeds the limits is refused as soon as its header has arrived.
type oldCodec struct {
	parse func(b []byte) (h header, ok bool, err error)
	begin func(dst []byte, flags byte, body int) []byte

	max int   // bytes of a frame's body
	err error // the first decoding error, which is final
}

var _ Codec = (*oldCodec)(nil)

// newOldCodec returns the codec for a peer that speaks v, which is not zmtp3.
func newOldCodec(v wireVersion, maxFrame int) *oldCodec {
	if v == zmtp20 {
		return &oldCodec{parse: parseHeader2, begin: AppendHeader, max: maxFrame}
	}
	return &oldCodec{parse: parseHeader1, begin: appendHeader1, max: maxFrame}
}

// MaxEncoded allows for the headers of ZMTP 1.0, which may have 8 bytes more
// than those of ZMTP 3, for a body of 254 or 255 bytes.
func (c *oldCodec) MaxEncoded(size, count int) int {
	return size + (longHeader1-shortHeader)*count
}

// Encode appends frames in the old framing. It fails if frames are not
// complete.
func (c *oldCodec) Encode(dst, frames []byte) ([]byte, error) {
	for len(frames) > 0 {
		h, ok, huge := parseHeader(frames)
		if !ok || huge || len(frames)-h.size < h.body {
			return dst, malformed("encode", "not whole frames")
		}
		body := frames[h.size : h.size+h.body]
		frames = frames[h.size+h.body:]
		if h.flags&FlagCommand != 0 {
			var err error
			if dst, err = c.encodeCommand(dst, body); err != nil {
				return dst, err
			}
			continue
		}
		dst = c.begin(dst, h.flags&FlagMore, len(body))
		dst = append(dst, body...)
	}
	return dst, nil
}

// encodeCommand appends the message that replaces a command, if there is one.
func (c *oldCodec) encodeCommand(dst, body []byte) ([]byte, error) {
	command, err := ParseCommand(body)
	if err != nil {
		return dst, err
	}
	var first byte
	switch string(command.Name) {
	case CommandSubscribe:
		first = 1
	case CommandCancel:
	default:
		return dst, nil
	}
	dst = append(c.begin(dst, 0, 1+len(command.Data)), first)
	return append(dst, command.Data...), nil
}

// Decode appends the frames in wire in ZMTP 3 framing.
func (c *oldCodec) Decode(dst, wire []byte, limit int) (out []byte, used, need int, err error) {
	for start := len(dst); c.err == nil; {
		h, ok, err := c.parse(wire[used:])
		switch {
		case err != nil:
			c.err = err
		case !ok:
			return dst, used, h.size, nil
		case h.body > c.max:
			c.err = tooLarge("decode", "message above MaxMessage")
		case len(wire)-used-h.size < h.body:
			return dst, used, h.size + h.body, nil
		case len(dst)-start >= limit && used > 0:
			return dst, used, h.size + h.body, nil
		default:
			dst = AppendHeader(dst, h.flags, h.body)
			dst = append(dst, wire[used+h.size:used+h.size+h.body]...)
			used += h.size + h.body
		}
	}
	return dst, used, 1, c.err
}
