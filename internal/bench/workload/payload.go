package workload

import "encoding/binary"

// A value begins with
//
//	bytes 0..7    publisher (16 bits) and counter (48 bits), the label
//	bytes 8..15   time of sending, nanoseconds of [Now]
//
// and one of at least 24 bytes ends with the label once more, so that a value
// put together from two updates is seen as such.
const (
	payloadSize = 16
	labelSize   = 8
)

const counterBits = 48

// Payload is the value of an update, to be filled in again for each.
type Payload struct {
	value []byte
	label uint64 // of counter 0
}

// newPayload returns a payload of the workload for publisher p.
func newPayload(s Spec, p int) *Payload {
	value := make([]byte, s.ValueSize)
	for i := range value {
		value[i] = byte('a' + i%26)
	}
	return &Payload{value: value, label: uint64(p) << counterBits}
}

// fill puts in the counter and the time, and returns the value. It is the same
// slice each time.
func (p *Payload) fill(counter uint64, sent int64) []byte {
	v := p.value
	binary.LittleEndian.PutUint64(v, p.label|counter)
	binary.LittleEndian.PutUint64(v[8:], uint64(sent))
	if len(v) >= payloadSize+labelSize {
		binary.LittleEndian.PutUint64(v[len(v)-labelSize:], p.label|counter)
	}
	return v
}

// parse takes a value apart; ok is false if it is not a value of this workload.
func (s *Spec) parse(value []byte) (publisher int, counter uint64, sent int64, ok bool) {
	if len(value) != s.ValueSize {
		return 0, 0, 0, false
	}
	label := binary.LittleEndian.Uint64(value)
	publisher = int(label >> counterBits)
	counter = label & (1<<counterBits - 1)
	torn := len(value) >= payloadSize+labelSize && label != binary.LittleEndian.Uint64(value[len(value)-labelSize:])
	return publisher, counter, int64(binary.LittleEndian.Uint64(value[8:])), !torn && publisher < s.Publishers
}
