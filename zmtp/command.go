package zmtp

import "encoding/binary"

// Names of the commands defined by RFC 37.
const (
	CommandReady     = "READY"
	CommandError     = "ERROR"
	CommandSubscribe = "SUBSCRIBE"
	CommandCancel    = "CANCEL"
	CommandPing      = "PING"
	CommandPong      = "PONG"
)

// Command is a parsed command. Both fields refer to the bytes that were parsed.
type Command struct {
	Name []byte // 1 to 255 bytes
	Data []byte // the rest of the body; its form depends on the command
}

// CommandBody returns the body of a command frame. frame must be exactly one
// frame, header and body, as returned by [Decoder.Next] with KindCommand;
// otherwise CommandBody returns nil.
func CommandBody(frame []byte) []byte {
	h, ok, huge := parseHeader(frame)
	if !ok || huge || len(frame)-h.size != h.body {
		return nil
	}
	return frame[h.size:]
}

// ParseCommand splits the body of a command into name and data. The name may be
// unknown to this package; such commands should be ignored, as libzmq does. The
// error matches ErrMalformed.
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

// AppendCommand appends a command frame with the given name, of 1 to 255 bytes,
// and data to dst.
func AppendCommand(dst []byte, name string, data []byte) []byte {
	dst = appendCommandStart(dst, name, len(data))
	return append(dst, data...)
}

// appendCommandStart appends the part of a command frame that precedes size
// bytes of data.
func appendCommandStart(dst []byte, name string, size int) []byte {
	dst = AppendHeader(dst, FlagCommand, 1+len(name)+size)
	dst = append(dst, byte(len(name)))
	return append(dst, name...)
}

// AppendSubscribe appends a SUBSCRIBE frame for messages that begin with topic
// to dst. It is for peers that speak ZMTP 3.1 (see [Peer.TakesSubscribe]); to
// older peers, send a message of byte 1 and the topic instead.
func AppendSubscribe(dst, topic []byte) []byte {
	return AppendCommand(dst, CommandSubscribe, topic)
}

// AppendCancel appends a CANCEL frame, which ends a subscription to topic, to
// dst. It is for peers that speak ZMTP 3.1 (see [Peer.TakesSubscribe]); to
// older peers, send a message of byte 0 and the topic instead.
func AppendCancel(dst, topic []byte) []byte {
	return AppendCommand(dst, CommandCancel, topic)
}

// AppendPing appends a PING frame to dst. ttl, in tenths of a second, is the
// time after which the peer may close the connection if it has received nothing
// more; 0 means no limit. The peer returns context in its PONG; only the first
// 16 bytes of context are sent.
func AppendPing(dst []byte, ttl uint16, context []byte) []byte {
	context = context[:min(len(context), MaxPingContext)]
	dst = appendCommandStart(dst, CommandPing, 2+len(context))
	dst = binary.BigEndian.AppendUint16(dst, ttl)
	return append(dst, context...)
}

// AppendPong appends a PONG frame, the answer to a PING with the given context,
// to dst. Contexts of more than 16 bytes, which RFC 37 forbids, are cut to 16,
// as in libzmq.
func AppendPong(dst, context []byte) []byte {
	return AppendCommand(dst, CommandPong, context[:min(len(context), MaxPingContext)])
}

// AppendError appends an ERROR frame to dst. Only the first 255 bytes of reason
// are sent.
func AppendError(dst []byte, reason string) []byte {
	reason = reason[:min(len(reason), shortBody)]
	dst = appendCommandStart(dst, CommandError, 1+len(reason))
	dst = append(dst, byte(len(reason)))
	return append(dst, reason...)
}

// ParsePing parses the data of a PING. ttl is in tenths of a second, and 0
// means none. context refers to data and may be longer than allowed; pass it to
// [AppendPong]. The error matches ErrMalformed.
func ParsePing(data []byte) (ttl uint16, context []byte, err error) {
	if len(data) < 2 {
		return 0, nil, malformed("command", "PING without ttl")
	}
	return binary.BigEndian.Uint16(data), data[2:], nil
}

// ParseError returns the reason in the data of an ERROR. It may be empty and
// may contain any bytes. The error matches ErrMalformed.
func ParseError(data []byte) (reason string, err error) {
	if len(data) == 0 || int(data[0]) != len(data)-1 {
		return "", malformed("command", "size of the reason of an ERROR")
	}
	return string(data[1:]), nil
}
