package sockets

import "clustermap/zmtp"

// Observed is a batch of messages that a proxy has received together from one
// peer; see [ProxyOptions].Observe. It is valid until Observe returns. If the
// messages come from a ROUTER, the identity of the peer is the first frame of
// each message.
type Observed struct {
	parcel   *parcel
	backward bool
}

// FromBackend reports whether the messages come from the backend and go to the
// frontend.
func (o Observed) FromBackend() bool { return o.backward }

// Len returns the number of messages, which is at least one.
func (o Observed) Len() int { return o.parcel.len() }

// AppendFrames appends the frames of message i to dst and returns the extended
// slice. The frames are not copied, so they are valid only until Observe
// returns.
func (o Observed) AppendFrames(dst [][]byte, i int) [][]byte { return o.parcel.frames(dst, i) }

// WireSize returns the number of bytes that AppendWire appends for message i.
func (o Observed) WireSize(i int) int {
	n := len(o.parcel.batch.Message(i))
	if o.parcel.lead != nil {
		n += zmtp.FrameSize(len(o.parcel.lead))
	}
	return n
}

// AppendWire appends message i to dst in ZMTP 3 framing, as a [zmtp.WireMessage],
// and returns the extended slice.
func (o Observed) AppendWire(dst []byte, i int) []byte {
	return append(o.parcel.leadFrame(dst), o.parcel.batch.Message(i)...)
}
