package sockets

import "clustermap/zmtp"

// Observed is what [ProxyOptions].Observe is shown: messages of one peer that a proxy
// has received together, as views. It is valid until Observe returns. With a ROUTER the
// identity of the peer is the first frame of each message.
type Observed struct {
	parcel   *parcel
	backward bool
}

// FromBackend says that the messages come from the backend, and go to the frontend.
func (o Observed) FromBackend() bool { return o.backward }

// Len returns the number of messages, at least one.
func (o Observed) Len() int { return o.parcel.len() }

// AppendFrames appends the frames of message i to dst. They are views.
func (o Observed) AppendFrames(dst [][]byte, i int) [][]byte { return o.parcel.frames(dst, i) }

// WireSize returns how many bytes AppendWire appends for message i.
func (o Observed) WireSize(i int) int {
	p := o.parcel
	if p.single == nil {
		n := len(p.batch.Message(i))
		if p.lead != nil {
			n += zmtp.FrameSize(len(p.lead))
		}
		return n
	}
	n := 0
	for _, frame := range p.single {
		n += zmtp.FrameSize(len(frame))
	}
	return n
}

// AppendWire appends message i in wire form to dst: a zmtp.Message.
func (o Observed) AppendWire(dst []byte, i int) []byte {
	p := o.parcel
	if p.single != nil {
		return zmtp.AppendMessage(dst, p.single...)
	}
	return append(p.leadFrame(dst), p.batch.Message(i)...)
}
