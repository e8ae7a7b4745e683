package workload

// Order is the random order in which a publisher takes its keys: the same for
// the same publisher in every run, and cheap (SplitMix64).
type Order struct {
	state uint64
	keys  uint64
	each  uint64 // keys that still come once each, from the last to the first
}

// newOrder returns the order of publisher p for the given number of keys.
func newOrder(p, keys int) Order {
	return Order{state: mix(uint64(p) + 1), keys: uint64(keys)}
}

// order returns the order of publisher p.
func (s Spec) order(p int) Order {
	o := newOrder(p, share(s.Keys, s.Publishers, p))
	if s.Each {
		o.each = o.keys
	}
	return o
}

// next returns the index of the next key.
func (o *Order) next() int {
	if o.each > 0 {
		o.each--
		return int(o.each)
	}
	o.state += 0x9E3779B97F4A7C15
	// Multiply and shift maps 32 random bits to the range without a division.
	return int(mix(o.state) >> 32 * o.keys >> 32)
}

// mix is the finaliser of SplitMix64: each bit of x reaches each bit of the
// result.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}
