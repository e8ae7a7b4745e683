package majordomo

import (
	"bytes"
	"strconv"

	"clustermap/zmtp"
)

// The Majordomo Management Interface (RFC 8): services that the broker itself
// implements.
const (
	// ReservedPrefix is the prefix of the broker's services, for which no worker can
	// register.
	ReservedPrefix = "mmi."

	serviceLookup = "mmi.service"
	mmiFound      = "200"
	mmiNotFound   = "404"
	mmiUnknown    = "501"
)

// isReserved reports whether a name is reserved for the broker.
func isReserved(service []byte) bool { return bytes.HasPrefix(service, []byte(ReservedPrefix)) }

// answer replies to a request for one of the broker's services.
func (b *Broker) answer(c *conn, p *packet) {
	switch string(p.service) {
	case serviceLookup:
		code := mmiNotFound
		name, _ := p.body.Next()
		if s := b.services.named[string(name)]; s != nil && s.workers > 0 {
			code = mmiFound
		}
		b.respondText(c, p, code)
	case serviceList:
		b.scratch = b.appendServices(b.scratch[:0])
		b.out.respond(c, p, b.scratch)
		if cap(b.scratch) > maxScratch {
			b.scratch = nil
		}
	default:
		b.respondText(c, p, mmiUnknown)
	}
}

func (b *Broker) respondText(c *conn, p *packet, text string) {
	b.scratch = append(append(b.scratch[:0], 0, byte(len(text))), text...)
	b.out.respond(c, p, b.scratch)
}

// appendServices appends the body of a reply: 200, and four frames for each service: its
// name, and in decimal its workers, waiting requests, and requests that workers have.
func (b *Broker) appendServices(dst []byte) []byte {
	frames := [][]byte{[]byte(mmiFound)}
	number := func(n int) []byte { return strconv.AppendInt(nil, int64(n), 10) }
	for _, s := range b.services.status() {
		frames = append(frames, []byte(s.Name), number(s.Workers), number(s.Waiting), number(s.Given))
	}
	return zmtp.AppendMessage(dst, frames...)
}
