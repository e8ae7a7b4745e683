package zmtp

import "encoding/binary"

// Names of the commands that RFC 37 defines for NULL and for traffic.
const (
	CommandReady     = "READY"
	CommandError     = "ERROR"
	CommandSubscribe = "SUBSCRIBE"
	CommandCancel    = "CANCEL"
	CommandPing      = "PING"
	CommandPong      = "PONG"
)

// MaxPingContext is the largest context of a PING in bytes (RFC 37,
// Connection Heartbeating).
const MaxPingContext = 16

// Command is a parsed command. Both fields are views of the body that was
// parsed.
type Command struct {
	Name []byte // 1 to 255 bytes
	Data []byte // what follows the name; its form depends on the command
}

// CommandBody returns the body of a command frame, as [Decoder.Next] returned
// it with KindCommand: header and body, nothing else. It returns nil for
// bytes that are not one whole frame.
func CommandBody(frame []byte) []byte {
	h, ok, huge := parseHeader(frame)
	if !ok || huge || len(frame)-h.size != h.body {
		return nil
	}
	return frame[h.size:]
}

// ParseCommand takes a command's body apart into name and data. The name may
// be one that this package does not know; libzmq drops such commands silently,
// and so should others. The error Is ErrMalformed.
func ParseCommand(body []byte) (Command, error) {
	if len(body) == 0 || body[0] == 0 {
		return Command{}, malformed("command", "no name")
	}
	end := 1 + int(body[0])
	if end > len(body) {
		return Command{}, malformed("command", "name cut short")
	}
	return Command{Name: body[1:end:end], Data: body[end:]}, nil
}

// AppendCommand appends a command frame with the given name, of 1 to 255
// bytes, and data.
func AppendCommand(dst []byte, name string, data []byte) []byte {
	dst = appendCommandStart(dst, name, len(data))
	return append(dst, data...)
}

// appendCommandStart appends all of a command frame that comes before size
// bytes of data.
func appendCommandStart(dst []byte, name string, size int) []byte {
	dst = AppendHeader(dst, FlagCommand, 1+len(name)+size)
	dst = append(dst, byte(len(name)))
	return append(dst, name...)
}

// AppendSubscribe appends a SUBSCRIBE frame: send what begins with topic. For
// peers of ZMTP 3.1; a 3.0 peer wants a message of 01 and the topic instead.
func AppendSubscribe(dst, topic []byte) []byte {
	return AppendCommand(dst, CommandSubscribe, topic)
}

// AppendCancel appends a CANCEL frame, the end of a subscription. For peers of
// ZMTP 3.1; a 3.0 peer wants a message of 00 and the topic instead.
func AppendCancel(dst, topic []byte) []byte {
	return AppendCommand(dst, CommandCancel, topic)
}

// AppendPing appends a PING frame. ttl is in tenths of a second, 0 for none:
// how long the peer shall wait for further bytes before it gives us up.
// context comes back in the PONG; of it at most 16 bytes are sent.
func AppendPing(dst []byte, ttl uint16, context []byte) []byte {
	context = context[:min(len(context), MaxPingContext)]
	dst = appendCommandStart(dst, CommandPing, 2+len(context))
	dst = binary.BigEndian.AppendUint16(dst, ttl)
	return append(dst, context...)
}

// AppendPong appends the PONG frame that answers a PING with the given
// context. Of a longer context, which RFC 37 forbids, it echoes the first 16
// bytes, as libzmq does.
func AppendPong(dst, context []byte) []byte {
	return AppendCommand(dst, CommandPong, context[:min(len(context), MaxPingContext)])
}

// AppendError appends an ERROR frame. A reason over 255 bytes is cut.
func AppendError(dst []byte, reason string) []byte {
	reason = reason[:min(len(reason), maxShort)]
	dst = appendCommandStart(dst, CommandError, 1+len(reason))
	dst = append(dst, byte(len(reason)))
	return append(dst, reason...)
}

// ParsePing takes the data of a PING apart. ttl is in tenths of a second, 0
// for none; context, a view, is what the PONG must echo ([AppendPong] does
// the cutting of one that is too long). A PING without a whole ttl Is
// ErrMalformed.
func ParsePing(data []byte) (ttl uint16, context []byte, err error) {
	if len(data) < 2 {
		return 0, nil, malformed("command", "PING without ttl")
	}
	return binary.BigEndian.Uint16(data), data[2:], nil
}

// ParseError returns the reason, possibly empty and of any bytes, in the data
// of an ERROR. The error Is ErrMalformed.
func ParseError(data []byte) (reason string, err error) {
	if len(data) == 0 || int(data[0]) != len(data)-1 {
		return "", malformed("command", "size of the reason of an ERROR")
	}
	return string(data[1:]), nil
}
