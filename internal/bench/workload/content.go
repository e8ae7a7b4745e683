package workload

import "encoding/binary"

// Content is a fingerprint of a map that does not depend on the order in which
// its pairs are added. It leaves out the time of sending in a value, which cannot be
// computed in advance.
type Content struct {
	Keys int    `json:"keys"`
	Sum  uint64 `json:"sum"`
	Mix  uint64 `json:"mix"`
}

// Add adds a pair.
func (c *Content) Add(key, value []byte) {
	h := fold(0xCBF29CE484222325, key)
	h = fold(h, value[:min(len(value), 8)])
	h = fold(h, value[min(len(value), 16):])
	c.Keys++
	// Two sums over different functions of the hash: 128 bits must agree.
	h = mix(h)
	c.Sum += h
	c.Mix += mix(h ^ 0x5851F42D4C957F2D)
}

// fold hashes bytes into h, eight at a time, and their number.
func fold(h uint64, bytes []byte) uint64 {
	h = mix(h ^ uint64(len(bytes)))
	for ; len(bytes) >= 8; bytes = bytes[8:] {
		h = mix(h ^ binary.LittleEndian.Uint64(bytes))
	}
	for _, o := range bytes {
		h = mix(h ^ uint64(o))
	}
	return h
}

// ContentOf is the content of a map that is asked for each key of the workload.
func (s Spec) ContentOf(get func(key string) ([]byte, bool)) Content {
	var c Content
	for p := range s.Publishers {
		for _, key := range s.KeysOf(p) {
			if value, ok := get(key); ok {
				c.Add([]byte(key), value)
			}
		}
	}
	return c
}

// finals returns the counter, from 1, of the last update of each key of publisher p, or 0.
func (s Spec) finals(p int) []uint64 {
	last := make([]uint64, share(s.Keys, s.Publishers, p))
	order := s.order(p)
	for n := range s.Warmed(p) + s.Measured(p) {
		last[order.next()] = uint64(n) + 1
	}
	return last
}

// Expected is the content after every update of the workload has been applied.
func (s Spec) Expected() Content {
	var c Content
	for p := range s.Publishers {
		keys := s.KeysOf(p)
		payload := newPayload(s, p)
		for i, counter := range s.finals(p) {
			if counter > 0 {
				c.Add([]byte(keys[i]), payload.fill(counter, 0))
			}
		}
	}
	return c
}
