package queue

import "clustermap/zmtp"

// shelf is memory for messages that the application owns: the bytes of a few of them in
// one piece, and their frames in another. So a message costs little more than the copy,
// and one that the application keeps also keeps the others: at most shelfPins bytes.
type shelf struct {
	bytes  []byte
	frames [][]byte // each of them in bytes
	used   int      // of bytes
	filled int      // of frames
	least  int      // size of the smallest message that may share it
}

// copy copies a message. lead, if not nil, becomes an extra first frame. follow is how many
// other messages will probably be copied after it. made is how many bytes of memory that took.
func (s *shelf) copy(wire zmtp.WireMessage, lead []byte, follow int) (m [][]byte, made int) {
	body, rest := wire.Next()
	if lead == nil && len(rest) == 0 {
		made = s.room(len(body), 1, follow)
		first := s.filled
		s.add(body)
		return s.since(first), made
	}
	size, count := len(body), 1
	for len(rest) > 0 {
		body, rest = rest.Next()
		size += len(body)
		count++
	}
	if lead != nil {
		size += len(lead)
		count++
	}
	made = s.room(size, count, follow)
	first := s.filled
	if lead != nil {
		s.add(lead)
	}
	for len(wire) > 0 {
		body, wire = wire.Next()
		s.add(body)
	}
	return s.since(first), made
}

// room makes room for a message of the given size, and if it makes new room, for those like
// it that follow. It returns the size of what it has made.
func (s *shelf) room(size, count, follow int) (made int) {
	if s.bytes != nil && len(s.bytes)-s.used >= size && size >= s.least {
		if len(s.frames)-s.filled < count {
			s.frames, s.filled = make([][]byte, count), 0
			made = frameCost * count
		}
		return made
	}
	n, frames, least := 1, 1, size
	switch each := size + frameCost*count; {
	case 2*each <= shelfRoom:
		n = min(shelfRoom/each, 1+follow)
		frames, least = n, 0
	case size == shelfPins/2: // as many messages are
		n = min(3, 1+follow)
	case size <= maxShelved:
		n = min(2, 1+follow)
	}
	n = max(n, 1)
	*s = shelf{bytes: make([]byte, n*size), frames: make([][]byte, max(frames, 1)*count), least: least}
	return len(s.bytes) + frameCost*len(s.frames)
}

// add copies a frame. A frame is the only pointer that is stored, because that costs much
// more while the garbage collector marks.
func (s *shelf) add(body []byte) {
	end := s.used + len(body)
	frame := s.bytes[s.used:end:end]
	copy(frame, body)
	s.frames[s.filled] = frame
	s.used = end
	s.filled++
}

// since returns the frames from the given one on, and forgets memory that is full, so that
// only the messages keep it.
func (s *shelf) since(first int) [][]byte {
	m := s.frames[first:s.filled:s.filled]
	if s.used == len(s.bytes) && s.filled == len(s.frames) {
		*s = shelf{}
	}
	return m
}

// Refill copies a message into the frames of another one, and into their memory as far as it
// suffices. lead, if not nil, becomes an extra first frame.
func Refill(frames [][]byte, wire zmtp.WireMessage, lead []byte) [][]byte {
	frames = frames[:0]
	if lead != nil {
		frames = refill(frames, lead)
	}
	for len(wire) > 0 {
		var body []byte
		body, wire = wire.Next()
		frames = refill(frames, body)
	}
	return frames
}

// refill appends a copy of a frame, in the memory of the one that was there.
func refill(frames [][]byte, body []byte) [][]byte {
	i := len(frames)
	if i == cap(frames) {
		frames = append(frames, nil)
	}
	frames = frames[:i+1]
	if frames[i] == nil {
		frames[i] = []byte{}
	}
	frames[i] = append(frames[i][:0], body...)
	return frames
}
