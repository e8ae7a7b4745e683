package majordomo

import (
	"errors"

	"clustermap/internal/text"
	"clustermap/zmtp"
)

// Version is a version of the Majordomo Protocol.
type Version uint8

const (
	// Version01, the default, is MDP/0.1 (RFC 7): one reply to each request.
	Version01 Version = iota
	// Version02 is MDP/0.2 (RFC 18): a reply may have several parts.
	Version02
)

func (v Version) String() string {
	return text.Of(v, "Version", "0.1", "0.2")
}

// MarshalText returns the text of String.
func (v Version) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// The header frames of commands. In 0.1 an empty frame comes first.
const (
	client01, worker01 = "MDPC01", "MDPW01"
	client02, worker02 = "MDPC02", "MDPW02"
)

// command is the kind of a message. The codes on the wire depend on the version.
type command uint8

const (
	request    command = iota + 1 // client to broker, broker to worker
	reply                         // the last or only reply; REPLY in 0.1, FINAL in 0.2
	partial                       // PARTIAL, 0.2 only
	ready                         // READY
	heartbeat                     // HEARTBEAT
	disconnect                    // DISCONNECT
	giveBack                      // gives back requests that were sent ahead; see extension.go
	notice                        // not a command: the connection has ended
)

// Codes of worker commands, by version.
var workerCodes = [2][]command{
	Version01: {1: ready, 2: request, 3: reply, 4: heartbeat, 5: disconnect, codeGiveBack: giveBack},
	Version02: {1: ready, 2: request, 3: partial, 4: reply, 5: heartbeat, 6: disconnect, codeGiveBack: giveBack},
}

// workerCode returns the code of a worker command.
func workerCode(v Version, c command) byte {
	for code, is := range workerCodes[v] {
		if is == c {
			return byte(code)
		}
	}
	panic("majordomo: " + v.String() + " has no such command")
}

// Codes of client commands in 0.2. In 0.1 there are none.
const (
	codeRequest02 = 1
	codePartial02 = 2
	codeFinal02   = 3
)

// ErrMalformed is the reason in sockets.Event for which a broker ended the connection of
// a peer that sent an invalid message (RFC 7, RFC 18).
var ErrMalformed = errors.New("majordomo: malformed message")

// packet is a decoded message. Its slices are views of the message.
type packet struct {
	command command
	version Version
	worker  bool // has the header of a worker

	// envelope has, in a client's request, the frames before the header of the reply, in
	// wire form: the client's number of the request, if any, and the empty frame, which
	// in 0.2 follows only a number. number is the number alone.
	envelope []byte
	number   []byte

	service []byte
	address []byte // of the client, between broker and worker
	count   []byte // of giveBack

	body zmtp.WireMessage // at least one frame, of a request or a reply
}

// next is Message.Next for a message that may be empty.
func next(m zmtp.WireMessage) (frame []byte, rest zmtp.WireMessage, ok bool) {
	if len(m) == 0 {
		return nil, nil, false
	}
	frame, rest = m.Next()
	return frame, rest, true
}

// parse decodes a message to the broker or from it. It returns false if the message is
// invalid.
func (p *packet) parse(m zmtp.WireMessage, toBroker bool) bool {
	*p = packet{}
	whole := m
	first, rest := m.Next()
	header := first
	switch {
	case len(first) == 0:
		if len(rest) == 0 {
			p.command = notice
			return true
		}
		p.envelope = whole[:len(whole)-len(rest)]
		header, rest = rest.Next()
	case string(first) == client02, string(first) == worker02:
	case len(first) > maxNumber:
		return false
	default: // a number and an empty frame
		empty, after, ok := next(rest)
		if !ok || len(empty) > 0 || len(after) == 0 {
			return false
		}
		p.number = first
		p.envelope = whole[:len(whole)-len(after)]
		header, rest = after.Next()
	}
	switch string(header) {
	case client01:
		return len(p.envelope) > 0 && p.parseClient(rest, toBroker)
	case client02:
		p.version = Version02
		return (len(p.envelope) == 0 || p.number != nil) && p.parseClient(rest, toBroker)
	case worker01:
		return len(p.envelope) > 0 && p.number == nil && p.parseWorker(rest)
	case worker02:
		p.version = Version02
		return len(p.envelope) == 0 && p.parseWorker(rest)
	}
	return false
}

// parseClient decodes the frames after the header of a client.
func (p *packet) parseClient(m zmtp.WireMessage, toBroker bool) (ok bool) {
	p.command = reply
	if toBroker {
		p.command = request
	}
	if p.version == Version02 {
		var code []byte
		if code, m, ok = next(m); !ok || len(code) != 1 {
			return false
		}
		switch {
		case toBroker && code[0] == codeRequest02, !toBroker && code[0] == codeFinal02:
		case !toBroker && code[0] == codePartial02:
			p.command = partial
		default:
			return false
		}
	}
	if p.service, m, ok = next(m); !ok || !validName(p.service) {
		return false
	}
	p.body = m
	return len(m) > 0
}

// parseWorker decodes the frames after the header of a worker.
func (p *packet) parseWorker(m zmtp.WireMessage) (ok bool) {
	p.worker = true
	var code []byte
	if code, m, ok = next(m); !ok || len(code) != 1 || int(code[0]) >= len(workerCodes[p.version]) {
		return false
	}
	p.command = workerCodes[p.version][code[0]]
	switch p.command {
	case ready:
		p.service, m, ok = next(m)
		return ok && validName(p.service) && len(m) == 0
	case heartbeat, disconnect:
		return len(m) == 0
	case giveBack:
		p.count, m, ok = next(m)
		return ok && len(m) == 0
	case request, reply, partial:
		// Exactly one address and an empty frame (RFC 7, REQUEST and REPLY).
		var empty []byte
		if p.address, m, ok = next(m); !ok || len(p.address) == 0 || len(p.address) > 255 {
			return false
		}
		if empty, m, ok = next(m); !ok || len(empty) > 0 {
			return false
		}
		p.body = m
		return len(m) > 0
	}
	return false
}

func validName(service []byte) bool { return len(service) > 0 && len(service) <= MaxServiceName }

// appendClientHeader appends the frames of a client command between envelope and body.
func appendClientHeader[S []byte | string](dst []byte, v Version, c command, service S) []byte {
	if v == Version01 {
		dst = appendFrame(dst, client01)
	} else {
		code := byte(codeRequest02)
		switch c {
		case reply:
			code = codeFinal02
		case partial:
			code = codePartial02
		}
		dst = appendFrame(dst, client02)
		dst = append(dst, zmtp.FlagMore, 1, code)
	}
	return appendFrame(dst, service)
}

// appendFrame appends a frame of up to 255 bytes, followed by others.
func appendFrame[S []byte | string](dst []byte, body S) []byte {
	return append(append(dst, zmtp.FlagMore, byte(len(body))), body...)
}

// appendWorkerHeader appends the frames of a worker command up to its code. more means
// that others follow.
func appendWorkerHeader(dst []byte, v Version, c command, more bool) []byte {
	if v == Version01 {
		dst = append(dst, zmtp.FlagMore, 0)
		dst = appendFrame(dst, worker01)
	} else {
		dst = appendFrame(dst, worker02)
	}
	flags := byte(0)
	if more {
		flags = zmtp.FlagMore
	}
	return append(dst, flags, 1, workerCode(v, c))
}

// appendAddress appends the address of a client and the empty frame after it.
func appendAddress(dst, address []byte) []byte {
	return append(appendFrame(dst, address), zmtp.FlagMore, 0)
}
